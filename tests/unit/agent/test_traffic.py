import threading
import time

import pytest

from deviceplugin.kubelet.traffic import FOLLOWS_WITHIN_S, GIVE_WAY_S, TAKEN_IN_S, Traffic

PATIENCE_S = 60


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_list_waits_for_an_open_allocate():
    traffic = Traffic()
    waited = threading.Thread(target=lambda: results.append(traffic.wait_quiet(PATIENCE_S)))
    results: list[bool] = []
    with traffic.allocating():
        waited.start()
        assert not traffic.wait_quiet(0.0)
        assert results == []
    waited.join(PATIENCE_S)
    assert results == [True]


def test_a_list_waits_for_the_allocate_that_follows_a_choice():
    clock = Clock()
    traffic = Traffic(clock)
    with traffic.choosing():
        assert traffic.wait_quiet(0.0)
    assert not traffic.wait_quiet(0.0)
    with traffic.allocating():
        assert not traffic.wait_quiet(0.0)
    clock.now_s += TAKEN_IN_S
    assert traffic.wait_quiet(0.0)


def test_a_list_waits_for_each_allocate_where_containers_are_asked_for_side_by_side():
    clock = Clock()
    traffic = Traffic(clock)
    with traffic.allocating(), traffic.choosing():
        pass
    clock.now_s += TAKEN_IN_S
    assert not traffic.wait_quiet(0.0)
    with traffic.allocating():
        pass
    clock.now_s += TAKEN_IN_S
    assert traffic.wait_quiet(0.0)


def test_an_allocate_that_never_came_is_not_taken_for_one_that_comes_later():
    clock = Clock()
    traffic = Traffic(clock)
    with traffic.choosing():
        pass
    clock.now_s += FOLLOWS_WITHIN_S
    with traffic.choosing():
        pass
    with traffic.allocating():
        pass
    clock.now_s += TAKEN_IN_S
    assert traffic.wait_quiet(0.0)


def test_a_list_waits_until_the_kubelet_has_taken_in_the_answer():
    clock = Clock()
    traffic = Traffic(clock)
    with traffic.allocating():
        pass
    clock.now_s += TAKEN_IN_S / 2
    assert not traffic.wait_quiet(0.0)
    clock.now_s += TAKEN_IN_S / 2
    assert traffic.wait_quiet(0.0)


def test_an_allocate_that_never_comes_is_not_waited_for_long():
    clock = Clock()
    traffic = Traffic(clock)
    with traffic.choosing():
        pass
    clock.now_s += FOLLOWS_WITHIN_S / 2
    assert not traffic.wait_quiet(0.0)
    clock.now_s += FOLLOWS_WITHIN_S / 2
    assert traffic.wait_quiet(0.0)


@pytest.fixture
def patience(monkeypatch):
    """Nothing here is put off for so short that a slow machine could not tell."""
    monkeypatch.setattr("deviceplugin.kubelet.traffic.GIVE_WAY_S", PATIENCE_S)


def test_work_that_nobody_waits_for_lets_a_containers_calls_go_first(patience):
    traffic = Traffic()
    done: list[str] = []

    def work() -> None:
        traffic.give_way()
        done.append("work")

    worker = threading.Thread(target=work)
    with traffic.choosing():
        worker.start()
    with traffic.allocating():
        done.append("allocate")
    worker.join(PATIENCE_S)
    assert done == ["allocate", "work"]


def test_work_is_put_off_only_for_a_moment():
    traffic = Traffic()
    with traffic.allocating():
        began_s = time.monotonic()
        traffic.give_way()
        assert time.monotonic() - began_s >= GIVE_WAY_S / 2


def test_a_refused_choice_is_followed_by_nothing(patience):
    traffic = Traffic()
    with pytest.raises(ValueError, match="refused"), traffic.choosing():
        raise ValueError("refused")
    began_s = time.monotonic()
    traffic.give_way()
    assert time.monotonic() - began_s < PATIENCE_S / 2
    assert traffic.wait_quiet(0.0)
