"""Serving and registering, with decisions that a test makes up."""

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking.errors import Refusal, Retry
from deviceplugin.kubelet.advertisement import Advertisement
from deviceplugin.kubelet.proto import device_plugin_pb2 as api
from deviceplugin.kubelet.registration import Registration
from deviceplugin.kubelet.server import ResourceServer
from deviceplugin.kubelet.traffic import Traffic
from simcluster.kubelet import AdmissionError, Kubelet, Pod, StartError
from tests.patience import eventually


class Plain:
    """Gives everybody everything, unless a test says otherwise."""

    def __init__(self) -> None:
        self.prefers: Callable[[Sequence[str], int], Sequence[str]] = lambda ids, size: sorted(ids)[
            :size
        ]
        self.refusal: Exception | None = None
        self.delay: Exception | None = None

    def prefer(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        return self.prefers(available, size)

    def allocate(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        if self.refusal:
            raise self.refusal
        return api.ContainerAllocateResponse(envs={sorted(ids)[0]: str(len(ids))})

    def pre_start(self, ids: Sequence[str]) -> None:
        if self.delay:
            raise self.delay


class Agent:
    def __init__(self, folder: Path) -> None:
        self.decisions = Plain()
        self.advertisements = {
            MEMORY_RESOURCE: Advertisement(),
            COMPUTE_RESOURCE: Advertisement(),
        }
        for kind, advertisement in self.advertisements.items():
            advertisement.publish((f"{kind[-1]}-{number}", True) for number in range(10))
        self.folder = folder
        self.kubelets = 0
        self.registration = Registration(folder, self.servers, self.note_kubelet)

    def note_kubelet(self) -> None:
        self.kubelets += 1

    def servers(self) -> list[ResourceServer]:
        return [
            ResourceServer(
                resource,
                self.folder,
                self.decisions,
                advertisement,
                Traffic(),
                self.registration.note_stream_end,
            )
            for resource, advertisement in self.advertisements.items()
        ]


@pytest.fixture
def kubelet(short_path: Path) -> Iterator[Kubelet]:
    with Kubelet(short_path) as started:
        yield started


@pytest.fixture
def agent(kubelet: Kubelet) -> Iterator[Agent]:
    made = Agent(kubelet.plugins)
    made.registration.start()
    yield made
    made.registration.stop()


def test_both_resources_are_registered_and_followed(kubelet: Kubelet, agent: Agent):
    kubelet.wait_ready()
    assert kubelet.allocatable(MEMORY_RESOURCE) == 10
    eventually(lambda: agent.registration.is_complete)
    names = [request.endpoint for request in kubelet.registrations]
    assert len(set(names)) == 2
    assert all(request.options.pre_start_required for request in kubelet.registrations)


def test_ids_that_turn_unhealthy_are_told_at_once(kubelet: Kubelet, agent: Agent):
    kubelet.wait_ready()
    agent.advertisements[MEMORY_RESOURCE].publish([("y-0", True), ("y-1", False)])
    kubelet.wait_for(lambda: kubelet.manager.healthy[MEMORY_RESOURCE] == {"y-0"}, "one id")
    assert kubelet.manager.unhealthy[MEMORY_RESOURCE] == {"y-1"}


def test_a_preference_is_followed_to_the_id(kubelet: Kubelet, agent: Agent):
    kubelet.wait_ready()
    wanted = {"y-3", "y-7"}
    agent.decisions.prefers = lambda ids, size: sorted(wanted) if "y-3" in ids else ids[:size]
    pod = Pod.asking("a", memory=2, compute=1)
    kubelet.admit(pod)
    assert kubelet.ids_of(pod)[MEMORY_RESOURCE] == wanted


def test_a_refusal_reaches_the_pod_word_for_word_and_is_final(kubelet: Kubelet, agent: Agent):
    kubelet.wait_ready()
    agent.decisions.refusal = Refusal("needs 48 units (12 GiB) on one GPU")
    with pytest.raises(AdmissionError, match=r"desc = needs 48 units \(12 GiB\) on one GPU, which"):
        kubelet.admit(Pod.asking("a", memory=2))


def test_a_container_that_must_wait_is_tried_again(kubelet: Kubelet, agent: Agent):
    kubelet.wait_ready()
    agent.decisions.delay = Retry("the other half is missing")
    pod = Pod.asking("a", memory=2)
    kubelet.admit(pod)
    with pytest.raises(StartError, match="desc = the other half is missing"):
        kubelet.start_container(pod)
    agent.decisions.delay = None
    assert list(kubelet.start_container(pod).env.values()) == ["2"]


def test_a_failure_of_ours_says_where_to_look(kubelet: Kubelet, agent: Agent):
    kubelet.wait_ready()
    agent.decisions.refusal = ZeroDivisionError("oh")
    with pytest.raises(AdmissionError, match=r"failed in Allocate: oh; its log has the details"):
        kubelet.admit(Pod.asking("a", memory=2))


def test_a_restarted_kubelet_is_registered_with_under_new_names(kubelet: Kubelet, agent: Agent):
    kubelet.wait_ready()
    before = {request.endpoint for request in kubelet.registrations}
    kubelet.registrations.clear()
    kubelet.restart()
    kubelet.wait_ready()
    after = {request.endpoint for request in kubelet.registrations}
    assert len(after) >= 2
    assert not before & after
    assert agent.kubelets == 2
    eventually(lambda: agent.registration.is_complete)
    kubelet.run(Pod.asking("a", memory=2, compute=1))


def test_a_kubelet_that_crashed_is_waited_for(kubelet: Kubelet, agent: Agent):
    kubelet.wait_ready()
    kubelet.crash()
    eventually(lambda: "nobody answers" in agent.registration.problem)
    kubelet.start()
    kubelet.wait_ready()
    eventually(lambda: agent.registration.is_complete)


def test_a_kubelet_that_is_not_there_yet_is_waited_for(short_path: Path):
    (short_path / "device-plugins").mkdir()
    agent = Agent(short_path / "device-plugins")
    agent.registration.start()
    try:
        eventually(lambda: "is the kubelet running?" in agent.registration.problem)
        with Kubelet(short_path) as kubelet:
            kubelet.wait_ready()
    finally:
        agent.registration.stop()


def test_a_stream_that_the_kubelet_drops_leads_to_a_new_registration(
    kubelet: Kubelet, agent: Agent
):
    kubelet.wait_ready()
    endpoint = kubelet.manager.endpoints[MEMORY_RESOURCE]
    assert endpoint is not None
    endpoint.close()
    kubelet.wait_for(
        lambda: kubelet.manager.endpoints[MEMORY_RESOURCE] is not endpoint, "registered again"
    )
    kubelet.wait_ready()


def test_a_list_beyond_4_mib_never_shows_up(kubelet: Kubelet, agent: Agent):
    """Why the agent refuses to start with so many ids: nobody else would say anything."""
    kubelet.wait_ready()
    agent.advertisements[MEMORY_RESOURCE].publish((f"{n:080}", True) for n in range(60_000))
    kubelet.wait_gone(MEMORY_RESOURCE)


def test_the_end_of_the_agent_ends_its_resources(kubelet: Kubelet):
    agent = Agent(kubelet.plugins)
    agent.registration.start()
    kubelet.wait_ready()
    agent.registration.stop()
    kubelet.wait_gone()
    assert {path.name for path in kubelet.plugins.glob("*.sock")} == {"kubelet.sock"}


def test_sockets_of_a_killed_agent_are_swept_away_and_others_are_not(kubelet: Kubelet):
    for name in ("aliquot-gpu-memory-dead.sock", "other.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(kubelet.plugins / name))
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(kubelet.plugins / "aliquot-alive.sock"))
        alive.listen()
        agent = Agent(kubelet.plugins)
        agent.registration.start()
        try:
            kubelet.wait_ready()
        finally:
            agent.registration.stop()
    left_over = {path.name for path in kubelet.plugins.glob("*.sock")}
    assert left_over == {"kubelet.sock", "other.sock", "aliquot-alive.sock"}
