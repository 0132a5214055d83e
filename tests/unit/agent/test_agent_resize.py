import errno
from dataclasses import replace

import pytest

from deviceplugin.booking.errors import Unsettled
from deviceplugin.container.files import ContainerFiles
from shim import limits
from shim.limits import Kind
from tests.unit.agent.agent_node import COMPUTE, MEMORY, UNIT, Node, Pod, gpu, refused


def _caps(node: Node, pod: Pod) -> tuple[list[int], list[int]]:
    (held,) = [each for each in node.allocator.allocations() if each.pod_uid == pod.uid]
    assert held.memory_limits is not None
    assert held.compute_limits is not None
    memory = limits.read(held.memory_limits, Kind.MEMORY).devices
    compute = limits.read(held.compute_limits, Kind.COMPUTE).devices
    return [(each.limit_bytes or 0) // UNIT for each in memory], [
        each.share // 100 for each in compute
    ]


def _healthy(node: Node, resource: str) -> int:
    return sum(healthy for _, healthy in node.allocator.devices(resource))


def test_a_container_grows_by_ids_that_are_withdrawn_from_its_gpu(tmp_path) -> None:
    node = Node(tmp_path, gpu(0))
    changes: list[int] = []
    node.allocator.on_change(lambda: changes.append(1))
    pod = node.run(memory=4, compute=20)
    inode = node.allocator.allocations()[0].memory_limits.stat().st_ino
    resized = node.allocator.resize(pod.view(), "main", 10, 70)
    assert (resized.memory_units, resized.compute_percent, resized.changed) == (10, 70, True)
    assert _caps(node, pod) == ([10], [70])
    assert (_healthy(node, MEMORY), _healthy(node, COMPUTE)) == (10, 50)
    assert changes
    # A running container has that very file.
    assert node.allocator.allocations()[0].memory_limits.stat().st_ino == inode
    second = node.run(memory=6, compute=30)
    assert _caps(node, second) == ([6], [30])


def test_what_is_not_there_is_refused_with_what_is(tmp_path) -> None:
    node = Node(tmp_path, gpu(0))
    pod = node.run(memory=4, compute=20)
    node.run(memory=10, compute=70)
    text = refused(lambda: node.allocator.resize(pod.view(), "main", 8))
    assert text == (
        "cannot grow to 8 units (2 GiB) on GPU 0: it has 4 units (1 GiB), and 2 units (0.5 GiB) "
        "more are free; ask for 6 units (1.5 GiB) at most, or wait until others end"
    )
    assert "10 percent more are free" in refused(
        lambda: node.allocator.resize(pod.view(), "main", 6, 40)
    )
    # Both or nothing.
    assert _caps(node, pod) == ([4], [20])
    assert node.allocator.resize(pod.view(), "main", 6, 30).changed


def test_shrinking_gives_back_what_growing_took(tmp_path) -> None:
    node = Node(tmp_path, gpu(0))
    pod = node.run(memory=4, compute=20)
    node.allocator.resize(pod.view(), "main", 12, 60)
    node.allocator.resize(pod.view(), "main", 5, 20)
    assert _caps(node, pod) == ([5], [20])
    assert (_healthy(node, MEMORY), _healthy(node, COMPUTE)) == (15, 100)
    # Below what the kubelet gave, the cap falls and the ids stay the container's.
    node.allocator.resize(pod.view(), "main", 2, 5)
    assert _caps(node, pod) == ([2], [5])
    assert (_healthy(node, MEMORY), _healthy(node, COMPUTE)) == (16, 100)
    node.allocator.resize(pod.view(), "main", 4, 20)
    assert _caps(node, pod) == ([4], [20])
    assert not node.allocator.resize(pod.view(), "main", 4, 20).changed


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("size", [(9, 55), (2, 5)])
def test_a_resize_outlives_agent_and_container(
    node: Node, forget: bool, size: tuple[int, int]
) -> None:
    pod = node.run(memory=4, compute=20)
    node.allocator.resize(pod.view(), "main", *size)
    healthy = _healthy(node, MEMORY), _healthy(node, COMPUTE)
    node.restart_agent(forget=forget)
    assert _caps(node, pod) == ([size[0]], [size[1]])
    assert (_healthy(node, MEMORY), _healthy(node, COMPUTE)) == healthy
    node.kubelet.start(pod)
    assert _caps(node, pod) == ([size[0]], [size[1]])


def test_an_ended_pod_gives_everything_back(node: Node) -> None:
    pod = node.run(memory=4, compute=20)
    node.allocator.resize(pod.view(), "main", 16, 100)
    node.kubelet.end(pod)
    # Its extra ids are still withdrawn, so this one goes to the other GPU.
    node.run(memory=16, compute=100)
    node.reconcile()
    assert (_healthy(node, MEMORY), _healthy(node, COMPUTE)) == (32, 200)
    node.run(memory=16, compute=100)


def test_several_gpus_grow_evenly(node: Node) -> None:
    pod = node.run(memory=8, compute=40, gpus=2)
    assert node.allocator.resize(pod.view(), "main", 12, 60).changed
    assert _caps(node, pod) == ([6, 6], [30, 30])
    assert "multiple of 2" in refused(lambda: node.allocator.resize(pod.view(), "main", 13))


def test_only_one_of_both_may_change(node: Node) -> None:
    pod = node.run(memory=4, compute=20)
    node.allocator.resize(pod.view(), "main", compute_percent=50)
    assert _caps(node, pod) == ([4], [50])
    node.allocator.resize(pod.view(), "main", memory_units=8)
    assert _caps(node, pod) == ([8], [50])


