"""Whoever the kubelet does not list may still run: nothing is freed before that is certain."""

from pathlib import Path

import pytest

from deviceplugin.booking.presence import UNLISTED_S
from deviceplugin.booking.sources import ContainerKey, Held
from tests.unit.agent.agent_node import COMPUTE, MEMORY, UNIT, Node, Pod, caps, gpu


@pytest.fixture
def resized(node: Node) -> Pod:
    """A container that runs, was listed, and has more than its ids."""
    pod = node.run("resized", memory=4, compute=20)
    node.allocator.resize(pod.view(), "main", 8, 40)
    node.clock.now_s += 100
    node.reconcile()
    return pod


def nobody() -> list[Held]:
    return []


def without_ids() -> list[Held]:
    return [Held(ContainerKey("default", "resized", "main"), {})]


@pytest.mark.parametrize("listing", [nobody, without_ids])
@pytest.mark.parametrize("told", [(None, None), (None, 2), (1, None), (1, 2)])
def test_a_kubelet_that_is_starting_ends_nobody(
    node: Node, resized: Pod, told: tuple[int | None, int | None], listing
) -> None:
    for _ in range(3):
        node.clock.now_s += 2 * UNLISTED_S
        term = iter(told)
        node.allocator.reconcile(node.kubelet.checkpoint, listing, lambda term=term: next(term))
    assert caps(node, resized) == ([8 * UNIT], [4000])


def test_what_a_kubelet_listed_and_then_does_not_is_over(node: Node, resized: Pod) -> None:
    node.allocator.reconcile(node.kubelet.checkpoint, nobody, lambda: 1)
    assert not node.allocator.allocations()


def test_a_restarted_kubelet_that_cannot_ask_for_its_pods_ends_nobody(
    node: Node, resized: Pod
) -> None:
    node.allocator.kubelet_restarted()
    for away in (True, True, False):
        node.clock.now_s += 2 * UNLISTED_S
        node.allocator.reconcile(
            node.kubelet.checkpoint, nobody, lambda: 2, lambda *_, away=away: not away
        )
        assert bool(node.allocator.allocations()) == away


def test_a_pod_that_came_and_went_while_the_list_was_made_is_not_booked_again(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, gpu(0))
    successor = node.pod("successor", memory=8, compute=20)

    def late_list() -> list[Held]:
        brief = node.run("brief", memory=16, compute=100)
        found = node.kubelet.listing()
        node.kubelet.end(brief)
        node.kubelet.add(successor)
        return found

    node.allocator.reconcile(list, late_list)
    node.kubelet.start(successor)
    assert [each.pod_uid for each in node.allocator.allocations()] == [successor.uid]
    assert all(node.kubelet.ids(successor, each) for each in (MEMORY, COMPUTE))
