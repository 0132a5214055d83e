"""Whose turn it is: kube-scheduler's order, its pauses, and what makes it try again."""

from simcluster.scheduler.queue import Queue


def turn(queue: Queue, now_s: float) -> str | None:
    found = queue.next(now_s)
    return found[0] if found else None


def fail(queue: Queue, uid: str, now_s: float, **options: bool) -> None:
    found = queue.next(now_s)
    assert found is not None
    assert found[0] == uid
    queue.failed(uid, found[1], now_s, **options)


def test_the_important_go_first_then_the_early():
    queue = Queue()
    queue.add("late", 0, 2.0)
    queue.add("early", 0, 1.0)
    queue.add("important", 7, 3.0)
    for expected in ("important", "early", "late"):
        assert turn(queue, 4.0) == expected
        queue.remove(expected)
    assert turn(queue, 4.0) is None


def test_who_fits_nowhere_waits_for_something_to_happen_and_for_its_pause():
    queue = Queue()
    queue.add("pod", 0, 0.0)
    fail(queue, "pod", 0.0)
    assert turn(queue, 1000.0) is None
    assert queue.next_s() is None
    queue.stir()
    assert turn(queue, 0.5) is None
    assert queue.next_s() == 1.0
    assert turn(queue, 1.0) == "pod"


def test_pauses_double_up_to_ten_seconds():
    queue, now_s, pauses = Queue(), 0.0, []
    queue.add("pod", 0, now_s)
    for _ in range(6):
        fail(queue, "pod", now_s)
        queue.stir()
        next_s = queue.next_s()
        assert next_s is not None
        pauses.append(next_s - now_s)
        now_s = next_s
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_what_happens_during_its_turn_is_not_missed():
    queue = Queue()
    queue.add("pod", 0, 0.0)
    found = queue.next(0.0)
    assert found is not None
    queue.stir()
    queue.failed("pod", found[1], 0.0)
    assert turn(queue, 1.0) == "pod"


def test_a_change_of_one_pod_helps_that_pod_alone():
    queue = Queue()
    for uid, added_s in (("a", 0.0), ("b", 1.0)):
        queue.add(uid, 0, added_s)
    fail(queue, "a", 1.0)
    fail(queue, "b", 1.0)
    queue.stir("b")
    assert turn(queue, 5.0) == "b"
    queue.remove("b")
    assert turn(queue, 5.0) is None


def test_after_an_error_nothing_has_to_happen():
    queue = Queue()
    queue.add("pod", 0, 0.0)
    fail(queue, "pod", 0.0, again=True)
    assert turn(queue, 0.5) is None
    assert turn(queue, 1.0) == "pod"


def test_a_pod_that_is_gone_can_neither_fail_nor_come_back():
    queue = Queue()
    queue.add("pod", 0, 0.0)
    found = queue.next(0.0)
    assert found is not None
    queue.remove("pod")
    queue.failed("pod", found[1], 0.0, again=True)
    queue.stir("pod")
    assert turn(queue, 100.0) is None
