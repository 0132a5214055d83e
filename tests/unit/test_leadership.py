"""Who leads: one at a time, whoever dies, stops or comes at the same moment."""

import time
from pathlib import Path

import pytest

from aliquot.leadership import Leadership


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def fall_silent(lock: Path) -> None:
    """As if whoever leads had said nothing for ten seconds."""
    lock.write_text(f"{time.monotonic_ns() - 10_000_000_000:20d}")


def test_only_one_leads(lock: Path) -> None:
    first, second = Leadership(lock), Leadership(lock)
    assert first.win()
    assert not second.win()
    assert first.keep()
    first.give_up()
    assert second.win()
    assert not first.keep()


def test_a_leader_that_has_said_nothing_yet_is_left_alone(lock: Path) -> None:
    first, second = Leadership(lock), Leadership(lock)
    assert first.win()
    lock.write_text("")
    assert not second.win()


def test_a_silent_leader_is_deposed_and_notices(lock: Path) -> None:
    stopped, other = Leadership(lock), Leadership(lock)
    assert stopped.win()
    fall_silent(lock)
    assert other.win()
    assert not stopped.keep()
    assert other.keep()
    assert not stopped.win()
    assert [path.name for path in lock.parent.iterdir()] == [lock.name]


def test_of_two_who_depose_at_once_one_leads(lock: Path) -> None:
    stopped, early, late = (Leadership(lock) for _ in range(3))
    assert stopped.win()
    fall_silent(lock)
    assert early.win()
    fall_silent(lock)
    assert late.win()
    assert [stopped.keep(), early.keep(), late.keep()] == [False, False, True]


def test_who_loses_the_file_leads_no_more(lock: Path) -> None:
    leader = Leadership(lock)
    assert leader.win()
    lock.unlink()
    assert not leader.keep()
    assert leader.win()
