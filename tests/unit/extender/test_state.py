"""How objects of the API server become rows, records and bookings."""

import json

import msgspec
import numpy as np
import pytest

from aliquot.kubernetes.watch import Change, ChangeKind
from aliquot.protocol import assignment, names
from aliquot.protocol.assignment import Assignment, Slice
from scheduler_ext.ledger import Stage
from scheduler_ext.objects import Node, Pod, host_demand
from scheduler_ext.state import ClusterState
from tests.extender_cluster import gpu_node, gpu_pod, uuid_of
from tests.extender_world import World


def node(*arguments, **more) -> Node:
    return msgspec.convert(gpu_node(*arguments, **more), Node)


def pod(*arguments, **more) -> Pod:
    return msgspec.convert(gpu_pod(*arguments, **more), Pod)


def given(uuid: str, memory: int = 100, compute: int = 60) -> str:
    return assignment.encode(Assignment({"main": (Slice(uuid, memory, compute),)}))


def state(*nodes: Node) -> ClusterState:
    made = ClusterState()
    made.replace_nodes(nodes or [node("n1")])
    return made


def free(made: ClusterState, name: str = "n1") -> list[tuple[int, int]]:
    row = made.cluster.row_of[name]
    count = len(made.cluster.uuids[row])
    return list(
        zip(
            made.cluster.gpu_memory_free[row, :count].tolist(),
            (made.cluster.compute_free_milli[row, :count] // 10).tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (gpu_node("n1", agent=False), "the node agent is not running"),
        (gpu_node("n1", gpus=0), "the node has no GPU that its agent could hand out"),
        (gpu_node("n1", gpus=0, agent=False), "the node has no GPU"),
        (gpu_node("n1", unit_mib=512), "its memory units are 512 MiB, the cluster's 256 MiB"),
    ],
)
def test_a_node_that_cannot_be_used_is_left_out_with_the_reason(changed, text):
    made = state()
    made.change_node(Change(ChangeKind.MODIFIED, msgspec.convert(changed, Node)))
    assert "n1" not in made.cluster.row_of
    assert text in made.refusal("n1")
    made.change_node(Change(ChangeKind.MODIFIED, node("n1")))
    assert made.refusal("n1") == ""


def test_a_node_without_or_with_a_broken_report_is_left_out():
    bare = gpu_node("n1")
    bare["metadata"]["annotations"] = {}
    broken = gpu_node("n2")
    broken["metadata"]["annotations"] = {names.INVENTORY: '{"gpus": 7}'}
    made = state(msgspec.convert(bare, Node), msgspec.convert(broken, Node))
    assert made.refusal("n1") == "the node agent has not reported the node's GPUs yet"
    assert "cannot be read" in made.refusal("n2")


def test_an_unusable_gpu_has_nothing_free_and_recovers():
    made = state()
    made.change_pod(Change(ChangeKind.ADDED, pod("p", node="n1", annotations={})))
    made.change_node(Change(ChangeKind.MODIFIED, node("n1", unusable={1: "Xid 79"})))
    assert free(made) == [(144, 70), (0, 0)]
    made.change_node(Change(ChangeKind.MODIFIED, node("n1")))
    # A pod of unknown whereabouts counts on every GPU.
    assert free(made) == [(144, 70), (144, 70)]


def test_overcommitted_compute_is_never_more_than_a_whole_gpu():
    made = state(node("n1", gpus=1, compute_percent=150))
    plan = {names.PLAN: given(uuid_of("n1", 0), 10, 40)}
    made.replace_pods([pod("p", 10, 40, node="n1", annotations=plan)])
    assert free(made) == [(150, 100)]


def test_a_gpu_reported_by_two_nodes_belongs_to_the_first_until_that_goes():
    twin = gpu_node("n2")
    twin["metadata"]["annotations"] = gpu_node("n1")["metadata"]["annotations"]
    made = state(node("n1"), msgspec.convert(twin, Node))
    assert "also reported by another node" in made.refusal("n2")
    made.change_node(Change(ChangeKind.DELETED, node("n1")))
    assert made.refusal("n2") == ""


def test_a_whole_gpu_takes_its_memory_however_it_is_written():
    made = state()
    plan = {names.PLAN: given(uuid_of("n1", 0), 0, 100)}
    made.replace_pods([pod("p", 0, 100, node="n1", annotations=plan)])
    assert free(made) == [(0, 0), (160, 100)]


def test_a_plan_for_gpus_of_another_node_counts_as_unknown_whereabouts():
    made = state(node("n1"), node("n2"))
    plan = {names.PLAN: given(uuid_of("n2", 0))}
    made.replace_pods([pod("p", 100, 60, node="n1", annotations=plan)])
    assert free(made, "n1") == [(60, 40), (60, 40)]
    assert free(made, "n2") == [(160, 100), (160, 100)]


@pytest.mark.parametrize("text", ["nonsense", '{"containers": []}'])
def test_a_plan_that_we_did_not_write_does_not_stop_anything(text):
    made = state()
    made.replace_pods([pod("p", 100, 60, node="n1", annotations={names.PLAN: text})])
    assert free(made) == [(60, 40), (60, 40)]


def test_both_are_booked_until_the_pod_runs_then_what_the_node_gave():
    made = state()
    annotations = {
        names.PLAN: given(uuid_of("n1", 0)),
        names.ACTUAL: given(uuid_of("n1", 1)),
    }
    starting = pod("p", 100, 60, node="n1", annotations=annotations)
    made.change_pod(Change(ChangeKind.ADDED, starting))
    assert free(made) == [(60, 40), (60, 40)]
    running = pod("p", 100, 60, node="n1", annotations=annotations, phase="Running")
    made.change_pod(Change(ChangeKind.MODIFIED, running))
    assert free(made) == [(160, 100), (60, 40)]
    assert made.ledger.totals[Stage.ACTUAL].pods == 1


def test_finished_and_deleted_pods_take_nothing():
    made = state()
    plan = {names.PLAN: given(uuid_of("n1", 0))}
    made.replace_pods([pod("p", 100, 60, node="n1", annotations=plan)])
    done = pod("p", 100, 60, node="n1", annotations=plan, phase="Succeeded")
    made.change_pod(Change(ChangeKind.MODIFIED, done))
    assert made.ledger.is_empty()
    assert not made.pods
    made.replace_pods([pod("q", 100, 60, node="n1", annotations=plan)])
    made.replace_pods([])
    assert made.ledger.is_empty()
    assert free(made) == [(160, 100), (160, 100)]


def test_cpu_and_memory_of_all_pods_count():
    made = state()
    plain = gpu_pod("plain", 0, 0, node="n1")
    plain["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1500m", "memory": "1Gi"}}
    made.replace_pods([msgspec.convert(plain, Pod)])
    assert made.cluster.cpu_free_milli[0] == 62500
    assert made.cluster.memory_free_mib[0] == 255 * 1024
    assert not made.pods


