"""The runs of this machine as a node's view: their files, and what NVML says of the GPUs."""

import shlex
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aliquot.protocol.view import GpuView, NodeView, SliceView
from aliquot.rates import percent_of_time
from aliquot.run import ps
from aliquot.run.folder import own_folder
from aliquot.run.registry import living_runs, locked

__all__ = ["FIRST_WINDOW_S", "GpuState", "LocalRuns", "RunsLook", "node_view"]

FIRST_WINDOW_S = 1.0
"""How long the first two looks are apart: without a second one there are no rates."""

Described = dict[str, Any]
"""A run as `aliquot ps` describes it."""


@dataclass(frozen=True, slots=True)
class GpuState:
    uuid: str
    index: int
    model: str
    memory_bytes: int
    used_bytes: int | None = None
    utilization_percent: float | None = None


@dataclass(frozen=True, slots=True)
class RunsLook:
    at_s: float
    at_unix_s: float
    gpus: tuple[GpuState, ...]
    runs: tuple[Described, ...]
    problem: str = ""


class LocalRuns:
    """Looks again and again, and compares each time with the look before."""

    def __init__(self) -> None:
        self._nvml = _Nvml()
        self._last: RunsLook | None = None

    def has_any(self) -> bool:
        return bool(_described())

    def has_gpus(self) -> bool:
        return bool(self._nvml.gpus())

    def view(self) -> NodeView:
        if self._last is None:
            self._last = self._look()
            if self._last.runs:
                time.sleep(FIRST_WINDOW_S)
        before, self._last = self._last, self._look()
        return node_view(socket.gethostname(), self._last, before)

    def _look(self) -> RunsLook:
        runs = _described()
        return RunsLook(time.monotonic(), time.time(), self._nvml.gpus(), runs, self._nvml.problem)


def _described() -> tuple[Described, ...]:
    folder = own_folder()
    with locked(folder):
        living = living_runs(folder)
    return tuple(each for each in map(ps.describe, living) if each is not None)


def node_view(name: str, now: RunsLook, before: RunsLook | None) -> NodeView:
    gpus = {gpu.uuid: gpu for gpu in now.gpus}
    slices: dict[str, list[SliceView]] = {uuid: [] for uuid in gpus}
    elapsed_s = now.at_s - before.at_s if before is not None else 0.0
    old = _by_gpu(before.runs if before is not None else ())
    for (run_id, uuid), (run, part) in _by_gpu(now.runs).items():
        # A GPU that NVML does not show here is known by what its runs were given.
        gpus.setdefault(uuid, GpuState(uuid, part["index"] or 0, "", 0))
        was = old.get((run_id, uuid), ({}, {}))[1]
        slices.setdefault(uuid, []).append(
            SliceView(
                namespace="",
                pod=run_id,
                container=_command(run),
                policy=run["policy"],
                memory_limit_bytes=part["limit_bytes"],
                memory_used_bytes=part["used_bytes"],
                memory_peak_bytes=part["peak_bytes"],
                memory_refusals=part["refused"],
                compute_percent=part["compute_percent"],
                compute_used_percent=_rate("busy_ns", was, part, elapsed_s),
                throttled_percent=_rate("throttled_ns", was, part, elapsed_s),
            )
        )
    return NodeView(
        name=name,
        taken_at=now.at_unix_s,
        gpus=tuple(
            GpuView(
                uuid=gpu.uuid,
                index=gpu.index,
                model=gpu.model,
                memory_bytes=gpu.memory_bytes,
                memory_advertised_bytes=gpu.memory_bytes,
                memory_used_bytes=gpu.used_bytes,
                utilization_percent=gpu.utilization_percent,
                slices=tuple(slices[gpu.uuid]),
            )
            for gpu in sorted(gpus.values(), key=lambda gpu: gpu.index)
        ),
        problem=now.problem,
    )


def _by_gpu(runs: Iterable[Described]) -> dict[tuple[str, str], tuple[Described, Described]]:
    return {(run["id"], part["uuid"]): (run, part) for run in runs for part in run["gpus"]}


def _rate(counter: str, was: Described, part: Described, elapsed_s: float) -> float | None:
    before_s = was[counter] / 1e9 if was else None
    return percent_of_time(before_s, part[counter] / 1e9, elapsed_s)


def _command(run: Described) -> str:
    """That of its first command, as one line; the others are in `aliquot ps`."""
    commands = run["commands"]
    if not commands:
        return "(ended)"
    more = f" and {len(commands) - 1} more" if len(commands) > 1 else ""
    return " ".join(shlex.join(commands[0]["command"]).split()) + more


class _Nvml:
    """Opened once; whatever it does not tell is left out."""

    def __init__(self) -> None:
        self.problem = ""
        self._nvml: Any = None

    def gpus(self) -> tuple[GpuState, ...]:
        import pynvml

        self.problem = ""
        try:
            if self._nvml is None:
                pynvml.nvmlInit()
                self._nvml = pynvml
            return tuple(_state(index) for index in range(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError as error:
            self.problem = f"NVML does not answer here ({error}), so only runs are shown"
            return ()


def _state(index: int) -> GpuState:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        utilization = float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except pynvml.NVMLError:
        utilization = None  # not every GPU counts it
    return GpuState(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        index=index,
        model=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=int(memory.total),
        used_bytes=int(memory.used),
        utilization_percent=utilization,
    )
