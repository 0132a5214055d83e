"""A kubelet whose list of pods fails, or is long."""

import pytest

from simcluster.kubelet import AdmissionError, Container, Kubelet, Pod
from simcluster.kubelet.books import UNIT_BYTES, assert_sound, caps_of
from tests.agentprocess import AgentProcess

UNITS = 320


def test_without_the_list_nothing_is_freed_that_may_live(kubelet: Kubelet, agent: AgentProcess):
    pods = [Pod.asking(f"tenant-{number}", memory=UNITS, compute=90) for number in range(2)]
    for pod in pods:
        kubelet.run(pod)
    kubelet.podresources.error = "not today"
    for pod in pods:
        kubelet.forget(pod)
    with pytest.raises(AdmissionError):
        kubelet.admit(Pod.asking("greedy", memory=UNITS, compute=90))
    kubelet.podresources.error = ""
    assert_sound(kubelet, *pods)


def test_an_agent_that_starts_without_the_list_knows_its_books(
    kubelet: Kubelet, agent: AgentProcess
):
    pods = [Pod.asking(f"tenant-{number}", memory=200, compute=60) for number in range(2)]
    for pod in pods:
        kubelet.run(pod)
    agent.kill()
    kubelet.podresources.error = "not today"
    agent.start_and_wait()
    for pod in pods:
        kubelet.forget(pod)
    with pytest.raises(AdmissionError):
        kubelet.admit(Pod.asking("greedy", memory=200, compute=60))
    small = Pod.asking("small", memory=100, compute=30)
    kubelet.admit(small)
    assert_sound(kubelet, *pods, small)


def test_pods_without_gpus_between_ours_confuse_nobody(kubelet: Kubelet, agent: AgentProcess):
    for number in range(5):
        kubelet.admit(Pod(f"plain-{number}", (Container("main", {}),)))
    pods = [Pod.asking(f"ours-{number}", memory=16, compute=10) for number in range(3)]
    for pod in pods:
        kubelet.run(pod)
    assert_sound(kubelet, *pods)


def test_two_containers_of_one_pod_each_have_their_own(kubelet: Kubelet, agent: AgentProcess):
    pod = Pod("a", (Container.asking(16, 10), Container.asking(32, 20, name="second")))
    options = kubelet.run(pod)
    for name, units in (("main", 16), ("second", 32)):
        assert list(caps_of(options[name]).values()) == [units * UNIT_BYTES]
    assert_sound(kubelet, pod)
