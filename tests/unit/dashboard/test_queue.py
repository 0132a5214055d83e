import msgspec

from aliquot.protocol import names
from scheduler_ext.choices import Choices
from scheduler_ext.dashboard.knowledge import gather
from scheduler_ext.dashboard.queue import WaitingQueue
from scheduler_ext.explain import explain
from scheduler_ext.objects import Node, Pod
from scheduler_ext.state import ClusterState
from scheduler_ext.verbs import Verbs
from scheduler_ext.waiting import WaitingPods
from tests.extender_cluster import gpu_node, gpu_pod


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def state_of(nodes: list[dict], pods: list[dict]) -> ClusterState:
    state = ClusterState()
    state.replace_nodes([msgspec.convert(each, Node) for each in nodes])
    state.replace_pods([msgspec.convert(each, Pod) for each in pods])
    return state


def shown(state: ClusterState) -> dict[str, str]:
    queue = WaitingQueue(state)
    return {each.pod: each.reason for each in queue.show(gather(state).waiting)}


def test_the_reason_begins_as_explain_does_and_names_the_commonest_obstacle() -> None:
    nodes = [gpu_node("a"), gpu_node("b"), gpu_node("c", memory_units=64)]
    state = state_of(nodes, [gpu_pod("big", memory=200)])
    verbs = Verbs(state, Choices(state.cluster, "fragmentation"), WaitingPods())
    (pod,) = gather(state).waiting
    told = shown(state)["big"]
    assert told.startswith(explain(verbs, pod, 0.0)["verdict"])
    assert told == (
        "its GPUs are free on none of 3 nodes; on 2: "
        "GPU 0 is the largest: 40 of 50 GiB asked on one GPU"
    )


def test_what_it_asks_for_and_since_when() -> None:
    one = gpu_pod("one", memory=48, compute=30)
    one["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    two = gpu_pod("two", memory=32, compute=60)
    two["metadata"]["annotations"] = {names.GPUS: "2"}
    whole = gpu_pod("whole", memory=0, compute=100)
    state = state_of([gpu_node("a")], [one, two, whole])
    views = {each.pod: each for each in WaitingQueue(state).show(gather(state).waiting)}
    assert views["one"].asks == "12 GiB and 30 percent"
    assert views["one"].since == 1767225600.0
    assert views["two"].asks == "2 GPUs: 4 GiB and 30 percent"
    assert views["whole"].asks == "a whole GPU"
    assert "if it still waits, its event says" in views["one"].reason


def test_requests_that_cannot_be_read_say_why() -> None:
    state = state_of([gpu_node("a")], [gpu_pod("odd", memory=0, compute=150)])
    (view,) = WaitingQueue(state).show(gather(state).waiting)
    assert "150 percent is more than one GPU" in view.reason


def test_members_of_a_group_say_that_they_wait_for_all() -> None:
    member = gpu_pod("m", memory=32)
    member["metadata"]["annotations"] = {names.GROUP: "g", names.GROUP_SIZE: "4"}
    state = state_of([gpu_node("a")], [member])
    assert shown(state)["m"].endswith("group g starts when there is room for all 4 of it")


def test_nodes_without_gpus_do_not_count() -> None:
    nodes = [gpu_node("a"), gpu_node("away", agent=False), gpu_node("bare", gpus=0)]
    state = state_of(nodes, [gpu_pod("big", memory=200)])
    assert "none of 2 nodes" in shown(state)["big"]


def test_no_nodes_at_all() -> None:
    assert shown(state_of([], [gpu_pod("p")]))["p"].startswith("no node reports GPUs")


def test_reasons_are_kept_for_some_seconds() -> None:
    clock = Clock()
    state = state_of([gpu_node("a")], [gpu_pod("p", memory=200)])
    queue = WaitingQueue(state, clock)

    def reason() -> str:
        return queue.show(gather(state).waiting)[0].reason

    first = reason()
    assert "none of 1 nodes" in first
    state.replace_nodes([msgspec.convert(gpu_node("a", memory_units=320), Node)])
    assert reason() == first
    clock.now_s += 6.0
    assert "free on 1 of 1 nodes" in reason()


def test_thousands_of_waiting_pods_are_cut_off() -> None:
    state = state_of([gpu_node("a")], [gpu_pod(f"p-{number}") for number in range(1200)])
    assert len(WaitingQueue(state).show(gather(state).waiting)) == 1000
