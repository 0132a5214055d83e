"""What the kubelet tells twice, late or not at all: nobody is over-booked, nobody mistaken."""

from dataclasses import replace
from pathlib import Path

import pytest

from aliquot.protocol.assignment import Slice
from aliquot.protocol.request import ContainerRequest, Role
from deviceplugin.booking.errors import Refusal
from deviceplugin.booking.sharing import MIB
from deviceplugin.booking.sources import ContainerKey, Held
from tests.unit.agent.agent_node import COMPUTE, MEMORY, Node, Pod, caps, gpu, refused, uuid


def test_an_id_that_the_kubelet_lost_and_offers_twice_is_avoided(node: Node) -> None:
    node.kubelet.random.shuffle = lambda wanted: wanted.sort(reverse=True)  # memory first
    node.kubelet.during_allocate = node.kubelet.listing  # somebody lists at the wrong moment
    first = node.pod(memory=8, compute=20)
    node.kubelet.add(first)
    assert not node.kubelet.in_use[COMPUTE] & node.kubelet.ids(first, COMPUTE)
    second = node.run(memory=8, compute=20)
    for resource in (MEMORY, COMPUTE):
        assert not node.kubelet.ids(first, resource) & node.kubelet.ids(second, resource)


def test_an_id_that_is_handed_out_twice_is_refused(node: Node) -> None:
    pod = node.run("first")
    some = node.kubelet.ids(pod, MEMORY)
    text = refused(lambda: node.allocator.allocate(MEMORY, list(some)[:2]))
    assert "default/first/main" in text
    assert "twice" in text
    assert len(node.allocator.allocations()) == 1


def test_a_gpu_that_another_plugin_has_handed_out_is_left_alone(node: Node) -> None:
    foreign = Held(ContainerKey("x", "theirs", "c"), {"nvidia.com/gpu": frozenset({uuid(0)})})
    node.allocator.reconcile(list, lambda: [foreign])
    assert {each[2:42] for each, healthy in node.allocator.devices(MEMORY) if healthy} == {uuid(1)}
    node.allocator.reconcile(list, list)
    assert all(healthy for _, healthy in node.allocator.devices(MEMORY))


def test_a_gpu_that_another_plugin_has_just_handed_out_is_avoided(node: Node) -> None:
    foreign = Held(ContainerKey("x", "theirs", "c"), {"nvidia.com/gpu": frozenset({uuid(0)})})
    listing = node.kubelet.listing
    node.kubelet.listing = lambda: [*listing(), foreign]  # type: ignore[method-assign]
    assert node.gpus_of(node.run()) == {1}


def test_a_pod_with_memory_only_waits_with_a_text(node: Node) -> None:
    pod = node.pod(memory=4, compute=0)
    node.kubelet.add(pod)
    text = refused(lambda: node.kubelet.start(pod))
    assert "aliquot.dev/gpu-compute" in text
    assert "webhook" in text


def test_a_pod_with_a_share_but_no_memory_waits_with_a_text(node: Node) -> None:
    pod = node.pod(memory=0, compute=30)
    node.kubelet.add(pod)
    assert "30 percent" in refused(lambda: node.kubelet.start(pod))


def test_a_refusal_says_what_was_asked_and_what_is_there(tmp_path) -> None:
    node = Node(tmp_path, gpu(0, 40), gpu(1, 40))
    node.run(memory=20, compute=30)
    node.run(memory=10, compute=10, plan={"main": (Slice(uuid(1), 10, 10),)})
    blind = node.pod(memory=48, compute=10, known=False)
    node.kubelet.random.shuffle = lambda wanted: wanted.sort(reverse=True)  # memory first
    node.pods.views.clear()
    with pytest.raises(Refusal) as refusal:
        node.kubelet.run(blind)
    assert str(refusal.value).startswith(
        "needs 48 units (12 GiB) on one GPU; GPU 1 has the most: 30 units (7.5 GiB)"
    )


def test_without_a_list_the_second_half_follows_the_first(node: Node) -> None:
    node.kubelet.list_fails = True
    for _ in range(6):
        pod = node.pod(memory=5, compute=30)
        node.kubelet.add(pod)
        assert len(node.gpus_of(pod)) == 1
    node.kubelet.list_fails = False
    node.reconcile()
    assert len(node.allocator.allocations()) == 6


def test_without_a_list_whole_gpus_are_no_half_that_waits_for_memory(node: Node) -> None:
    node.kubelet.add(node.pod("whole", memory=0, compute=100))
    node.kubelet.list_fails = True
    node.kubelet.random.shuffle = lambda wanted: wanted.sort(reverse=True)  # memory first
    pod = node.pod("next")
    node.kubelet.add(pod)
    assert node.gpus_of(pod) == {1}