@pytest.mark.parametrize(("units", "percent"), [(0, 20), (-3, 20), (4, 0), (4, 101), (4, 1 << 70)])
def test_senseless_sizes_are_refused(node: Node, units: int, percent: int) -> None:
    pod = node.run(memory=4, compute=20)
    assert refused(lambda: node.allocator.resize(pod.view(), "main", units, percent))
    assert _caps(node, pod) == ([4], [20])


def test_who_is_not_here_or_has_whole_gpus_is_told_so(node: Node) -> None:
    pod = node.run(memory=0, compute=100)
    assert "whole GPUs" in refused(lambda: node.allocator.resize(pod.view(), "main", 4, 20))
    nobody = replace(pod.view(), uid="nobody")
    assert "has no share" in refused(lambda: node.allocator.resize(nobody, "main", 4, 20))


def test_nothing_is_decided_before_the_books_are_compared_with_the_kubelets(tmp_path) -> None:
    """By an older journal, which misses a container, there would be room."""
    node = Node(tmp_path, gpu(0))
    pod = node.run(memory=4, compute=20)
    old = (tmp_path / "state/journal").read_bytes()
    node.run(memory=8, compute=20)
    (tmp_path / "state/journal").write_bytes(old)
    before = node.reconcile
    told: list[object] = []

    def ask_first() -> None:
        with pytest.raises(Unsettled):
            node.allocator.resize(pod.view(), "main", 12)
        told.append(node.allocator.actual_of(pod.view()))
        before()

    node.reconcile = ask_first  # type: ignore[method-assign]
    node.restart_agent()
    assert told == [None]
    assert "8 units (2 GiB) at most" in refused(
        lambda: node.allocator.resize(pod.view(), "main", 12)
    )


def test_nothing_is_decided_before_the_kubelet_has_given_a_list(tmp_path) -> None:
    node = Node(tmp_path, gpu(0))
    pod = node.run(memory=4, compute=20)
    node.kubelet.list_fails = True
    node.restart_agent()
    with pytest.raises(Unsettled):
        node.allocator.resize(pod.view(), "main", 12)
    node.kubelet.list_fails = False
    node.reconcile()
    assert node.allocator.resize(pod.view(), "main", 12).changed


def test_a_pod_that_says_to_be_another_one_gets_nothing_of_it(tmp_path) -> None:
    """Where the API server shows a uid that somebody has written, the kubelet's names decide."""
    node = Node(tmp_path, gpu(0))
    victim = node.run(memory=4, compute=20)
    thief = replace(victim.view(), name="thief")
    assert "has no share" in refused(lambda: node.allocator.resize(thief, "main", 1, 1))
    assert _caps(node, victim) == ([4], [20])
    assert node.allocator.actual_of(thief) is None
    assert node.allocator.actual_of(victim.view()) is not None


def test_an_id_that_was_promised_a_moment_ago_is_not_taken(tmp_path) -> None:
    node = Node(tmp_path, gpu(0))
    pod = node.run(memory=4, compute=20)
    waiting = node.pod(memory=12, compute=20)
    node.kubelet.active[waiting.uid] = waiting
    available = {each for each, _ in node.allocator.devices(MEMORY)}
    offered = available - node.kubelet.ids(pod, MEMORY)
    chosen = node.allocator.preferred(MEMORY, offered, [], 12, node.kubelet.listing, node.pods)
    assert "0 units" in refused(lambda: node.allocator.resize(pod.view(), "main", 5))
    node.allocator.allocate(MEMORY, chosen)
    assert "0 units" in refused(lambda: node.allocator.resize(pod.view(), "main", 5))


def test_an_id_that_a_resize_has_taken_is_neither_chosen_nor_accepted(tmp_path) -> None:
    node = Node(tmp_path, gpu(0))
    pod = node.run("grower", memory=4, compute=20)
    before = node.allocator.devices(MEMORY)
    node.allocator.resize(pod.view(), "main", 10)
    taken = {each for each, healthy in node.allocator.devices(MEMORY) if not healthy}
    # The kubelet may not have heard of it yet.
    offered = {each for each, _ in before} - node.kubelet.ids(pod, MEMORY)
    new = node.pod(memory=6, compute=10)
    node.kubelet.active[new.uid] = new
    chosen = node.allocator.preferred(MEMORY, offered, [], 6, node.kubelet.listing, node.pods)
    assert not taken & set(chosen)
    assert "default/grower/main" in refused(lambda: node.allocator.allocate(MEMORY, taken))


def test_a_growth_whose_limits_cannot_be_written_is_done_when_it_is_asked_for_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = node.run(memory=4, compute=20)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "limits")

    with monkeypatch.context() as patch:
        patch.setattr(ContainerFiles, "ensure", full)
        text = refused(lambda: node.allocator.resize(pod.view(), "main", 6, 30))
    assert "limits: No space left on device" in text
    assert "again" in text
    node.allocator.resize(pod.view(), "main", 6, 30)
    assert _caps(node, pod) == ([6], [30])


def test_what_a_container_had_before_it_shrank_is_known_until_it_starts_anew(node: Node) -> None:
    """A watch that has not seen its cap fall must not take what it still holds for a breach."""
    pod = node.run(memory=4, compute=20)

    def fell_from() -> int:
        (container,) = node.allocator.allocations()
        return container.fell_from_bytes

    assert fell_from() == 0
    for units in (9, 3, 2):
        node.allocator.resize(pod.view(), "main", units)
    assert fell_from() == 9 * UNIT
    node.restart_agent()
    assert fell_from() == 9 * UNIT
    node.kubelet.start(pod)
    assert fell_from() == 0
    node.allocator.resize(pod.view(), "main", 1)
    assert fell_from() == 2 * UNIT
    node.allocator.resize(pod.view(), "main", 9)
    assert fell_from() == 0
