"""The last hour of the GPUs: averages, gaps, and clocks that jump."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.telemetry.history import STEP_S, STEPS, HourOfGpus, Point

BEGIN_S = 1_000_000 * STEP_S


def point(value: float | None) -> Point:
    return Point(value, value, value, value)


def test_a_step_is_the_average_of_what_was_noted_in_it() -> None:
    hour = HourOfGpus()
    for number, value in enumerate((10.0, 20.0, 60.0)):
        hour.note(BEGIN_S + 10 * number, {"a": point(value)})
    assert hour.told(BEGIN_S + STEP_S - 1)["a"].memory_used_bytes == [], "not complete yet"
    told = hour.told(BEGIN_S + STEP_S)["a"]
    assert told.memory_used_bytes == told.compute_held_percent == [30.0]
    assert (told.step_s, told.end_at) == (STEP_S, BEGIN_S + STEP_S)


def test_steps_in_which_nothing_was_noted_are_unknown() -> None:
    hour = HourOfGpus()
    hour.note(BEGIN_S, {"a": point(1.0)})
    hour.note(BEGIN_S + 3 * STEP_S, {"a": Point(None, 2.0, 0.0, None)})
    told = hour.told(BEGIN_S + 4 * STEP_S)["a"]
    assert told.memory_held_bytes == [1.0, None, None, None]
    assert told.memory_used_bytes == [1.0, None, None, 2.0]
    assert told.compute_held_percent == [1.0, None, None, 0.0]


def test_a_gpu_that_came_later_has_lists_as_long_as_the_others() -> None:
    hour = HourOfGpus()
    for step in range(5):
        gpus = {"a": point(1.0)} | ({"b": point(2.0)} if step >= 3 else {})
        hour.note(BEGIN_S + step * STEP_S, gpus)
    told = hour.told(BEGIN_S + 5 * STEP_S)
    assert told["a"].memory_held_bytes == [1.0] * 5
    assert told["b"].memory_held_bytes == [None, None, None, 2.0, 2.0]


def test_a_clock_that_is_set_back_begins_a_new_history() -> None:
    hour = HourOfGpus()
    hour.note(BEGIN_S, {"a": point(1.0)})
    hour.note(BEGIN_S + STEP_S, {"a": point(1.0)})
    hour.note(BEGIN_S - 100 * STEP_S, {"a": point(7.0)})
    told = hour.told(BEGIN_S - 99 * STEP_S)["a"]
    assert (told.memory_held_bytes, told.end_at) == ([7.0], BEGIN_S - 99 * STEP_S)


@given(st.lists(st.tuples(st.integers(0, 5000), st.sampled_from("abc")), min_size=1, max_size=60))
def test_it_never_holds_more_than_the_hour_and_all_lists_are_equally_long(
    notes: list[tuple[int, str]],
) -> None:
    hour, now_s = HourOfGpus(), float(BEGIN_S)
    for pause_s, uuid in notes:
        now_s += pause_s
        hour.note(now_s, {uuid: point(1.0)})
    told = hour.told(now_s)
    lengths = {
        len(series)
        for each in told.values()
        for series in (
            each.memory_held_bytes,
            each.memory_used_bytes,
            each.compute_held_percent,
            each.compute_used_percent,
        )
    }
    assert len(lengths) == 1
    assert lengths.pop() <= STEPS
    assert all(one.end_at == other.end_at <= now_s for one, other in pairwise(told.values()))
