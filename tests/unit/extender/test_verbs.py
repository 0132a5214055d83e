"""Decisions about single pods, without HTTP."""

import msgspec
import pytest

from aliquot.protocol import names
from scheduler_ext.holdings import RefusedError
from scheduler_ext.objects import Pod
from scheduler_ext.verbs import BEST_SCORE
from tests.extender_cluster import gpu_node, gpu_pod, uuid_of
from tests.extender_world import World


def world(*nodes, **more) -> World:
    return World(list(nodes) or [gpu_node("n1")], replicas=1, **more)


def add(made: World, name: str, *arguments, **more) -> Pod:
    stored = made.add_pod(gpu_pod(name, *arguments, **more))
    made.deliver(0)
    return msgspec.convert(stored, Pod)


def test_two_hundred_first_choices_are_the_ones_that_placement_makes():
    made = world(*(gpu_node(f"n{number}", gpus=4, linked=True) for number in range(12)))
    verbs = made.replicas[0].verbs
    nodes = sorted(made.nodes)
    for number in range(200):
        memory, compute = made.random.choice([(16, 10), (8, 20), (24, 5)])
        pod = add(made, f"p{number}", memory, compute)
        passed = verbs.filter(pod, nodes).passed
        if not passed:
            continue
        record = verbs.known(pod.metadata.uid, "default", f"p{number}")
        state = verbs.state
        cost = {
            name: verbs.choices.scores(record.demand).order()[state.cluster.row_of[name]]
            for name in passed
        }
        scores = dict(zip(passed, verbs.prioritize(pod, passed), strict=True))
        first = [name for name, score in scores.items() if score == BEST_SCORE]
        assert len(first) == 1
        assert cost[first[0]] == min(cost.values())
        assert made.bind(f"p{number}", first[0])
        made.deliver(0)


def test_a_choice_that_nobody_comes_for_is_taken_back():
    made = world(gpu_node("n1", gpus=1))
    verbs = made.replicas[0].verbs
    assert made.schedule(add(made, "p", 100, 60).metadata.name) == "n1"
    assert made.schedule(add(made, "q", 100, 60).metadata.name) is None
    made.pass_time(20.0)
    verbs.expire()
    assert made.schedule("q") == "n1"
    # The first one's late bind call finds that it is too late.
    assert not made.bind("p", "n1")
    assert made.bind("q", "n1")


def test_kube_scheduler_may_choose_another_node_than_ours():
    made = world(gpu_node("n1", gpus=1), gpu_node("n2", gpus=1))
    pod = add(made, "p", 100, 60)
    verbs = made.replicas[0].verbs
    passed = verbs.filter(pod, ["n1", "n2"]).passed
    scores = verbs.prioritize(pod, passed)
    other = passed[1 - scores.index(BEST_SCORE)]
    assert made.bind("p", other)
    taken = {share.uuid for share in verbs.state.ledger.entry(pod.metadata.uid).footprint}
    assert taken == {uuid_of(other, 0)}
    first = passed[scores.index(BEST_SCORE)]
    assert verbs.state.ledger.taken_of(uuid_of(first, 0)).memory_units == 0


def test_a_pod_that_is_being_bound_is_left_alone():
    made = world()
    verbs = made.replicas[0].verbs
    pod = add(made, "p")
    record = verbs.known(pod.metadata.uid, "default", "p")
    verbs.choose(record, "n1")
    with pytest.raises(RefusedError, match="is being bound at this moment"):
        verbs.filter(pod, ["n1"])
    with pytest.raises(RefusedError, match="is being bound at this moment"):
        verbs.choose(record, "n1")
    verbs.holdings.settle(pod.metadata.uid)
    with pytest.raises(RefusedError, match="is bound already"):
        verbs.filter(pod, ["n1"])


def test_pods_name_their_placement():
    made = world(gpu_node("n1"), gpu_node("n2"))
    for number, (placement, expected) in enumerate(
        [("pack", None), ("pack", "same"), ("spread", "other")]
    ):
        pod = add(made, f"p{number}", 16, 10, annotations={names.PLACEMENT: placement})
        chosen = made.replicas[0].verbs.prioritize(pod, ["n1", "n2"])
        node = ["n1", "n2"][chosen.index(BEST_SCORE)]
        assert made.bind(f"p{number}", node)
        made.deliver(0)
        if number == 0:
            first = node
        else:
            assert (node == first) == (expected == "same")


def test_several_gpus_are_the_best_connected_ones():
    made = world(gpu_node("n1", gpus=4, linked=True))
    single = add(made, "single", 100, 60, annotations={names.GPU_UUID: uuid_of("n1", 0)})
    assert made.schedule(single.metadata.name) == "n1"
    assert made.bind("single", "n1")
    made.deliver(0)
    add(made, "pair", 200, 150, annotations={names.GPUS: "2"})
    assert made.schedule("pair") == "n1"
    assert made.bind("pair", "n1")
    plan, _ = made.assignments(made.pods["pair"])
    # 1, 2 and 3 have room, and of those only 2 and 3 are connected directly.
    assert {each.uuid for each in plan.containers["main"]} == {uuid_of("n1", 2), uuid_of("n1", 3)}