def test_without_a_list_the_oldest_fitting_plan_is_followed(node: Node) -> None:
    node.kubelet.list_fails = True
    pod = node.pod(plan={"main": (Slice(uuid(1), 4, 20),)})
    node.kubelet.add(pod)
    assert node.gpus_of(pod) == {1}


def test_a_pod_whose_name_was_an_older_pods_is_not_taken_for_it(node: Node) -> None:
    old = node.run("web-0", memory=16, compute=100)
    other = node.run("filler", memory=16, compute=100)
    node.kubelet.end(old)
    new = node.run("web-0", memory=16, compute=100)
    assert node.gpus_of(new) != node.gpus_of(other)
    uids = {each.pod_uid for each in node.allocator.allocations()}
    assert uids == {new.uid, other.uid}


def test_a_pod_that_makes_no_sense_is_refused_with_its_own_text(node: Node) -> None:
    pod = node.pod()
    view = replace(pod.view(), request=None, refusal="aliquot.dev/gpus must be a whole number")
    node.pods.views[pod.namespace, pod.name] = view
    assert refused(lambda: node.kubelet.run(pod)) == "aliquot.dev/gpus must be a whole number"


def test_the_pod_that_has_its_other_half_is_the_one_that_is_admitted(node: Node) -> None:
    # An older pod of the same size is listed too, and nothing of it is allocated yet.
    waiting = node.pod("waiting", plan={"main": (Slice(uuid(0), 4, 20),)})
    node.kubelet.active[waiting.uid] = waiting
    half = node.pod("half", plan={"main": (Slice(uuid(1), 4, 20),)})
    node.kubelet.active[half.uid] = half
    memory = [f"m-{uuid(1)}-{number}" for number in range(4)]
    node.allocator.allocate(MEMORY, memory)
    node.kubelet.held[half.uid, "main", MEMORY] = frozenset(memory)
    for pod, created_s in ((waiting, 1.0), (half, 2.0)):
        view = replace(pod.view(), created_s=created_s)
        node.pods.views[pod.namespace, pod.name] = view
    offered = [each for each, _ in node.allocator.devices(COMPUTE)]
    chosen = node.allocator.preferred(COMPUTE, offered, [], 20, node.kubelet.listing, node.pods)
    assert {each[2:42] for each in chosen} == {uuid(1)}


def test_two_containers_that_are_asked_for_at_once_are_answered_with_different_ids(
    tmp_path,
) -> None:
    node = Node(tmp_path, gpu(0))
    pods = [node.pod(f"pod-{number}", memory=8, compute=20) for number in range(3)]
    offered = [each for each, _ in node.allocator.devices(MEMORY)]
    chosen = []
    for pod in pods[:2]:
        node.kubelet.active = {pod.uid: pod}
        chosen.append(
            node.allocator.preferred(MEMORY, offered, [], 8, node.kubelet.listing, node.pods)
        )
    assert not set(chosen[0]) & set(chosen[1])
    node.kubelet.active = {pods[2].uid: pods[2]}
    ask = (MEMORY, offered, [], 8, node.kubelet.listing, node.pods)
    assert "0 units" in refused(lambda: node.allocator.preferred(*ask))
    # An Allocate that has not come by now will not come.
    node.clock.now_s += 2
    assert len(node.allocator.preferred(*ask)) == 8


def test_a_whole_gpu_pod_that_runs_is_not_taken_for_one_that_waits_for_memory(node: Node) -> None:
    node.kubelet.run(node.pod("whole", memory=0, compute=100, known=False))
    node.kubelet.random.shuffle = lambda wanted: wanted.sort(reverse=True)  # memory first
    node.kubelet.run(pod := node.pod("next", known=False))
    assert node.gpus_of(pod) == {1}


@pytest.mark.parametrize("first", [MEMORY, COMPUTE])
def test_the_halves_of_an_unknown_pods_init_container_are_on_one_gpu(
    tmp_path: Path, first: str
) -> None:
    """The kubelet does not list it, so only we know that its other half has just been given."""
    node = Node(tmp_path, gpu(0, 100), gpu(1, 100))
    node.run(memory=95 if first == MEMORY else 50, compute=95 if first == COMPUTE else 50)
    in_order = lambda wanted: wanted.sort(key=lambda each: each[0] != first)  # noqa: E731
    node.kubelet.random.shuffle = in_order  # type: ignore[method-assign]
    # Each half alone is best placed on another GPU than the other.
    sizes = (1, 30) if first == MEMORY else (30, 1)
    pod = node.pod("p", *sizes, ContainerRequest("init", *sizes, Role.INIT), known=False)
    node.kubelet.run(pod)
    assert node.gpus_of(pod, "init") == node.gpus_of(pod) == {0}


