"""The scheduler's stand-in beside the real extender: what kube-scheduler does, it does."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aliquot.protocol.names import SCHEDULER_NAME
from scheduler_ext.extender import Extender
from simcluster.apiserver import ApiServer
from simcluster.scheduler import Extender as ExtenderLine
from simcluster.scheduler import Scheduler
from tests.extender_cluster import gpu_node, gpu_pod, plan_of

Object = dict[str, Any]
Start = Callable[..., Extender]


@pytest.fixture
def schedule(server: ApiServer) -> Iterator[Callable[[Extender], Scheduler]]:
    started: list[Scheduler] = []

    def begin(extender: Extender) -> Scheduler:
        line = ExtenderLine(f"http://127.0.0.1:{extender.port}/scheduler")
        made = Scheduler(server.client(), line)
        started.append(made)
        made.start()
        return made

    yield begin
    for each in started:
        each.stop()


def arrive(server: ApiServer, name: str, memory: int, compute: int, **more: Any) -> str:
    """Its path."""
    made = gpu_pod(name, memory, compute, **more)
    made["spec"].setdefault("schedulerName", SCHEDULER_NAME)
    server.add(made)
    return f"/api/v1/namespaces/default/pods/{name}"


def stored(server: ApiServer, path: str) -> Object:
    found = server.get(path)
    assert found is not None
    return found


def wait_bound(server: ApiServer, path: str) -> str:
    return server.wait_for(lambda: str(stored(server, path)["spec"].get("nodeName", "")))


def wait_condition(server: ApiServer, path: str) -> Object:
    def told() -> Object | None:
        conditions = stored(server, path)["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), None)

    found = server.wait_for(told)
    assert found is not None
    return found


def events(server: ApiServer, reason: str) -> list[str]:
    found = server.objects("/api/v1/namespaces/default/events")
    return [each["message"] for each in found if each["reason"] == reason]


def test_a_pod_that_fits_is_bound_with_a_plan(server: ApiServer, start: Start, schedule: Any):
    for name in ("n1", "n2"):
        server.add(gpu_node(name))
    schedule(start())
    path = arrive(server, "web", 16, 30)
    node = wait_bound(server, path)
    plan = plan_of(stored(server, path))
    assert plan is not None
    assert plan.containers["main"][0].uuid.startswith(f"GPU-{node}-")
    text = server.wait_for(lambda: events(server, "Scheduled"))
    assert text == [f"Successfully assigned default/web to {node}"]


def test_a_pod_without_room_waits_with_the_extenders_reason_and_starts_when_another_ends(
    server: ApiServer, start: Start, schedule: Any
):
    server.add(gpu_node("n1"))
    schedule(start())
    first = [arrive(server, f"first-{index}", 100, 40) for index in range(2)]
    for path in first:
        assert wait_bound(server, path) == "n1"
    late = arrive(server, "late", 80, 30)
    condition = wait_condition(server, late)
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == (
        "0/1 nodes are available: 1 GPU 0 has the most free memory: 15 of 20 GiB asked."
    )
    assert condition["message"] in server.wait_for(lambda: events(server, "FailedScheduling"))
    server.merge(first[0], {"status": {"phase": "Succeeded"}})
    assert wait_bound(server, late) == "n1"


def test_what_a_node_lacks_in_all_the_extender_is_not_asked(
    server: ApiServer, start: Start, schedule: Any
):
    server.add(gpu_node("n1", 1))
    schedule(start())
    path = arrive(server, "huge", 400, 30)
    assert wait_condition(server, path)["message"] == (
        "0/1 nodes are available: 1 Insufficient aliquot.dev/gpu-memory."
    )


def test_pods_that_name_another_scheduler_are_left_alone(
    server: ApiServer, start: Start, schedule: Any
):
    server.add(gpu_node("n1"))
    schedule(start())
    other = gpu_pod("other")
    other["spec"]["schedulerName"] = "default-scheduler"
    server.add(other)
    # Only then, so that the other one has had its turn if it has any.
    assert wait_bound(server, arrive(server, "ours", 16, 30)) == "n1"
    assert "nodeName" not in stored(server, "/api/v1/namespaces/default/pods/other")["spec"]


def test_a_failed_binding_is_told_and_tried_again(server: ApiServer, start: Start, schedule: Any):
    server.add(gpu_node("n1"))
    schedule(start())
    server.fail(403, "Forbidden", method="POST", path="/binding$")
    path = arrive(server, "web", 16, 30)
    assert wait_bound(server, path) == "n1"
    assert server.wait_for(lambda: events(server, "FailedScheduling"))


def test_a_new_node_helps_who_waits(server: ApiServer, start: Start, schedule: Any):
    server.add(gpu_node("n1", 1))
    schedule(start())
    path = arrive(server, "wide", 150, 30)
    assert wait_bound(server, path) == "n1"
    second = arrive(server, "second", 150, 30)
    wait_condition(server, second)
    server.add(gpu_node("n2", 1))
    assert wait_bound(server, second) == "n2"


def test_nobody_is_told_that_there_are_no_nodes_before_the_nodes_are_known(
    server: ApiServer, start: Start, schedule: Any
):
    server.add(gpu_node("n1"))
    extender = start()
    path = arrive(server, "early", 16, 30)
    nodes = server.hold(method="GET", path="/api/v1/nodes")
    # A watch begins when the list has been taken in: the pod is known by then.
    pods = server.hold(method="WATCH", path="/api/v1/pods")
    schedule(extender)
    assert nodes.reached.wait(60)
    assert pods.reached.wait(60)
    pods.open()
    nodes.open()
    assert wait_bound(server, path) == "n1"
    assert events(server, "FailedScheduling") == []