def test_a_waiting_pod_is_woken_only_when_it_would_fit():
    made = world(gpu_node("n1", gpus=1))
    tender = made.replicas[0].tender
    add(made, "p", 100, 60)
    assert made.schedule("p") == "n1"
    assert made.bind("p", "n1")
    for name, priority in (("plain", 0), ("urgent", 9)):
        add(made, name, 100, 60, priority=priority)
        assert made.schedule(name) is None
    tender.tend()
    assert not made.woken
    made.delete_pod("p")
    made.deliver(0)
    tender.tend()
    assert made.woken == {"urgent"}
    # It has not come yet; it is reminded, but not all the time.
    made.woken.clear()
    made.pass_time(2.0)
    tender.tend()
    assert not made.woken
    made.pass_time(4.0)
    tender.tend()
    assert made.woken == {"urgent"}


def test_a_member_whose_groups_room_was_given_back_does_not_start_alone():
    made = world(gpu_node("n1"))
    verbs = made.replicas[0].verbs
    group = {names.GROUP: "g", names.GROUP_SIZE: "2"}
    for number in range(2):
        add(made, f"m{number}", 90, 60, annotations=dict(group))
    assert made.schedule("m0") == "n1"
    assert verbs.state.ledger.totals["assumed"].pods == 2
    made.pass_time(100.0)
    assert not made.bind("m0", "n1")
    assert not made.pods["m0"]["spec"].get("nodeName")
    verbs.expire()
    assert verbs.state.ledger.is_empty()


def test_a_member_beyond_its_groups_size_starts_alone():
    made = world(gpu_node("n1"), gpu_node("n2"))
    group = {names.GROUP: "g", names.GROUP_SIZE: "2"}
    for number in range(2):
        stored = gpu_pod(f"m{number}", 30, 20, node="n1", annotations=dict(group))
        made.add_pod(stored)
    made.deliver(0)
    add(made, "m2", 30, 20, annotations=dict(group))
    chosen = made.schedule("m2")
    assert chosen
    assert made.bind("m2", chosen)


def test_a_pod_that_kube_scheduler_knew_before_us_is_woken_all_the_same():
    made = world(gpu_node("n1", gpus=1))
    tender = made.replicas[0].tender
    add(made, "p", 100, 60)
    assert made.schedule("p") == "n1"
    assert made.bind("p", "n1")
    made.deliver(0)
    made.add_pod(gpu_pod("early", 100, 60))
    assert made.schedule("early") is None
    tender.tend()
    made.delete_pod("p")
    made.deliver(0)
    tender.tend()
    assert made.woken == {"early"}


@pytest.mark.parametrize("member", [False, True], ids=["alone", "of a group"])
def test_a_pod_is_not_woken_for_room_on_nodes_that_kube_scheduler_does_not_offer(member):
    """Another pool's, by a selector or a taint: it would be rejected again, every few seconds."""
    made = world(gpu_node("pool", gpus=1), gpu_node("other", gpus=1))
    replica = made.replicas[0]
    add(made, "p", 160, 60)
    assert replica.binder.bind("default", "p", "uid-default-p", "pool") is None
    group = {names.GROUP: "g", names.GROUP_SIZE: "2"} if member else {}
    asked = add(made, "waits", 60, 40, annotations=dict(group))
    if member:
        add(made, "beside", 60, 40, annotations=dict(group))
    assert not replica.verbs.filter(asked, ["pool"]).passed
    for _ in range(5):
        made.pass_time(6.0)
        replica.tender.tend()
    assert not made.woken
    made.delete_pod("p")
    made.deliver(0)
    replica.tender.tend()
    assert made.woken == {"waits"}


def test_a_pod_is_woken_for_a_node_that_was_not_there_when_it_was_tried():
    made = world(gpu_node("pool", gpus=1), gpu_node("other", gpus=1))
    replica = made.replicas[0]
    asked = add(made, "waits", 200, 40, annotations={names.GPUS: "2"})
    assert not replica.verbs.filter(asked, ["pool"]).passed
    replica.tender.tend()
    made.change_node(gpu_node("new", gpus=2))
    made.deliver(0)
    replica.tender.tend()
    assert made.woken == {"waits"}


@pytest.mark.parametrize("led_before", [False, True])
def test_a_new_leader_wakes_whom_the_one_before_rejected(led_before):
    made = World([gpu_node("n1", gpus=1)])
    add(made, "waits", 100, 60)
    if led_before:
        made.leader = 1
        assert made.schedule("waits") == "n1"
        made.pass_time(100.0)
        made.replicas[1].tender.tend()
        made.leader = 0
        made.replicas[1].tender.tend()
    add(made, "p", 100, 60)
    assert made.schedule("p") == "n1"
    assert made.bind("p", "n1")
    made.deliver(0)
    assert made.schedule("waits") is None
    made.woken.clear()
    made.leader = 1
    made.deliver(1)
    tender = made.replicas[1].tender
    tender.tend()
    made.pass_time(6.0)
    tender.tend()
    assert not made.woken
    made.delete_pod("p")
    made.deliver(1)
    tender.tend()
    assert made.woken == {"waits"}
    # It may be behind a gate, or another scheduler's: it is called once.
    made.woken.clear()
    for _ in range(3):
        made.pass_time(10.0)
        tender.tend()
    assert not made.woken