def test_a_whole_gpu_pod_that_has_not_started_is_not_taken_for_one_that_came_later(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, gpu(0), gpu(1), gpu(2))
    node.kubelet.add(node.pod("whole", memory=0, compute=100, known=False))
    node.kubelet.random.shuffle = lambda wanted: wanted.sort()  # compute first
    # Its memory alone is best placed where more compute is left.
    node.kubelet.run(pod := node.pod("next", memory=8, compute=60, known=False))
    assert node.gpus_of(pod) == {1}


def test_a_pod_whose_other_half_nobody_asks_for_is_not_in_the_way_of_others(node: Node) -> None:
    node.kubelet.add(node.pod("memory-only", memory=2, compute=0, known=False))
    node.run("full", memory=14, compute=90)
    node.clock.now_s += 11
    node.kubelet.random.shuffle = lambda wanted: wanted.sort()  # compute first
    assert node.gpus_of(node.run("next", known=False)) == {1}


def test_memory_that_the_kubelet_still_takes_for_withdrawn_is_not_counted_on(node: Node) -> None:
    whole = node.run("whole", memory=0, compute=100)
    assert node.gpus_of(whole) == {0}
    node.kubelet.end(whole)
    node.kubelet.random.shuffle = lambda wanted: wanted.sort()  # compute first
    assert node.gpus_of(node.run(memory=4, compute=20)) == {1}


def test_memory_that_was_never_withdrawn_from_the_kubelet_is_counted_on(tmp_path: Path) -> None:
    node = Node(tmp_path, gpu(0))
    # Its memory is in our books until somebody asks for it, and so the kubelet may give it.
    node.kubelet.end(node.run("before", memory=4, compute=20))
    node.kubelet.end(node.run("whole", memory=0, compute=100))
    node.kubelet.random.shuffle = lambda wanted: wanted.sort()  # compute first
    assert node.gpus_of(node.run(memory=4, compute=20)) == {0}


def test_halves_on_different_gpus_are_never_started(node: Node) -> None:
    pod = node.pod("apart")
    node.kubelet.active[pod.uid] = pod
    for resource, some in (
        (MEMORY, [f"m-{uuid(0)}-{number}" for number in range(4)]),
        (COMPUTE, [f"c-{uuid(1)}-{number}" for number in range(20)]),
    ):
        node.allocator.allocate(resource, some)
        node.kubelet.held[pod.uid, "main", resource] = frozenset(some)
    text = refused(lambda: node.kubelet.start(pod))
    assert "GPU 0" in text
    assert "GPU 1" in text


def test_who_starts_while_the_kubelet_is_asked_for_its_list_is_not_freed_by_it(node: Node) -> None:
    pod = node.pod()

    def old_list() -> list[Held]:
        listed = node.kubelet.listing()
        node.kubelet.run(pod)
        return listed

    node.allocator.reconcile(list, old_list)
    assert [each.pod_uid for each in node.allocator.allocations()] == [pod.uid]


def test_who_made_room_while_the_kubelet_was_asked_for_its_list_is_not_booked_again_by_it(
    node: Node,
) -> None:
    old = node.run(memory=16, compute=100, gpus=1)
    node.run(memory=16, compute=100)

    def old_list() -> list[Held]:
        found = node.kubelet.listing()
        node.kubelet.end(old)
        node.run(memory=8, compute=20)
        return found

    node.allocator.reconcile(list, old_list)
    assert len(node.allocator.allocations()) == 2


def test_who_got_just_the_ids_of_a_listed_pod_meanwhile_keeps_its_own_name(tmp_path: Path) -> None:
    node = Node(tmp_path, gpu(0))
    old = node.run(memory=16, compute=80)
    had = node.kubelet.ids(old, MEMORY)
    young: list[Pod] = []

    def old_list() -> list[Held]:
        found = node.kubelet.listing()
        node.kubelet.end(old)
        young.append(node.run(memory=16, compute=80))
        return found

    node.allocator.reconcile(list, old_list)
    (held,) = node.allocator.allocations()
    assert node.kubelet.ids(young[0], MEMORY) == had
    assert (held.key, held.pod_uid) == (
        ContainerKey("default", young[0].name, "main"),
        young[0].uid,
    )


