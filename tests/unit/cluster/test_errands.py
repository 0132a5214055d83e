"""Errands are done once, tried again when they fail, and never stand in each other's way."""

import threading
from collections.abc import Iterator

import pytest

from aliquot.kubernetes.backoff import Backoff
from aliquot.kubernetes.errors import ApiError, UnreachableError
from deviceplugin.cluster.errands import Errands

PATIENCE_S = 60.0


@pytest.fixture
def errands() -> Iterator[Errands]:
    made = Errands(lambda: Backoff(first_s=0.01, most_s=0.05))
    made.start()
    yield made
    made.stop()
    assert not made._thread.is_alive()


class Failing:
    def __init__(self, times: int, error: Exception) -> None:
        self.calls = 0
        self._times = times
        self._error = error

    def __call__(self) -> None:
        self.calls += 1
        if self.calls <= self._times:
            raise self._error


def test_what_fails_is_tried_until_it_works(errands: Errands) -> None:
    errand = Failing(3, UnreachableError("away"))
    errands.submit("a", errand)
    assert errands.flush(PATIENCE_S)
    assert errand.calls == 4


def test_one_that_fails_for_ever_does_not_hold_up_others(errands: Errands) -> None:
    hopeless = Failing(10**9, ApiError(403, "Forbidden", "no"))
    errands.submit("hopeless", hopeless)
    done = threading.Event()
    errands.submit("b", done.set)
    assert done.wait(PATIENCE_S)
    errands.cancel("hopeless")
    assert errands.flush(PATIENCE_S)


def test_what_is_wrong_in_itself_is_said_once_and_not_tried_again(
    errands: Errands, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Failing(10**9, ApiError(422, "Invalid", "annotations: Too long"))
    errands.submit("wrong", wrong)
    assert errands.flush(PATIENCE_S)
    assert wrong.calls == 1
    (said,) = [each.getMessage() for each in caplog.records]
    assert said == "wrong was refused for good: annotations: Too long"


def test_the_latest_of_a_key_counts(errands: Errands) -> None:
    entered, leave = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        leave.wait(PATIENCE_S)

    log: list[str] = []
    errands.submit("gate", block)
    assert entered.wait(PATIENCE_S)
    errands.submit("a", lambda: log.append("old"))
    errands.submit("a", lambda: log.append("new"))
    leave.set()
    assert errands.flush(PATIENCE_S)
    assert log == ["new"]


def test_a_newer_errand_takes_over_while_the_older_one_fails(errands: Errands) -> None:
    entered, leave = threading.Event(), threading.Event()

    def fail() -> None:
        entered.set()
        leave.wait(PATIENCE_S)
        raise UnreachableError("away")

    log: list[str] = []
    errands.submit("a", fail)
    assert entered.wait(PATIENCE_S)
    errands.submit("a", lambda: log.append("new"))
    leave.set()
    assert errands.flush(PATIENCE_S)
    assert log == ["new"]


def test_a_mistake_in_one_is_not_repeated_and_kills_nobody(errands: Errands) -> None:
    wrong = Failing(1, ZeroDivisionError())
    errands.submit("wrong", wrong)
    assert errands.flush(PATIENCE_S)
    done = threading.Event()
    errands.submit("b", done.set)
    assert done.wait(PATIENCE_S)
    assert wrong.calls == 1


def test_stop_does_what_can_be_done_at_once() -> None:
    made = Errands()
    log: list[str] = []
    made.start()
    for name in "abc":
        made.submit(name, lambda name=name: log.append(name))
    made.stop(PATIENCE_S)
    assert log == ["a", "b", "c"]


def test_an_errand_waits_until_others_need_not_go_first() -> None:
    asked, others_are_done, done = threading.Event(), threading.Event(), threading.Event()

    def give_way() -> None:
        asked.set()
        others_are_done.wait(PATIENCE_S)

    made = Errands(give_way=give_way)
    made.start()
    made.submit("a", done.set)
    assert asked.wait(PATIENCE_S)
    assert not done.is_set()
    others_are_done.set()
    assert done.wait(PATIENCE_S)
    made.stop()
