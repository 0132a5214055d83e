import msgspec
import pytest

from aliquot.protocol import names
from aliquot.protocol.view import GpuView, NodeView, SliceView
from scheduler_ext.dashboard.composition import compose
from scheduler_ext.dashboard.knowledge import NodeFacts, gather
from scheduler_ext.objects import Node, Pod
from scheduler_ext.state import ClusterState
from tests.extender_cluster import MODEL, gpu_node, gpu_pod, uuid_of

GIB = 1 << 30
UNIT_MIB = 256
PLAN_A = '{"containers":{"main":[["GPU-a-0",16,30]]}}'


def state_of(nodes: list[dict], pods: list[dict]) -> ClusterState:
    state = ClusterState()
    state.replace_nodes([msgspec.convert(each, Node) for each in nodes])
    state.replace_pods([msgspec.convert(each, Pod) for each in pods])
    return state


def bound(name: str, plan: str, *, actual: str = "", **more: object) -> dict:
    made = gpu_pod(name, **more)
    annotations = made["metadata"].setdefault("annotations", {})
    annotations[names.PLAN] = plan
    if actual:
        annotations[names.ACTUAL] = actual
    made["spec"]["nodeName"] = "a"
    return made


def facts_of(nodes: list[dict], pods: list[dict]) -> NodeFacts:
    return gather(state_of(nodes, pods)).nodes["a"]


def agent_view(*slices: SliceView, **more: object) -> NodeView:
    gpu = GpuView(
        uuid=uuid_of("a", 0),
        index=0,
        model=MODEL,
        memory_bytes=41 * GIB,
        memory_advertised_bytes=40 * GIB,
        memory_used_bytes=5 * GIB,
        slices=slices,
    )
    return NodeView(name="whatever it calls itself", taken_at=90.0, gpus=(gpu,), **more)


def test_a_node_whose_agent_is_silent_is_shown_as_the_cluster_knows_it() -> None:
    pods = [bound("p", PLAN_A, actual=PLAN_A), bound("q", PLAN_A)]
    facts = facts_of([gpu_node("a", unusable={1: "fell off the bus"})], pods)
    view = compose(facts, None, "its agent tells nothing: refused", UNIT_MIB, 100.0)
    assert (view.name, view.taken_at) == ("a", 100.0)
    assert view.problem == "its agent tells nothing: refused"
    first, second = view.gpus
    assert first.memory_advertised_bytes == first.memory_bytes == 40 * GIB
    assert first.memory_used_bytes is None
    assert second.unusable == "fell off the bus"
    given, planned = first.slices
    assert (given.pod, given.container, given.is_running) == ("p", "main", True)
    assert (given.memory_limit_bytes, given.compute_percent) == (4 * GIB, 30.0)
    assert given.memory_used_bytes is None
    assert (planned.pod, planned.is_running) == ("q", False)


def test_a_whole_gpu_has_no_cap() -> None:
    plan = '{"containers":{"main":[["GPU-a-1",0,100]]}}'
    facts = facts_of([gpu_node("a")], [bound("w", plan, memory=0, compute=100)])
    view = compose(facts, None, "", UNIT_MIB, 100.0)
    (whole,) = view.gpus[1].slices
    assert whole.memory_limit_bytes is None
    assert whole.compute_percent == 100.0


def test_the_agent_tells_what_runs_and_the_cluster_adds_what_is_planned() -> None:
    pods = [
        bound("known", PLAN_A),
        bound("coming", PLAN_A),
        # The node has given it, and the agent lists it no longer: it has just ended.
        bound("gone", PLAN_A, actual=PLAN_A),
    ]
    facts = facts_of([gpu_node("a")], pods)
    runs = SliceView(namespace="default", pod="known", container="main", memory_used_bytes=3 * GIB)
    view = compose(facts, agent_view(runs), "", UNIT_MIB, 100.0)
    assert (view.name, view.taken_at, view.problem) == ("a", 90.0, "")
    (gpu,) = view.gpus
    assert gpu.memory_used_bytes == 5 * GIB
    assert gpu.slices[0] is runs
    assert [(each.pod, each.is_running) for each in gpu.slices[1:]] == [("coming", False)]


def test_every_problem_is_told() -> None:
    lost = gpu_pod("lost")
    lost["spec"]["nodeName"] = "a"
    facts = facts_of([gpu_node("a", agent=False)], [lost])
    view = compose(facts, agent_view(problem="NVML is gone"), "", UNIT_MIB, 100.0)
    assert "the node agent is not running" in view.problem
    assert "NVML is gone" in view.problem
    assert "on which GPU default/lost run is not known" in view.problem


def test_nodes_without_gpus_are_left_out_and_names_are_in_order() -> None:
    plain = gpu_node("plain", agent=False)
    del plain["metadata"]["annotations"][names.INVENTORY]
    # Its agent runs, and has found none.
    bare = gpu_node("bare", gpus=0)
    state = state_of([gpu_node("b"), plain, bare, gpu_node("a")], [])
    assert list(gather(state).nodes) == ["a", "b"]


def test_pods_without_a_place_wait_the_important_first_and_then_the_oldest() -> None:
    old, new, urgent = gpu_pod("old"), gpu_pod("new"), gpu_pod("urgent", priority=5)
    for made, minute in ((new, 3), (old, 1), (urgent, 2)):
        made["metadata"]["creationTimestamp"] = f"2026-01-01T00:0{minute}:00Z"
    knowledge = gather(state_of([gpu_node("a")], [new, old, urgent, bound("p", PLAN_A)]))
    assert [pod.name for pod in knowledge.waiting] == ["urgent", "old", "new"]


@pytest.mark.parametrize("memory", [16, 32])
def test_equal_facts_are_equal(memory: int) -> None:
    """What is shown is made anew only when this changes."""
    plan = f'{{"containers":{{"main":[["GPU-a-0",{memory},30]]}}}}'
    state = state_of([gpu_node("a")], [bound("p", plan, memory=memory)])
    before = gather(state).nodes["a"]
    assert gather(state).nodes["a"] == before
    state.replace_pods([])
    assert gather(state).nodes["a"] != before