def test_a_checkpoint_older_than_the_list_gives_nobody_the_ids_of_a_pod_that_is_gone(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, gpu(0))
    old = node.run("old", memory=10, compute=50)
    before = node.kubelet.checkpoint()
    node.kubelet.end(old)
    new = node.run("new", memory=14, compute=70)
    checkpoints = iter([before, node.kubelet.checkpoint()])
    node.allocator.reconcile(lambda: next(checkpoints), node.kubelet.listing)
    assert [each.pod_uid for each in node.allocator.allocations()] == [new.uid]
    node.kubelet.start(new)
    assert caps(node, new) == ([14 * 256 * MIB], [7000])


def test_ids_that_an_init_container_passed_on_as_they_were_are_the_app_containers(
    node: Node,
) -> None:
    init = ContainerRequest("init", 4, 20, Role.INIT)
    pod = node.pod("p", 4, 20, init)
    node.kubelet.run(pod)
    assert node.kubelet.ids(pod, MEMORY) == node.kubelet.ids(pod, MEMORY, "init")
    # The checkpoint has its entries in any order.
    for _ in range(2):
        node.kubelet.held = dict(reversed(node.kubelet.held.items()))
        node.restart_agent(forget=True)
        (held,) = node.allocator.allocations()
        assert held.key == ContainerKey("default", "p", "main")
    assert node.allocator.resize(pod.view(), "main", 6, 30).changed


def test_whom_we_only_guessed_without_a_list_is_not_taken_for_gone_later(node: Node) -> None:
    # A half that nobody completes looks like the next container's partner.
    init = ContainerRequest("init", 1, 30, Role.INIT)
    stray = Pod("stray", (init, ContainerRequest("main", 1, 5)), "uid-stray")
    node.kubelet.add(stray)
    node.kubelet.list_fails = True
    blind = node.pod("blind", memory=10, compute=20, known=False)
    node.kubelet.add(blind)
    node.kubelet.list_fails = False
    node.kubelet.end(stray)
    node.clock.now_s += 2
    # Were it gone, its ids would count as free where the kubelet has them in use.
    pod = node.run("next", memory=12, compute=20)
    assert node.gpus_of(pod) != node.gpus_of(blind)
    node.kubelet.start(blind)
    held = {each.key.pod for each in node.allocator.allocations() if each.key}
    assert held >= {"blind", "next"}


@pytest.mark.parametrize("first", [MEMORY, COMPUTE])
def test_of_an_unknown_pod_the_first_half_goes_where_the_second_is_likely_to_fit(
    tmp_path: Path, first: str
) -> None:
    """The tightest GPU by one resource has next to nothing of the other."""
    node = Node(tmp_path, gpu(0, 100), gpu(1, 100))
    node.run(memory=95 if first == COMPUTE else 60, compute=60 if first == COMPUTE else 95)
    in_order = lambda wanted: wanted.sort(key=lambda each: each[0] != first)  # noqa: E731
    node.kubelet.random.shuffle = in_order  # type: ignore[method-assign]
    unknown = node.run(memory=30, compute=30, known=False)
    assert node.gpus_of(unknown) == {1}


def test_an_unknown_pod_is_packed_tightly_where_both_are_likely_to_fit(tmp_path: Path) -> None:
    node = Node(tmp_path, gpu(0, 100), gpu(1, 100))
    node.run(memory=50, compute=50)
    for _ in range(2):
        assert node.gpus_of(node.run(memory=25, compute=25, known=False)) == {0}


@pytest.mark.parametrize("units", [4, 8], ids=["more than before", "just the same"])
def test_a_checkpoint_that_is_behind_the_list_gives_nobody_what_another_had(
    node: Node, units: int
) -> None:
    """The kubelet lists a container as soon as it has its ids, and writes them down afterwards."""
    before = node.run("before", memory=units, compute=5 * units)
    outdated, had = node.kubelet.checkpoint(), node.kubelet.held.copy()
    plan = {"main": (Slice(uuid(node.gpus_of(before).pop()), 8, 40),)}
    node.kubelet.end(before)
    after = node.pod("after", memory=8, compute=40, plan=plan)
    node.kubelet.add(after)
    for resource in (MEMORY, COMPUTE):
        assert had[before.uid, "main", resource] <= node.kubelet.ids(after, resource)
    node.allocator.reconcile(lambda: outdated, node.kubelet.listing)
    (found,) = node.allocator.allocations()
    assert (found.key, found.pod_uid) == (ContainerKey("default", "after", "main"), after.uid)
    node.kubelet.start(after)
