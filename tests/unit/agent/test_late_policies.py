"""A pod's policy that the agent learns only after its container was admitted."""

import errno
from pathlib import Path

import pytest

from deviceplugin.booking.journal import Journal, JournalError
from deviceplugin.container.files import ContainerFiles
from shim import limits
from shim.limits import Kind, Policy
from tests.unit.agent.agent_node import Node


def _policies(node: Node) -> tuple[Policy, Policy]:
    """What the limits of both halves of the node's only container say."""
    (held,) = node.allocator.allocations()

    def policy(path: Path | None, kind: Kind) -> Policy:
        assert path is not None
        return limits.read(path, kind).policy

    return policy(held.memory_limits, Kind.MEMORY), policy(held.compute_limits, Kind.COMPUTE)


def test_the_policy_reaches_the_limits_when_the_pod_becomes_known(node: Node) -> None:
    pod = node.pod("static", known=False, policy="best-effort", weight=7)
    node.kubelet.run(pod)
    assert _policies(node) == (Policy.FIXED, Policy.FIXED)
    node.allocator.learn(pod.view())
    assert _policies(node) == (Policy.BEST_EFFORT, Policy.BEST_EFFORT)
    (held,) = node.allocator.allocations()
    assert held.compute_limits is not None
    assert limits.read(held.compute_limits, Kind.COMPUTE).weight == 7
    node.restart_agent()
    assert _policies(node) == (Policy.BEST_EFFORT, Policy.BEST_EFFORT)


@pytest.mark.parametrize("broken", ["journal", "limits"])
def test_a_policy_that_could_not_be_written_down_is_learnt_the_next_time(
    node: Node, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def full(*_: object) -> None:
        if broken == "journal":
            raise JournalError("No space left on device")
        raise OSError(errno.ENOSPC, "No space left on device")

    pod = node.pod("static", known=False, policy="best-effort", weight=7)
    node.kubelet.run(pod)
    with monkeypatch.context() as patch:
        if broken == "journal":
            patch.setattr(Journal, "record", full)
        else:
            patch.setattr(ContainerFiles, "ensure", full)
        node.allocator.learn(pod.view())
    assert _policies(node) == (Policy.FIXED, Policy.FIXED)
    node.allocator.learn(pod.view())
    assert _policies(node) == (Policy.BEST_EFFORT, Policy.BEST_EFFORT)
