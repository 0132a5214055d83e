"""The node as it is shown: rates from two looks, and what cannot be known."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.protocol import view
from aliquot.protocol.view import NodeView, SliceView
from aliquot.rates import percent_of_time
from deviceplugin.booking.sources import ContainerKey
from deviceplugin.telemetry import view as viewing
from deviceplugin.telemetry.metrics import GpuSample, NodeSample
from deviceplugin.telemetry.readings import ContainerReading
from deviceplugin.telemetry.sample import Look
from deviceplugin.telemetry.view import Viewer, node_view, points

GIB = 1 << 30
KEY = ContainerKey("team", "train", "main")
READING = ContainerReading(
    key=KEY,
    gpu="GPU-a",
    memory_limit_bytes=4 * GIB,
    memory_used_bytes=3 * GIB,
    memory_peak_bytes=4 * GIB,
    memory_refusals=2,
    compute_share=0.3,
    busy_s=10.0,
    throttled_s=1.0,
    launches=1000,
    policy="burst",
    start="main.1",
)
GPU = GpuSample(
    uuid="GPU-a",
    index=0,
    model="NVIDIA L4",
    memory_bytes=24 * GIB,
    memory_advertised_bytes=23 * GIB,
    memory_held_bytes=4 * GIB,
    compute_advertised=1.5,
    compute_held=0.3,
    memory_used_bytes=5 * GIB,
)


def look(at_s: float, *containers: ContainerReading) -> Look:
    node = NodeSample("1", gpus=(GPU,), containers=containers, shims_missing={KEY: 1})
    return Look(at_s, 1e9 + at_s, node, {"GPU-a": 71})


def only_slice(told: NodeView) -> SliceView:
    ((one,),) = (gpu.slices for gpu in told.gpus)
    return one


def test_all_that_was_read_is_shown_in_the_units_of_the_view() -> None:
    told = node_view("n1", look(0, READING), None, "no kubelet")
    assert (told.name, told.taken_at, told.problem) == ("n1", 1e9, "no kubelet")
    (gpu,) = told.gpus
    assert (gpu.memory_used_bytes, gpu.utilization_percent) == (5 * GIB, 71)
    assert gpu.compute_advertised_percent == 150
    shown = only_slice(told)
    assert (shown.namespace, shown.pod, shown.container) == ("team", "train", "main")
    assert (shown.policy, shown.compute_percent, shown.shim_missing) == ("burst", 30, 1)
    assert (shown.memory_used_bytes, shown.memory_refusals) == (3 * GIB, 2)
    assert (shown.compute_used_percent, shown.throttled_percent) == (None, None), "only one look"


def test_rates_are_over_the_time_between_two_looks() -> None:
    later = replace(READING, busy_s=11.5, throttled_s=2.0)
    shown = only_slice(node_view("n", look(4, later), look(0, READING)))
    assert (shown.compute_used_percent, shown.throttled_percent) == (37.5, 25)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(replace(READING, busy_s=9.0, throttled_s=0.5), id="counters were reset"),
        pytest.param(replace(READING, busy_s=20.0, start="main.2"), id="it was started anew"),
        pytest.param(replace(READING, busy_s=None, throttled_s=None), id="its file is damaged"),
        pytest.param(replace(READING, busy_s=20.0, gpu="GPU-a", start="b"), id="it is another one"),
    ],
)
def test_what_cannot_be_compared_has_no_rate(later: ContainerReading) -> None:
    shown = only_slice(node_view("n", look(2, later), look(0, READING)))
    assert (shown.compute_used_percent, shown.throttled_percent) == (None, None)


counters = st.one_of(st.none(), st.floats(0, 1e9))


@given(counters, counters, st.floats(-10, 100))
def test_a_rate_is_possible_or_unknown(
    before_s: float | None, after_s: float | None, elapsed_s: float
) -> None:
    rate = percent_of_time(before_s, after_s, elapsed_s)
    assert rate is None or 0 <= rate <= 100
    if before_s is None or after_s is None or after_s < before_s:
        assert rate is None


def test_the_history_hears_of_all_containers_together() -> None:
    other = replace(READING, key=ContainerKey("team", "b", "main"), start="b.1")
    new = replace(READING, key=ContainerKey("team", "c", "main"), start="c.1")
    before = look(0, READING, other)
    now = look(10, replace(READING, busy_s=12), replace(other, busy_s=13), new)
    point = points(now, before)["GPU-a"]
    assert point == (4 * GIB, 5 * GIB, 30, 50)
    assert points(now, None)["GPU-a"].compute_used_percent is None
    assert points(look(0), None)["GPU-a"].compute_used_percent == 0, "nobody is there"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    def set_to(at_s: float) -> None:
        monkeypatch.setattr(viewing.time, "monotonic", lambda: at_s)
        monkeypatch.setattr(viewing.time, "time", lambda: 1e9 + at_s)

    return set_to


class Source:
    """Looks at a container that works for half of the time."""

    def __init__(self) -> None:
        self.count = 0
        self.brief = 0

    def look(self, is_brief: bool) -> Look:
        self.count += 1
        now_s = viewing.time.monotonic()
        reading = replace(READING, busy_s=now_s / 2, throttled_s=0)
        if is_brief:
            self.brief += 1
            reading = replace(reading, memory_limit_bytes=None, memory_used_bytes=None)
        return replace(look(now_s, reading), is_brief=is_brief)


def test_many_watchers_cost_as_much_as_one(clock: Callable[[float], None]) -> None:
    source = Source()
    viewer = Viewer("n", source.look, lambda: "")
    for tenth in range(100):
        clock(tenth / 10)
        viewer.render()
    assert source.count <= 11
    assert len(viewer._looks) <= 4


def test_whoever_looks_after_a_note_sees_rates(clock: Callable[[float], None]) -> None:
    viewer = Viewer("n", Source().look, lambda: "")
    clock(0)
    viewer.note()
    for at_s in (3, 5, 9, 10, 12):
        clock(at_s)
        shown = only_slice(view.decode(viewer.render(), NodeView))
        assert shown.compute_used_percent == pytest.approx(50)
    clock(500)
    shown = only_slice(view.decode(viewer.render(), NodeView))
    assert shown.compute_used_percent is None, "that long ago says nothing about now"


def test_the_history_is_told_only_to_those_who_ask(clock: Callable[[float], None]) -> None:
    viewer = Viewer("n", Source().look, lambda: "")
    for at_s in range(0, 100, 10):
        clock(at_s)
        viewer.note()
    assert view.decode(viewer.render(), NodeView).history is None
    told = view.decode(viewer.render("history"), NodeView).history
    assert told is not None
    assert set(told["GPU-a"].memory_used_bytes) == {5 * GIB}
    known = [each for each in told["GPU-a"].compute_used_percent if each is not None]
    assert known == pytest.approx([50] * len(known))
    assert len(known) >= 2


def test_the_history_costs_brief_looks_and_nobody_is_shown_one(
    clock: Callable[[float], None],
) -> None:
    source = Source()
    viewer = Viewer("n", source.look, lambda: "")
    for at_s in (0, 15, 30):
        clock(at_s)
        viewer.note()
    assert (source.count, source.brief) == (3, 3)
    shown = only_slice(view.decode(viewer.render(), NodeView))
    assert shown.memory_used_bytes == 3 * GIB, "a look that is as new, and brief, is not enough"
    assert shown.compute_used_percent == pytest.approx(50)
    viewer.note()
    assert (source.count, source.brief) == (4, 3), "a whole one that is fresh serves the history"
