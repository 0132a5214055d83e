"""A kubelet whose list of pods is slow, fails, or lies about the past."""

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from simcluster.kubelet import AdmissionError, Container, Kubelet, Pod, StartError
from simcluster.kubelet.books import UNIT_BYTES, assert_sound, caps_of, gpus_of
from tests.agentprocess import AgentProcess

UNITS = 320
ATTEMPTS = 10


def tempt(kubelet: Kubelet) -> None:
    """Fills the GPUs so that memory alone would go to one of them and compute to the other."""
    for name, memory, compute in (("much-memory", 300, 10), ("much-compute", 100, 80)):
        with kubelet.order(MEMORY_RESOURCE):
            kubelet.run(Pod.asking(name, memory=memory, compute=compute))


def admit_untorn(kubelet: Kubelet, first: str) -> Pod:
    """Without the list, halves find each other for a second only: on a busy machine one of several
    pods has to do. By chance none of them would be untorn."""
    for attempt in range(ATTEMPTS):
        pod = Pod.asking(f"{first[-3:]}-{attempt}", memory=16, compute=10)
        with kubelet.order(first):
            kubelet.admit(pod)
        memory, compute = (
            {each.split("-", 1)[1].rpartition("-")[0] for each in ids}
            for _, ids in sorted(kubelet.ids_of(pod).items(), reverse=True)
        )
        if memory == compute:
            return pod
        kubelet.finish(pod)
    raise AssertionError(f"all of {ATTEMPTS} pods are torn between two GPUs")


@pytest.mark.parametrize("first", [MEMORY_RESOURCE, COMPUTE_RESOURCE])
def test_without_the_list_both_halves_still_find_each_other(
    kubelet: Kubelet, agent: AgentProcess, first: str
):
    """Nobody can say then which pod it is, so the start waits; the ids are right nevertheless."""
    tempt(kubelet)
    kubelet.podresources.error = "not today"
    pod = admit_untorn(kubelet, first)
    with pytest.raises(StartError, match="do not tell yet whose these ids are"):
        kubelet.start_container(pod)
    kubelet.podresources.error = ""
    caps = caps_of(kubelet.start_in_time(pod))
    assert caps == dict.fromkeys(gpus_of(kubelet, pod), 16 * UNIT_BYTES)


def test_a_slow_list_delays_a_pod_and_does_not_lose_it(kubelet: Kubelet, agent: AgentProcess):
    tempt(kubelet)
    kubelet.podresources.delay_s = 2.0
    pod = admit_untorn(kubelet, MEMORY_RESOURCE)
    kubelet.podresources.delay_s = 0.0
    kubelet.start_in_time(pod)
    assert_sound(kubelet, pod)


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
