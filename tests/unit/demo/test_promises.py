"""The summary's judgement: what counts as kept, and what ends the demo with exit code 1."""

from dataclasses import replace

import pytest

from simcluster.demo import promises
from simcluster.demo.account import Moment, Window

GIB, MIB = 1 << 30, 1 << 20
SECOND_NS = 1_000_000_000


def window(
    busy_percent: dict[str, float],
    waited_percent: float = 0.0,
    stolen_percent: float = 0.0,
    late_percent: float = 0.0,
) -> Window:
    """Two seconds, begun at some moment."""
    pods = list(busy_percent)
    begin = Moment(
        dict.fromkeys(pods, 5 * SECOND_NS),
        dict.fromkeys(pods, 7),
        dict.fromkeys(pods, 0),
        dict.fromkeys(pods, 11),
        13,
        17,
    )
    end = Moment(
        dict.fromkeys(pods, 7 * SECOND_NS),
        {pod: 7 + round(percent / 100 * 2 * SECOND_NS) for pod, percent in busy_percent.items()},
        dict.fromkeys(pods, 0),
        {pod: 11 + round(waited_percent / 100 * 2 * SECOND_NS) for pod in pods},
        13 + round(stolen_percent / 100 * 2 * SECOND_NS),
        17 + round(late_percent / 100 * 2 * SECOND_NS),
    )
    return Window(begin, end)


def test_a_share_is_busy_time_over_the_time_of_the_gpu():
    measured = window({"a": 60.0, "b": 40.0})
    assert measured.share_percent("a") == pytest.approx(60.0)
    assert measured.share_percent("b") == pytest.approx(40.0)


def test_what_kept_a_program_from_running_is_the_worst_of_all_causes():
    assert window({"a": 60.0}).waited_percent == 0.0
    assert window({"a": 60.0}, waited_percent=8.0).waited_percent == pytest.approx(8.0)
    measured = window({"a": 60.0}, waited_percent=8.0, stolen_percent=20.0)
    assert measured.waited_percent == pytest.approx(20.0)
    measured = window({"a": 60.0}, stolen_percent=8.0, late_percent=30.0)
    assert measured.waited_percent == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("got", "kept"), [(60.0, True), (59.01, True), (60.99, True), (58.9, False), (61.1, False)]
)
def test_a_share_is_kept_within_one_point(got: float, kept: bool):
    assert promises.keeps_share("train", "compute share", 60, got, 1).kept is kept
    assert promises.misses(window({"train": got}), {"train": 60}) == ([] if kept else ["train"])


def test_a_share_that_was_measured_again_says_so():
    assert "window" not in promises.keeps_share("a", "compute share", 60, 60.0, 1).what
    assert "window 3" in promises.keeps_share("a", "compute share", 60, 60.0, 3).what


@pytest.mark.parametrize(
    ("seen", "peak", "kept"),
    [
        (4 * GIB, 4 * GIB, True),
        (4 * GIB, 4 * GIB - 2 * MIB, True),
        (4 * GIB, 4 * GIB + 1, False),
        (4 * GIB, 3 * GIB, False),
        (80 * GIB, 4 * GIB, False),
    ],
)
def test_a_cap_is_kept_when_it_is_seen_and_reached_and_not_passed(seen: int, peak: int, kept: bool):
    assert promises.keeps_cap("chat", 4 * GIB, seen, peak).kept is kept


@pytest.mark.parametrize(
    ("result", "is_alive", "worked_on", "kept"),
    [
        (2, True, True, True),
        (0, True, True, False),
        (719, True, True, False),
        (2, False, True, False),
        (2, True, False, False),
    ],
)
def test_a_program_at_its_cap_hears_out_of_memory_and_works_on(
    result: int, is_alive: bool, worked_on: bool, kept: bool
):
    assert promises.survives_refusal("chat", result, is_alive, worked_on).kept is kept


@pytest.mark.parametrize(("got", "kept"), [(99.0, True), (61.5, True), (60.5, False), (0.0, False)])
def test_who_borrows_has_more_than_its_share(got: float, kept: bool):
    assert promises.borrows("train", 60, got, 1).kept is kept
    assert promises.lacks(window({"train": got}), {"train": 60}) == ([] if kept else ["train"])


def test_a_reason_is_the_extenders_own_and_not_any():
    message = "0/1 nodes are available: 1 GPU 0 has the most free memory: 20 of 24 GiB asked."
    assert promises.has_reason("render", message, "20 of 24 GiB asked").kept
    assert not promises.has_reason("render", "", "20 of 24 GiB asked").kept
    own = "0/1 nodes are available: 1 Insufficient aliquot.dev/gpu-memory."
    assert not promises.has_reason("render", own, "20 of 24 GiB asked").kept


def test_who_waits_starts_when_there_is_room_and_not_before():
    assert promises.starts_late("render", "Running", started_before_room=False).kept
    assert not promises.starts_late("render", "Running", started_before_room=True).kept
    assert not promises.starts_late("render", "Pending", started_before_room=False).kept


def test_the_exit_code_is_0_only_if_every_promise_was_kept():
    kept = promises.keeps_share("train", "compute share", 60, 60.0, 1)
    assert promises.exit_code([kept, kept]) == 0
    assert promises.exit_code([kept, replace(kept, kept=False), kept]) == 1
    assert promises.exit_code([]) == 1
