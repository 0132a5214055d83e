import threading

from deviceplugin.kubelet.traffic import FOLLOWS_WITHIN_S, Traffic

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
