"""`/view`: the node as people look at it, with rates from two looks at the counters."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from aliquot.protocol import view
from aliquot.protocol.view import GpuView, NodeView, SliceView
from aliquot.rates import percent_of_time
from deviceplugin.telemetry.history import HourOfGpus, Point
from deviceplugin.telemetry.metrics import GpuSample
from deviceplugin.telemetry.readings import ContainerReading
from deviceplugin.telemetry.sample import Look

__all__ = ["NOTE_S", "Viewer", "node_view"]

NOTE_S = 15.0
"""How often the node is looked at for its history, also when nobody watches."""

FRESH_S = 1.0
"""Whoever asks again within this time is shown the same: many watchers cost as much as one."""

WINDOW_S = 2.0
"""The least time that rates are made of, where there is a look that old."""

OLDEST_S = 3 * NOTE_S
"""Rates since a look that is older than this would say nothing about now."""


class Viewer:
    """Any thread may ask."""

    def __init__(
        self, node_name: str, look: Callable[[bool], Look], why_not_ready: Callable[[], str]
    ) -> None:
        """`look` is asked for a brief one where that is enough."""
        self._node_name = node_name
        self._look = look
        self._why_not_ready = why_not_ready
        self._lock = threading.Lock()
        self._looks: deque[Look] = deque()
        """Oldest first; no more than the windows need."""
        self._noted: Look | None = None
        self._hour = HourOfGpus()

    def render(self, query: str = "") -> bytes:
        with self._lock:
            now, before = self._present(is_brief=False)
            history = self._hour.told(time.time()) if "history" in query.split("&") else None
        return view.encode(
            node_view(self._node_name, now, before, self._why_not_ready(), history=history)
        )

    def note(self) -> None:
        """Takes down the present for the history; to be called every NOTE_S."""
        with self._lock:
            now, _ = self._present(is_brief=True)
            before, self._noted = self._noted, now
            self._hour.note(time.time(), points(now, before))

    def _present(self, is_brief: bool) -> tuple[Look, Look | None]:
        """A look at now, brief if that is enough, and an older one to compare it with."""
        looks = self._looks
        is_fresh = looks and time.monotonic() - looks[-1].at_s < FRESH_S
        if not is_fresh or (looks[-1].is_brief and not is_brief):
            looks.append(self._look(is_brief))
        now = looks[-1]
        # The second one is old enough by itself, so nobody needs the first any more.
        while len(looks) > 1 and now.at_s - looks[1].at_s >= WINDOW_S:
            looks.popleft()
        before = looks[0]
        is_of_use = before is not now and now.at_s - before.at_s <= OLDEST_S
        return now, before if is_of_use else None


def node_view(
    name: str,
    now: Look,
    before: Look | None,
    problem: str = "",
    *,
    history: dict[str, view.History] | None = None,
) -> NodeView:
    slices: dict[str, list[SliceView]] = {}
    for reading, busy, throttled in _rates(now, before):
        slices.setdefault(reading.gpu, []).append(
            SliceView(
                namespace=reading.key.namespace,
                pod=reading.key.pod,
                container=reading.key.container,
                policy=reading.policy,
                memory_limit_bytes=reading.memory_limit_bytes,
                memory_used_bytes=reading.memory_used_bytes,
                memory_peak_bytes=reading.memory_peak_bytes,
                memory_refusals=reading.memory_refusals,
                compute_percent=reading.compute_share * 100,
                compute_used_percent=busy,
                throttled_percent=throttled,
                shim_missing=now.node.shims_missing.get(reading.key, 0),
            )
        )
    return NodeView(
        name=name,
        taken_at=now.at_unix_s,
        gpus=tuple(_gpu_view(gpu, now, slices.get(gpu.uuid, ())) for gpu in now.node.gpus),
        problem=problem,
        history=history,
    )


def points(now: Look, before: Look | None) -> dict[str, Point]:
    """What the history wants to know of each GPU, by uuid."""
    busy: dict[str, list[float | None]] = {}
    for reading, percent, _ in _rates(now, before):
        busy.setdefault(reading.gpu, []).append(percent)
    return {
        gpu.uuid: Point(
            gpu.memory_held_bytes,
            gpu.memory_used_bytes,
            gpu.compute_held * 100,
            _sum_known(busy.get(gpu.uuid, [])),
        )
        for gpu in now.node.gpus
    }


def _gpu_view(gpu: GpuSample, now: Look, slices: Iterable[SliceView]) -> GpuView:
    return GpuView(
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model,
        memory_bytes=gpu.memory_bytes,
        memory_advertised_bytes=gpu.memory_advertised_bytes,
        memory_used_bytes=gpu.memory_used_bytes,
        compute_advertised_percent=gpu.compute_advertised * 100,
        utilization_percent=now.utilization_percent.get(gpu.uuid),
        unusable=gpu.unusable,
        slices=tuple(sorted(slices, key=lambda each: (each.namespace, each.pod, each.container))),
    )


def _rates(
    now: Look, before: Look | None
) -> Iterable[tuple[ContainerReading, float | None, float | None]]:
    """Every container on every GPU, with its busy and throttled percent since the look before."""
    old: dict[tuple[str, str], ContainerReading] = {}
    elapsed_s = 0.0
    if before is not None:
        # By start: a container that has begun anew counts anew, and cannot be compared.
        old = {(each.start, each.gpu): each for each in before.node.containers}
        elapsed_s = now.at_s - before.at_s
    for reading in now.node.containers:
        was = old.get((reading.start, reading.gpu))
        yield (
            reading,
            percent_of_time(was.busy_s if was else None, reading.busy_s, elapsed_s),
            percent_of_time(was.throttled_s if was else None, reading.throttled_s, elapsed_s),
        )


def _sum_known(percents: list[float | None]) -> float | None:
    """All together; None when there are some but nothing is known of any."""
    known = [each for each in percents if each is not None]
    if percents and not known:
        return None
    return min(100.0, sum(known))
