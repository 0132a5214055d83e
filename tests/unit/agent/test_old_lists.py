"""The kubelet's list is old when the agent has it: what has happened since counts."""

from pathlib import Path

import pytest

from deviceplugin.booking.presence import UNRECORDED_S
from deviceplugin.booking.sources import Held
from tests.unit.agent.agent_node import COMPUTE, MEMORY, UNIT, Node, caps, gpu


@pytest.mark.parametrize("is_listed", [False, True])
def test_who_starts_with_just_the_ids_of_one_that_ended_is_neither_freed_nor_taken_for_it(
    tmp_path: Path, is_listed: bool
) -> None:
    node = Node(tmp_path, gpu(0))
    old = node.run("old", memory=8, compute=40)
    had = node.kubelet.ids(old, MEMORY), node.kubelet.ids(old, COMPUTE)
    new = node.pod("new", memory=8, compute=40)
    if not is_listed:
        node.kubelet.end(old)

    def after() -> None:
        if is_listed:
            node.kubelet.end(old)
        node.kubelet.run(new)

    node.reconcile(after=after)
    assert (node.kubelet.ids(new, MEMORY), node.kubelet.ids(new, COMPUTE)) == had
    (held,) = node.allocator.allocations()
    assert (held.key.pod if held.key else "", held.pod_uid) == ("new", new.uid)
    # Were they free by our books, somebody else could grow into them.
    assert caps(node, new) == ([8 * UNIT], [4000])
    node.restart_agent()
    assert [each.pod_uid for each in node.allocator.allocations()] == [new.uid]


def test_whose_second_half_was_in_the_list_as_anothers_keeps_its_first(tmp_path: Path) -> None:
    """The checkpoint that is read afterwards has both, and the list has told whose one of them is:
    of the pod that has ended since."""
    node = Node(tmp_path, gpu(0))
    old = node.run("old", memory=15, compute=40)
    had = node.kubelet.ids(old, MEMORY)
    new = node.pod("new", memory=15, compute=60, known=False)
    node.kubelet.random.shuffle = lambda wanted: wanted.sort()  # compute first
    admission = node.kubelet.admit(new)
    next(admission)

    def after() -> None:
        node.kubelet.end(old)
        for _ in admission:
            pass

    node.reconcile(after=after)
    assert node.kubelet.ids(new, MEMORY) == had
    held = [each for each in node.allocator.allocations() if each.key and each.key.pod == "new"]
    assert [(each.memory_units, each.compute_percent) for each in held] == [(15, 60)]


def test_what_the_kubelet_has_not_written_down_yet_is_not_freed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet that was restarted just after it was answered; it has listed nobody since."""
    pod = node.pod(known=False)
    node.kubelet.add(pod)
    node.allocator.kubelet_restarted()
    monkeypatch.setattr(node.kubelet, "checkpoint", list)
    monkeypatch.setattr(node.kubelet, "listing", list[Held])
    node.clock.now_s += UNRECORDED_S - 1
    node.reconcile()
    assert node.files.names()
    node.clock.now_s += 2
    node.reconcile()
    assert not node.files.names()


def test_what_only_the_checkpoint_knows_keeps_its_files(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is lost and a kubelet that has just started lists nobody yet: the files are all
    that still says how large a running container is."""
    pod = node.run(memory=4, compute=20)
    node.allocator.resize(pod.view(), "main", 8, 40)
    with monkeypatch.context() as patch:
        patch.setattr(node.kubelet, "listing", list[Held])
        node.restart_agent(forget=True)
        assert node.allocator.allocations() == ()
    node.reconcile()
    (held,) = node.allocator.allocations()
    assert (held.memory_units, held.compute_percent) == (8, 40)
    assert caps(node, pod) == ([8 * UNIT], [4000])
