"""The gate between those who use a session and whoever opens it anew."""

import threading
import time

import pytest

from deviceplugin.gpus.gate import Gate

LONG_S = 60.0
SHORT_S = 0.05


def test_many_pass_at_the_same_time() -> None:
    gate = Gate()
    met = threading.Barrier(3)

    def pass_through() -> None:
        with gate.passing(LONG_S):
            met.wait(LONG_S)

    threads = [threading.Thread(target=pass_through) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert not met.broken


def test_who_is_alone_waits_for_those_inside_and_keeps_others_out() -> None:
    gate, order = Gate(), []
    inside, leave, alone = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with gate.passing(LONG_S):
            inside.set()
            assert leave.wait(LONG_S)
            order.append("first")

    def second() -> None:
        with gate.alone(LONG_S):
            order.append("alone")
            alone.set()

    def third() -> None:
        assert alone.wait(LONG_S)
        with gate.passing(LONG_S):
            order.append("third")

    threads = [threading.Thread(target=each) for each in (first, second, third)]
    threads[0].start()
    assert inside.wait(LONG_S)
    for thread in threads[1:]:
        thread.start()
    assert not alone.wait(SHORT_S)
    leave.set()
    for thread in threads:
        thread.join(LONG_S)
    assert order == ["first", "alone", "third"]


def test_who_cannot_be_alone_gives_up_and_the_others_go_on() -> None:
    gate = Gate()
    with gate.passing(LONG_S):
        with pytest.raises(TimeoutError), gate.alone(SHORT_S):
            pass
        with gate.passing(LONG_S):
            pass
    with gate.alone(SHORT_S):
        pass


def test_who_has_hung_inside_for_long_is_not_waited_for_again() -> None:
    gate = Gate()
    with gate.passing(LONG_S):
        with pytest.raises(TimeoutError), gate.alone(SHORT_S):
            pass
        began_s = time.monotonic()
        with pytest.raises(TimeoutError), gate.alone(SHORT_S):
            pass
        assert time.monotonic() - began_s < SHORT_S


def test_who_has_no_time_does_not_wait_for_the_one_alone() -> None:
    gate = Gate()
    with gate.passing(timeout_s=0.0):
        pass
    with gate.alone(LONG_S), pytest.raises(TimeoutError), gate.passing(timeout_s=0.0):
        pass
    with gate.passing(timeout_s=0.0):
        pass


def test_a_failure_inside_leaves_the_gate_open() -> None:
    gate = Gate()
    with pytest.raises(ValueError), gate.alone(SHORT_S):  # noqa: PT011 - it is our own
        raise ValueError
    with pytest.raises(ValueError), gate.passing(LONG_S):  # noqa: PT011
        raise ValueError
    with gate.alone(SHORT_S):
        pass
