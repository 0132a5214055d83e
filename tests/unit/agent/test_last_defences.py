"""What the kubelet never does, or only after a loss: still nobody gets what somebody else has."""

from pathlib import Path

import pytest

from aliquot.protocol.request import ContainerRequest, Role
from deviceplugin.gpus.hardware import Hardware
from tests.unit.agent.agent_node import COMPUTE, MEMORY, UNIT, Node, Pod, caps, gpu, refused, uuid


def _with_init_container(node: Node) -> Pod:
    """Its init container has two units that its app container did not take over."""
    pod = node.pod("p", 4, 20, ContainerRequest("init", 6, 20, Role.INIT))
    node.kubelet.run(pod)
    return pod


def test_whose_ids_went_to_another_with_the_journal_waits_until_they_are_back(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, gpu(0))
    loser = node.run("loser", memory=8, compute=40)
    # With the journal lost and no list, nobody is known until it starts again.
    node.kubelet.list_fails = True
    node.restart_agent(forget=True)
    node.kubelet.list_fails = False
    taker = node.pod("taker", memory=4, compute=1)
    node.kubelet.active[taker.uid] = taker
    twice = sorted(node.kubelet.ids(loser, MEMORY))[:4]
    for resource, some in ((MEMORY, twice), (COMPUTE, [f"c-{uuid(0)}-99"])):
        node.allocator.allocate(resource, some)
        node.kubelet.held[taker.uid, "main", resource] = frozenset(some)
    node.kubelet.start(taker)
    assert "is held by default/taker/main" in refused(lambda: node.kubelet.start(loser))
    node.kubelet.end(taker)
    node.kubelet.start(loser)
    assert caps(node, loser) == ([8 * UNIT], [4000])


def test_whole_gpus_are_not_started_beside_who_is_on_them(tmp_path: Path) -> None:
    node = Node(tmp_path, gpu(0))
    half = node.pod("half", memory=2, compute=0)
    node.kubelet.add(half)
    # Nobody knows that it wants no memory, and so a GPU whose memory is in use will do.
    whole = node.pod("whole", memory=0, compute=100, known=False)
    node.kubelet.add(whole)
    assert refused(lambda: node.kubelet.start(whole)) == (
        "asked for whole GPUs, and default/half/main is still on GPU 0; it starts when that "
        "has ended"
    )
    node.kubelet.end(half)
    node.kubelet.start(whole)
    assert caps(node, whole)[0] == [None]


def test_an_id_that_an_init_container_has_by_a_resize_is_nobody_elses(node: Node) -> None:
    pod = _with_init_container(node)
    before = {each for each, healthy in node.allocator.devices(MEMORY) if healthy}
    node.allocator.resize(pod.view(), "init", 10)
    taken = before - {each for each, healthy in node.allocator.devices(MEMORY) if healthy}
    assert len(taken) == 4
    held = node.allocator.allocations()
    # Those that the kubelet gave it itself, it may give to the pod's next container unasked.
    text = refused(lambda: node.allocator.allocate(MEMORY, taken))
    assert "is held by default/p/init; the kubelet has handed it out twice" in text
    assert node.allocator.allocations() == held


def test_ids_of_an_init_container_are_not_mixed_with_others_that_nobody_asked_about(
    node: Node,
) -> None:
    pod = _with_init_container(node)
    left = node.kubelet.ids(pod, MEMORY, "init") - node.kubelet.ids(pod, MEMORY)
    free = [f"m-{uuid(0)}-{number}" for number in (14, 15)]
    held = node.allocator.allocations()
    text = refused(lambda: node.allocator.allocate(MEMORY, [*left, *free]))
    assert text == "2 of 4 ids are held by default/p/init; create the pod anew"
    assert node.allocator.allocations() == held


def test_what_an_init_container_that_has_ended_had_goes_to_its_pods_successor(
    tmp_path: Path,
) -> None:
    """The list never has an init container; a successor of the same name stands in it already."""
    node = Node(tmp_path, gpu(0))

    def pod() -> Pod:
        return node.pod("web-0", 0, 0, ContainerRequest("init", 16, 100, Role.INIT))

    old = pod()
    node.kubelet.run(old)
    node.kubelet.end(old)
    node.kubelet.run(new := pod())
    assert caps(node, new, "init") == ([16 * (256 << 20)], [10_000])


def test_a_gpu_that_fails_between_the_choice_and_the_allocation_is_not_given(node: Node) -> None:
    broken = Hardware((gpu(0, unusable="Xid 79"), gpu(1)))
    node.kubelet.during_allocate = lambda: node.allocator.update_hardware(broken)
    pod = node.pod()
    assert refused(lambda: node.kubelet.add(pod)) == (
        "GPU 0 is unusable: Xid 79; it was handed out a moment too late"
    )
    assert node.allocator.allocations() == ()
    node.kubelet.during_allocate = lambda: None
    assert node.gpus_of(node.run()) == {1}


@pytest.mark.parametrize("resource", [MEMORY, COMPUTE])
def test_parts_of_several_gpus_that_nobody_planned_are_refused(node: Node, resource: str) -> None:
    some = [f"{'m' if resource == MEMORY else 'c'}-{uuid(number)}-0" for number in range(2)]
    text = refused(lambda: node.allocator.allocate(resource, some))
    assert f"2 ids of {resource} on 2 GPUs that nobody planned" in text
    assert node.allocator.allocations() == ()


@pytest.mark.parametrize(
    ("first", "init"),
    [
        ((MEMORY, COMPUTE), [(4, 60)]),
        ((COMPUTE, MEMORY), [(10, 10)]),
        ((MEMORY, COMPUTE), [(2, 10), (10, 10)]),
        ((COMPUTE, MEMORY), [(2, 10), (2, 60)]),
    ],
)
def test_a_gpu_too_small_for_one_of_a_pods_init_containers_is_passed_over(
    node: Node, first: tuple[str, str], init: list[tuple[int, int]]
) -> None:
    """All of them have to share it, and the fullest one that will do is taken else."""
    node.run("busy", memory=10, compute=60)
    node.kubelet.random.shuffle = lambda wanted: wanted.sort(key=lambda each: first.index(each[0]))  # type: ignore[method-assign]
    more = [
        ContainerRequest(f"init-{number}", *sizes, Role.INIT) for number, sizes in enumerate(init)
    ]
    node.kubelet.run(pod := node.pod("p", 4, 20, *more))
    assert node.gpus_of(pod) == {1}
    assert caps(node, pod, more[-1].name)[1] == [init[-1][1] * 100]


@pytest.mark.parametrize("resource", [MEMORY, COMPUTE])
def test_one_id_does_not_count_for_two(node: Node, resource: str) -> None:
    """Its limits would be of less than the kubelet thinks that it has given."""
    first, second = [each for each, _ in node.allocator.devices(resource)][:2]
    text = refused(lambda: node.allocator.allocate(resource, [first, second, first]))
    assert text == f"3 ids of {resource} of which only 2 are different"
    assert node.allocator.allocations() == ()
