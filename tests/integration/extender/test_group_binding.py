"""Groups at the moment of binding: what fails before, and what fails when some are bound."""

import threading

import pytest

from aliquot.protocol import names
from simcluster.apiserver import ApiServer
from tests.extender_cluster import FakeScheduler, gpu_node, gpu_pod, plan_of

NODES = ["n1", "n2"]


class Group:
    """Three pods, each of which needs most of a GPU, chosen for and ready to be bound."""

    def __init__(self, server: ApiServer, extender, scheduler: FakeScheduler) -> None:
        self.server = server
        self.extender = extender
        annotations = {names.GROUP: "training", names.GROUP_SIZE: "3"}
        self.pods = [
            server.add(gpu_pod(f"m{number}", 90, 60, annotations=dict(annotations)))
            for number in range(3)
        ]
        server.wait_for(lambda: len(extender.state.group("default", "training")) == 3)
        self.chosen = [scheduler.choose(each, NODES) for each in self.pods]
        assert all(self.chosen)
        # Those that did not come first are woken, once; a test's faults are not meant for that.
        server.wait_for(lambda: self.is_woken(1) and self.is_woken(2))

    def is_woken(self, number: int) -> bool:
        return names.RETRY in self.stored(number)["metadata"]["annotations"]

    def bind(self) -> list[str]:
        """All bind calls at once, as kube-scheduler makes them; their errors."""
        errors = [""] * 3

        def one(number: int) -> None:
            with FakeScheduler(self.extender.port, timeout_s=600) as line:
                errors[number] = line.bind(self.pods[number], self.chosen[number])

        threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors

    def bound(self) -> list[bool]:
        return ["nodeName" in self.stored(number)["spec"] for number in range(3)]

    def stored(self, number: int) -> dict:
        return self.server.get(f"/api/v1/namespaces/default/pods/m{number}")


@pytest.fixture
def extender(server, start):
    for name in NODES:
        server.add(gpu_node(name))
    return start()


@pytest.fixture
def scheduler(extender, connect):
    return connect(extender)


@pytest.fixture
def group(server, extender, scheduler):
    return Group(server, extender, scheduler)


def test_nobody_is_bound_when_one_plan_cannot_be_written(server, extender, scheduler, group):
    server.fail(500, method="PATCH", path="pods/m1$")
    errors = group.bind()
    assert "the plan for default/m1 was not written" in errors[1]
    for number in (0, 2):
        assert "another pod of its group could not be planned" in errors[number]
    assert not server.asked("POST", "binding")
    assert [plan_of(group.stored(number)) for number in range(3)] == [None] * 3
    server.wait_for(extender.state.ledger.is_empty)
    # Nothing is left of it: the next attempt succeeds.
    group.chosen = [scheduler.choose(each, NODES) for each in group.pods]
    assert group.bind() == ["", "", ""]
    assert all(group.bound())


def test_a_binding_that_fails_for_a_moment_is_tried_again_at_once(server, group):
    server.fail(500, method="POST", path="pods/m1/binding", times=2)
    assert group.bind() == ["", "", ""]
    assert all(group.bound())


def test_a_refused_binding_keeps_its_room_until_its_pod_comes_again(server, scheduler, group):
    server.fail(403, "Forbidden", method="POST", path="pods/m1/binding")
    errors = group.bind()
    assert (errors[0], errors[2]) == ("", "")
    assert f"default/m1 was not bound to {group.chosen[1]}" in errors[1]
    assert group.bound() == [True, False, True]
    assert plan_of(group.stored(1)) is None
    # Four GPUs: two are the others', one is held for the third, and one is free.
    for name, expected in (("first", True), ("second", False)):
        other = scheduler.choose(server.add(gpu_pod(name, 90, 60)), NODES)
        assert (other is not None) == expected
    assert scheduler.schedule(group.stored(1), NODES) == group.chosen[1]
    assert all(group.bound())


def test_a_binding_that_was_made_although_the_server_failed_counts(server, scheduler, group):
    """As when its store answers too late: it says 500, and the pod is bound all the same."""
    gate = server.hold(method="POST", path="pods/m1/binding")
    server.fail(500, method="POST", path="pods/m1/binding", times=4)
    errors: list[str] = []
    calls = threading.Thread(target=lambda: errors.extend(group.bind()))
    calls.start()
    try:
        server.wait_for(gate.reached.is_set)
        server.merge("/api/v1/namespaces/default/pods/m1", {"spec": {"nodeName": group.chosen[1]}})
    finally:
        gate.open()
        calls.join()
    assert errors == ["", "", ""]
    # Its GPU was never free in between.
    for name, expected in (("first", True), ("second", False)):
        other = scheduler.choose(server.add(gpu_pod(name, 90, 60)), NODES)
        assert (other is not None) == expected
