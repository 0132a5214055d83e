"""How the two resources of one container find each other, whatever the kubelet's list is like."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from simcluster.kubelet import AdmissionError, Kubelet, Pod, StartError
from simcluster.kubelet.books import UNIT_BYTES, assert_sound, caps_of, gpus_of
from tests.integration.agent.kubelet_side import UNITS, KubeletSide, kubelet_side

BOTH_ORDERS = pytest.mark.parametrize("first", [MEMORY_RESOURCE, COMPUTE_RESOURCE])


@pytest.fixture
def side(kubelet: Kubelet, short_path: Path) -> Iterator[KubeletSide]:
    with kubelet_side(kubelet, short_path) as side:
        yield side


def tempt(kubelet: Kubelet) -> None:
    """Fills the GPUs so that memory alone would go to one of them and compute to the other."""
    for name, memory, compute in (("much-memory", 300, 10), ("much-compute", 100, 80)):
        with kubelet.order(MEMORY_RESOURCE):
            kubelet.run(Pod.asking(name, memory=memory, compute=compute))


@BOTH_ORDERS
@pytest.mark.usefixtures("side")
def test_without_the_list_both_halves_still_find_each_other(kubelet: Kubelet, first: str):
    """Nobody can say then which pod it is, so the start waits; the ids are right nevertheless."""
    tempt(kubelet)
    kubelet.podresources.error = "not today"
    pod = Pod.asking("a", memory=16, compute=10)
    with kubelet.order(first):
        kubelet.admit(pod)
    gpus = gpus_of(kubelet, pod)
    with pytest.raises(StartError, match="do not tell yet whose these ids are"):
        kubelet.start_container(pod)
    kubelet.podresources.error = ""
    assert caps_of(kubelet.start_in_time(pod)) == dict.fromkeys(gpus, 16 * UNIT_BYTES)


def test_a_slow_list_delays_a_pod_and_does_not_lose_it(kubelet: Kubelet, side: KubeletSide):
    tempt(kubelet)
    side.list_timeout_s, kubelet.podresources.delay_s = 0.1, 1.0
    pod = Pod.asking("a", memory=16, compute=10)
    with kubelet.order(MEMORY_RESOURCE):
        kubelet.admit(pod)
    kubelet.podresources.delay_s = 0.0
    kubelet.start_in_time(pod)
    assert_sound(kubelet, pod)


def test_without_the_list_a_half_that_nobody_completes_is_forgotten(
    kubelet: Kubelet, side: KubeletSide
):
    """Else the next pod would be forced onto the GPU of one that is gone."""
    tempt(kubelet)
    kubelet.podresources.error = "not today"
    with kubelet.order(MEMORY_RESOURCE), pytest.raises(AdmissionError):
        kubelet.admit(Pod.asking("half", memory=16, compute=201))
    side.now_s += 2.0
    # There is room for this much compute only where the forgotten half is not.
    pod = Pod.asking("next", memory=200, compute=15)
    with kubelet.order(COMPUTE_RESOURCE):
        kubelet.admit(pod)
    assert_sound(kubelet, pod)


@BOTH_ORDERS
@pytest.mark.usefixtures("side")
def test_first_resource_granted_second_refused_by_us_next_pod_arrives(kubelet: Kubelet, first: str):
    """Each alone fits somewhere, both nowhere; what the first call has booked is free again."""
    tempt(kubelet)
    with (
        kubelet.order(first),
        pytest.raises(AdmissionError, match=r"needs .* where its .* is; GPU \d has"),
    ):
        kubelet.admit(Pod.asking("torn", memory=200, compute=50))
    rest = [
        Pod.asking("beside-much-memory", memory=20, compute=90),
        Pod.asking("beside-much-compute", memory=UNITS - 100, compute=20),
    ]
    with kubelet.order(first):
        for pod in rest:
            kubelet.run(pod)
    assert_sound(kubelet, *rest)
