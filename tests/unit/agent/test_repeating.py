import threading
import time
from itertools import pairwise

from deviceplugin.repeating import Repeating
from tests.patience import eventually

NEVER_S = 3600.0
PATIENCE_S = 60.0


class Rounds:
    def __init__(self) -> None:
        self.done = threading.Semaphore(0)
        self.error: Exception | None = None

    def go(self) -> None:
        self.done.release()
        if self.error is not None:
            raise self.error


def test_it_is_done_again_and_again_whatever_goes_wrong():
    rounds = Rounds()
    rounds.error = ValueError("not this time")
    repeating = Repeating("rounds", 0.001, rounds.go)
    repeating.start()
    for _ in range(3):
        assert rounds.done.acquire(timeout=PATIENCE_S)
    repeating.stop()


def test_it_can_be_asked_for_before_its_time():
    rounds = Rounds()
    repeating = Repeating("rounds", NEVER_S, rounds.go)
    repeating.start()
    assert not rounds.done.acquire(blocking=False)
    repeating.soon()
    assert rounds.done.acquire(timeout=PATIENCE_S)
    repeating.stop()


def test_it_ends_at_once_also_if_it_never_began():
    Repeating("rounds", NEVER_S, Rounds().go).stop()
    repeating = Repeating("rounds", NEVER_S, Rounds().go)
    repeating.start()
    repeating.stop()


def test_a_round_that_does_not_end_is_overdue():
    gate = threading.Event()
    began = threading.Event()

    def stuck() -> None:
        began.set()
        gate.wait(PATIENCE_S)

    repeating = Repeating("rounds", 0.001, stuck)
    repeating.start()
    assert began.wait(PATIENCE_S)
    first_s = repeating.overdue_s
    assert repeating.overdue_s >= first_s
    gate.set()
    repeating.stop()


def test_however_often_it_is_wanted_soon_some_time_passes_in_between():
    rounds: list[float] = []
    repeating = Repeating("rounds", NEVER_S, lambda: rounds.append(time.monotonic()), least_s=0.2)
    repeating.start()
    try:
        eventually(lambda: repeating.soon() or len(rounds) >= 3)
    finally:
        repeating.stop()
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(rounds))