def test_init_containers_and_overhead_count_as_kube_scheduler_counts_them():
    def container(cpu: str, **more):
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("1"), container("500m")],
        "initContainers": [
            container("3"),
            container("250m", restartPolicy="Always"),
            container("2"),
        ],
        "overhead": {"cpu": "100m"},
    }
    assert host_demand(msgspec.convert({"spec": spec}, Pod)) == (3100, 0)


def test_annotations_and_resources_of_others_are_not_kept():
    text = json.dumps(
        {
            "metadata": {"annotations": {"big": "x" * 1000, names.GPUS: "2"}},
            "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        }
    )
    read = msgspec.json.decode(text, type=Pod)
    assert read.metadata.ours.asked() == {names.GPUS: "2"}
    assert "big" not in repr(read)
    assert read.spec.containers[0].asks_for_gpus() == {}


def test_a_change_touches_no_other_rows():
    made = state(node("n1"), node("n2"))
    before = made.cluster.version.copy()
    plan = {names.PLAN: given(uuid_of("n1", 0))}
    made.change_pod(Change(ChangeKind.ADDED, pod("p", node="n1", annotations=plan)))
    changed = np.flatnonzero(made.cluster.version != before)
    assert changed.tolist() == [made.cluster.row_of["n1"]]


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_whole_gpu_is_free_in_the_end_whatever_becomes_of_its_node(comes_back):
    plan = {names.PLAN: assignment.encode(Assignment({"main": (Slice(uuid_of("n1", 0), 0, 100),)}))}
    made = World([gpu_node("n1"), gpu_node("n2")])
    stored = made.add_pod(gpu_pod("p", 0, 100, node="n1", annotations=plan))
    for number, replica in enumerate(made.replicas):
        made.deliver(number)
        changed = Change(ChangeKind.DELETED, msgspec.convert(stored, Pod))
        replica.state.change_pod(changed)
        replica.state.change_node(Change(ChangeKind.DELETED, node("n1")))
        if comes_back:
            replica.state.change_node(Change(ChangeKind.ADDED, node("n1")))
            assert free(replica.state) == [(0, 0), (160, 100)]
        # A list that knows nothing of the pod changes nothing about it.
        replica.state.replace_pods([])
        assert not replica.state.ledger.is_empty()
    made.pass_time(3.0)
    for replica in made.replicas:
        # Both do it, whoever leads.
        replica.tender.tend()
        assert replica.state.ledger.is_empty()
        if comes_back:
            assert free(replica.state) == [(160, 100), (160, 100)]
    # Who starts only now has never heard of it.
    assert made.start().verbs.holdings.is_empty()


def test_a_pod_whose_whole_gpu_rests_can_be_followed_by_one_of_its_name():
    plan = {names.PLAN: assignment.encode(Assignment({"main": (Slice(uuid_of("n1", 0), 0, 100),)}))}
    made = World([gpu_node("n1", gpus=1)], replicas=1)
    made.add_pod(gpu_pod("p", 0, 100, node="n1", annotations=plan))
    made.delete_pod("p")
    later = gpu_pod("p", 0, 100)
    later["metadata"]["uid"] = "another"
    made.add_pod(later)
    made.deliver(0)
    assert made.schedule("p") is None
    made.pass_time(3.0)
    made.replicas[0].tender.tend()
    assert made.woken == {"p"}
    assert made.schedule("p") == "n1"
    assert made.bind("p", "n1")
