"""What the agent learns from the kubelet's list, and how it bears a kubelet in a bad mood."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.protocol.names import MEMORY_RESOURCE
from deviceplugin.booking.sources import ContainerKey, Held
from deviceplugin.kubelet.podresources import PodResources, PodResourcesError
from deviceplugin.kubelet.traffic import Traffic
from simcluster.kubelet import Container, Kubelet, Pod, Role

OTHER = "other.example/gpu"


@pytest.fixture
def kubelet(short_path: Path) -> Iterator[Kubelet]:
    with Kubelet(short_path) as started:
        started.manager.add_other(OTHER, {"GPU-1", "GPU-2", "GPU-3"})
        yield started


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


@pytest.fixture
def client(kubelet: Kubelet, traffic: Traffic) -> Iterator[PodResources]:
    made = PodResources(kubelet.folder / "pod-resources" / "kubelet.sock", traffic)
    yield made
    made.close()


def test_containers_are_listed_with_all_their_ids(kubelet: Kubelet, client: PodResources):
    kubelet.admit(Pod("a", (Container("main", {OTHER: 3}), Container("plain", {}))))
    assert client.list_now() == [
        Held(ContainerKey("default", "a", "main"), {OTHER: frozenset({"GPU-1", "GPU-2", "GPU-3"})}),
        Held(ContainerKey("default", "a", "plain"), {}),
    ]


def test_init_containers_are_not_listed_and_sidecars_are(kubelet: Kubelet, client: PodResources):
    kubelet.admit(
        Pod(
            "a",
            (
                Container("first", {OTHER: 1}, Role.INIT),
                Container("beside", {OTHER: 1}, Role.SIDECAR),
                Container("main", {OTHER: 1}),
            ),
        )
    )
    assert {held.key.container for held in client.list_now()} == {"beside", "main"}


def test_all_advertised_ids_are_known_by_resource(kubelet: Kubelet, client: PodResources):
    assert client.allocatable() == {OTHER: frozenset({"GPU-1", "GPU-2", "GPU-3"})}


def test_more_lists_than_the_kubelet_allows_are_asked_again(kubelet: Kubelet, client: PodResources):
    for _ in range(30):
        assert client.list_now(timeout_s=60) == []
    assert kubelet.podresources.lists == 30


def test_a_kubelet_that_fails_or_is_slow_is_not_waited_for(kubelet: Kubelet, client: PodResources):
    kubelet.podresources.error = "not now"
    with pytest.raises(PodResourcesError, match=r"did not answer List: UNAVAILABLE: not now"):
        client.list_now()
    kubelet.podresources.error = ""
    kubelet.podresources.delay_s = 3.0
    before = time.monotonic()
    with pytest.raises(PodResourcesError, match="DEADLINE_EXCEEDED"):
        client.list_now(timeout_s=0.1)
    assert time.monotonic() - before < 3.0


def test_a_restarted_kubelet_answers_soon(kubelet: Kubelet, client: PodResources):
    client.list_now(timeout_s=60)
    kubelet.stop()
    with pytest.raises(PodResourcesError):
        client.list_now()
    kubelet.start()
    deadline = time.monotonic() + 60
    while True:
        try:
            assert client.list_now(timeout_s=60) == []
            break
        except PodResourcesError:
            assert time.monotonic() < deadline


def test_a_kubelet_without_this_service_is_said_so(short_path: Path):
    client = PodResources(short_path / "none.sock", Traffic())
    with pytest.raises(PodResourcesError, match=r"none.sock did not answer List: UNAVAILABLE"):
        client.list_now()
    client.close()


def test_in_the_background_nothing_is_asked_while_ids_are_in_flight(
    kubelet: Kubelet, client: PodResources, traffic: Traffic
):
    answers: list[list[Held]] = []
    asking = threading.Thread(target=lambda: answers.append(client.list_when_quiet(60)))
    with traffic.allocating():
        asking.start()
        with pytest.raises(PodResourcesError, match="without a pause"):
            client.list_when_quiet(0.1)
        assert kubelet.podresources.lists == 0
    asking.join(60)
    assert answers == [[]]


def test_the_stand_in_loses_ids_in_flight_when_listed_at_that_moment(
    kubelet: Kubelet, client: PodResources
):
    """The real one's flaw, without which the care above would be untested."""
    gone = Pod("gone", (Container("main", {OTHER: 1}),))
    kubelet.admit(gone)
    kubelet.finish(gone)
    kubelet.admit(Pod("kept", (Container("main", {OTHER: 1}),)))
    last = Pod("last", (Container("main", {OTHER: 1}),))

    def list_meanwhile(resource: str, ids: set[str]) -> None:
        kubelet.finish(next(pod for pod in kubelet.active_pods() if pod.name == "kept"))
        client.list_now(timeout_s=60)

    with kubelet.in_flight(list_meanwhile):
        kubelet.admit(last)
    assert not kubelet.ids_of(last)[OTHER] & kubelet.manager.allocated.get(OTHER, set())
    assert MEMORY_RESOURCE not in kubelet.manager.endpoints
