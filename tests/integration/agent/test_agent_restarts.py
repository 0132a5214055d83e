"""Whatever restarts in whatever order: nobody's limits change, nothing is given twice."""

from collections.abc import Callable

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from simcluster.kubelet import AdmissionError, Kubelet, Pod
from simcluster.kubelet.books import UNIT_BYTES, assert_sound, caps_of, gpus_of
from tests.agentprocess import AgentProcess
from tests.patience import eventually

UNITS = 320


def fill(kubelet: Kubelet) -> list[Pod]:
    pods = [Pod.asking(f"tenant-{number}", memory=200, compute=60) for number in range(2)]
    for pod in pods:
        kubelet.run(pod)
    return pods


def check_nothing_is_free(kubelet: Kubelet) -> None:
    with pytest.raises(AdmissionError):
        kubelet.admit(Pod.asking("greedy", memory=200, compute=60))


def test_a_killed_agent_comes_back_with_its_books(kubelet: Kubelet, agent: AgentProcess):
    pods = fill(kubelet)
    agent.kill()
    agent.start_and_wait()
    check_nothing_is_free(kubelet)
    small = Pod.asking("small", memory=100, compute=40)
    kubelet.run(small)
    assert_sound(kubelet, *pods, small)
    kubelet.finish(pods[0])
    kubelet.run(Pod.asking("next", memory=200, compute=60))


def test_an_agent_that_is_told_to_end_does_so_in_order(kubelet: Kubelet, agent: AgentProcess):
    fill(kubelet)
    assert agent.terminate() == 0
    kubelet.wait_gone()
    assert not list(kubelet.plugins.glob("aliquot-*"))
    assert "Traceback" not in agent.output


def test_without_a_kubelet_the_agent_is_alive_and_not_ready(kubelet: Kubelet, agent: AgentProcess):
    """A restart of the agent would not mend it, so nobody shall restart it."""
    kubelet.stop()
    status, reason = eventually(lambda: None if (page := agent.get("/readyz"))[0] == 200 else page)
    assert (status, "kubelet" in reason) == (503, True)
    assert agent.get("/livez") == (200, "ok\n")
    kubelet.start()
    agent.wait_ready()


def test_a_restarted_container_needs_no_agent_for_its_limits(kubelet: Kubelet, agent: AgentProcess):
    pod = Pod.asking("a", memory=16, compute=30)
    options = kubelet.run(pod)["main"]
    agent.kill()
    assert caps_of(options) == dict.fromkeys(gpus_of(kubelet, pod), 16 * UNIT_BYTES)
    agent.start_and_wait()
    assert kubelet.start_in_time(pod) == options


@pytest.mark.parametrize("first", [MEMORY_RESOURCE, COMPUTE_RESOURCE])
def test_an_agent_killed_between_the_two_calls(kubelet: Kubelet, agent: AgentProcess, first: str):
    """The pod is lost, as pods are then; its half-booked ids are not."""

    def kill(resource: str, ids: set[str]) -> None:
        if resource != first:
            agent.kill()

    with kubelet.order(first), kubelet.in_flight(kill), pytest.raises(AdmissionError):
        kubelet.admit(Pod.asking("lost", memory=UNITS, compute=100))
    agent.start_and_wait()
    pods = [Pod.asking(f"next-{number}", memory=UNITS, compute=100) for number in range(2)]
    for pod in pods:
        kubelet.run(pod)
    assert_sound(kubelet, *pods)


def test_an_agent_killed_after_allocate_and_before_the_start(kubelet: Kubelet, agent: AgentProcess):
    pod = Pod.asking("a", memory=16, compute=30)
    kubelet.admit(pod)
    agent.kill()
    agent.start_and_wait()
    options = kubelet.start_in_time(pod)
    assert caps_of(options) == dict.fromkeys(gpus_of(kubelet, pod), 16 * UNIT_BYTES)


def test_a_kubelet_restart(kubelet: Kubelet, agent: AgentProcess):
    pods = fill(kubelet)
    before = {request.endpoint for request in kubelet.registrations}
    kubelet.registrations.clear()
    kubelet.restart()
    agent.wait_ready()
    assert not before & {request.endpoint for request in kubelet.registrations}
    check_nothing_is_free(kubelet)
    small = Pod.asking("small", memory=100, compute=40)
    kubelet.run(small)
    assert_sound(kubelet, *pods, small)


def test_kubelet_and_agent_restart_together(kubelet: Kubelet, agent: AgentProcess):
    pods = fill(kubelet)
    kubelet.stop()
    agent.stop()
    kubelet.start()
    agent.start_and_wait()
    check_nothing_is_free(kubelet)
    for pod in pods:
        kubelet.start_in_time(pod)


def test_a_kubelet_that_has_lost_its_checkpoint(kubelet: Kubelet, agent: AgentProcess):
    """Then the kubelet takes everything for free; what the pods of before have, it has no more."""
    fill(kubelet)
    kubelet.stop()
    kubelet.checkpoint.unlink()
    for pod in kubelet.active_pods():
        kubelet.finish(pod)
    kubelet.start()
    agent.wait_ready()
    pods = fill(kubelet)
    assert_sound(kubelet, *pods)


def test_a_node_reboot(kubelet: Kubelet, make_agent: Callable[..., AgentProcess]):
    """The checkpoint and our state are there, what was in memory is gone, containers start anew."""
    agent = make_agent().start_and_wait()
    pods = fill(kubelet)
    agent.stop()
    kubelet.stop()
    kubelet.start()
    agent.start_and_wait()
    for pod in pods:
        options = kubelet.start_in_time(pod)
        assert caps_of(options) == dict.fromkeys(gpus_of(kubelet, pod), 200 * UNIT_BYTES)
    check_nothing_is_free(kubelet)


def test_the_unit_size_changed_while_ids_are_in_use(
    kubelet: Kubelet, agent: AgentProcess, make_agent: Callable[..., AgentProcess]
):
    kubelet.run(Pod.asking("tenant", memory=16, compute=10, namespace="team"))
    assert agent.terminate() == 0
    other = make_agent(memory_unit="512Mi").start()
    assert other.wait_exit() == 1
    assert "team/tenant" in other.output
    assert "256" in other.output
    agent.start_and_wait()


def test_an_agent_that_waits_for_its_start_ends_when_it_is_told_to(
    kubelet: Kubelet, agent: AgentProcess, make_agent: Callable[..., AgentProcess]
):
    pod = Pod.asking("tenant", memory=16, compute=10)
    kubelet.run(pod)
    record = kubelet.plugins / "kubelet_internal_checkpoint"
    before = record.read_bytes()
    assert agent.terminate() == 0
    kubelet.finish(pod)
    # As of a kubelet that has the pod in its checkpoint still: the agent waits for a minute.
    record.write_bytes(before)
    other = make_agent(memory_unit="512Mi").start()
    eventually(lambda: "waits: the memory unit is set to 512 MiB" in other.output)
    assert other.terminate() == 0
    assert "registered" not in other.output
    assert "Traceback" not in other.output
