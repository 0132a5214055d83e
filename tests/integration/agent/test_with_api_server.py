"""The agent beside an API server: plans followed, actuals told, and nothing lost without it."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aliquot.protocol import names
from aliquot.protocol.assignment import Slice, decode
from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from aliquot.protocol.resize import Amounts, ResizeRequest, decode_answer, encode
from simcluster.apiserver import ApiServer, owned_by
from simcluster.apiserver import node as node_manifest
from simcluster.kubelet import AdmissionError, Container, Kubelet, Pod, Role
from simcluster.kubelet.books import UNIT_BYTES, assert_sound, caps_of, gpus_of
from tests.agentprocess import AgentProcess
from tests.clusterpods import NODE, bound, kubeconfig, plan, pod_path
from tests.patience import PATIENCE_S, eventually
from tests.simulated import SimulatedNode

UNITS = 320


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        started.add(node_manifest(NODE))
        yield started


@pytest.fixture
def make_agent(
    make_agent: Callable[..., AgentProcess], server: ApiServer, short_path: Path
) -> Callable[..., AgentProcess]:
    def make(**settings: str) -> AgentProcess:
        agent = make_agent(**{"api_server": "auto", "log_level": "debug", **settings})
        agent.environment["KUBECONFIG"] = kubeconfig(server, short_path / "kubeconfig")
        return agent

    return make


@pytest.fixture
def agent(make_agent: Callable[..., AgentProcess], server: ApiServer) -> AgentProcess:
    """One that is ready and follows the pods."""
    made = make_agent().start_and_wait()
    server.wait_for(lambda: server.watches("/api/v1/pods"))
    return made


@pytest.fixture
def uuids(node: SimulatedNode) -> list[str]:
    return [device.uuid for device in node.snapshot().devices]


def actual_of(server: ApiServer, pod: Pod, container: str = "main") -> list[Slice]:
    """What the pod's annotation says, once it is there."""

    def told() -> str:
        found = server.get(pod_path(pod))
        assert found is not None
        return str(found["metadata"]["annotations"].get(names.ACTUAL, ""))

    return list(decode(server.wait_for(told)).containers[container])


def notes_of(server: ApiServer, pod: Pod) -> dict[str, str]:
    """The pod's annotations."""
    found = server.get(pod_path(pod))
    assert found is not None
    notes: dict[str, str] = found["metadata"]["annotations"]
    return notes


def events(server: ApiServer, reason: str) -> list[str]:
    return [
        str(each["message"])
        for each in server.objects("/api/v1/namespaces/default/events")
        if each["reason"] == reason
    ]


def bind(server: ApiServer, agent: AgentProcess, pod: Pod, **notes: str) -> None:
    """Lets the pod be of this node, and the agent know it before the kubelet does."""
    server.add(bound(pod, **notes))
    eventually(lambda: f"({pod.uid}) is of this node" in agent.output)


def claim_to_mirror(shown: dict[str, Any], static: Pod) -> None:
    """As the kubelet writes it, and whoever imitates the kubelet."""
    for each in ("config.hash", "config.mirror"):
        shown["metadata"]["annotations"][f"kubernetes.io/{each}"] = static.uid
    shown["metadata"]["ownerReferences"] = owned_by(NODE)


def test_the_nodes_gpus_stand_on_the_node(server: ApiServer, agent: AgentProcess, uuids: list[str]):
    def told() -> str:
        found = server.get(f"/api/v1/nodes/{NODE}")
        assert found is not None
        return str(found["metadata"]["annotations"].get(names.INVENTORY, ""))

    inventory = json.loads(server.wait_for(told))
    assert [gpu["uuid"] for gpu in inventory["gpus"]] == uuids
    assert {gpu["memory_units"] for gpu in inventory["gpus"]} == {UNITS}


def test_a_plan_is_followed_and_what_was_given_is_told(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess, uuids: list[str]
):
    for number, uuid in enumerate(reversed(uuids)):
        pod = Pod.asking(f"planned-{number}", memory=16, compute=30)
        bind(server, agent, pod, plan=plan(uuid, 16, 30))
        kubelet.run(pod)
        assert gpus_of(kubelet, pod) == {uuid}
        assert actual_of(server, pod) == [Slice(uuid, 16, 30)]


def test_an_extender_restarted_between_patch_and_binding(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess, uuids: list[str]
):
    """The plan stands on the pod before it is ours, for however long."""
    pod = Pod.asking("planned", memory=16, compute=30)
    server.add(bound(pod, node="", plan=plan(uuids[1], 16, 30)))
    server.merge(pod_path(pod), {"spec": {"nodeName": NODE}})
    eventually(lambda: f"({pod.uid}) is of this node" in agent.output)
    kubelet.run(pod)
    assert gpus_of(kubelet, pod) == {uuids[1]}


def test_a_plan_that_cannot_be_kept_is_not_the_pods_end(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess, uuids: list[str]
):
    full = Pod.asking("full", memory=UNITS, compute=90)
    bind(server, agent, full, plan=plan(uuids[0], UNITS, 90))
    kubelet.run(full)
    pod = Pod.asking("late", memory=16, compute=30)
    bind(server, agent, pod, plan=plan(uuids[0], 16, 30))
    kubelet.run(pod)
    assert gpus_of(kubelet, pod) == {uuids[1]}
    assert actual_of(server, pod) == [Slice(uuids[1], 16, 30)]
    (message,) = server.wait_for(lambda: events(server, "NotAsPlanned"))
    assert "GPU 1 and not GPU 0" in message


def test_both_sizes_are_known_from_the_pod_whichever_resource_comes_first(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
):
    for order in (MEMORY_RESOURCE, COMPUTE_RESOURCE):
        pods = [Pod.asking(f"half-{order[-3:]}-{n}", memory=200, compute=10) for n in range(2)]
        with kubelet.order(order):
            for pod in pods:
                bind(server, agent, pod)
                kubelet.run(pod)
        assert_sound(kubelet, *pods)
        for pod in pods:
            server.remove(pod_path(pod))
            kubelet.finish(pod)


def test_what_does_not_fit_is_refused_by_both_of_its_sizes(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
):
    tenants = [Pod.asking(f"tenant-{n}", memory=300, compute=20) for n in range(2)]
    for pod in tenants:
        bind(server, agent, pod)
        kubelet.run(pod)
    for order in (MEMORY_RESOURCE, COMPUTE_RESOURCE):
        large = Pod.asking(f"large-{order[-3:]}", memory=30, compute=10)
        bind(server, agent, large)
        with (
            kubelet.order(order),
            pytest.raises(AdmissionError, match=r"needs 30 units \(7.5 GiB\).* 20 units \(5 GiB\)"),
        ):
            kubelet.admit(large)


def test_an_app_container_takes_over_the_ids_and_the_gpu_of_its_init_container(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
):
    filler = Pod.asking("filler", memory=250, compute=20)
    bind(server, agent, filler)
    kubelet.run(filler)
    for order in (MEMORY_RESOURCE, COMPUTE_RESOURCE):
        pod = Pod(
            f"with-init-{order[-3:]}",
            (
                Container.asking(100, 30, name="first", role=Role.INIT),
                Container.asking(60, 20),
                Container.asking(60, 20, name="second"),
            ),
        )
        bind(server, agent, pod)
        with kubelet.order(order):
            kubelet.run(pod)
        gpu = gpus_of(kubelet, pod, "first")
        assert gpus_of(kubelet, pod) == gpus_of(kubelet, pod, "second") == gpu
        init, main, second = (
            kubelet.ids_of(pod, name)[MEMORY_RESOURCE] for name in ("first", "main", "second")
        )
        assert len(init | main | second) == 120
        assert not main & second
        server.remove(pod_path(pod))
        kubelet.finish(pod)


def test_the_mirror_of_a_static_pod_is_told_what_it_has(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
):
    """The API server knows it by another uid than the kubelet."""
    static = Pod.asking("static-node-1", memory=4, compute=5)
    shown = bound(replace(static, uid="11111111-2222-3333-4444-555555555555"))
    claim_to_mirror(shown, static)
    server.add(shown)
    eventually(lambda: f"({static.uid}) is of this node" in agent.output)
    kubelet.run(static)
    (slice_,) = actual_of(server, static)
    assert (slice_.memory_units, slice_.compute_percent) == (4, 5)


def test_a_pod_that_says_to_be_another_ones_mirror_gains_nothing(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
):
    victim, thief = Pod.asking("victim", memory=16, compute=30), Pod.asking("thief", 0, 0)
    bind(server, agent, victim)
    options = kubelet.run(victim)["main"]
    before = caps_of(options)
    request = encode(ResizeRequest("x", {"main": Amounts(memory_units=1, compute_percent=1)}))
    for wears in ("hash", "all"):
        shown = bound(thief, policy="best-effort", resize=request)
        claim_to_mirror(shown, victim)
        if wears == "hash":
            del shown["metadata"]["ownerReferences"]
        server.add(shown)
        server.wait_for(lambda: names.RESIZED in notes_of(server, thief))
        assert "has no share of a GPU here" in notes_of(server, thief)[names.RESIZED]
        assert caps_of(options) == before
        assert names.ACTUAL not in notes_of(server, thief)
        server.remove(pod_path(thief))


def test_a_whole_gpu_is_back_and_its_files_are_gone_as_soon_as_its_pod_has_ended(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
):
    whole = Pod.asking("whole", compute=100)
    bind(server, agent, whole)
    kubelet.run(whole)
    kubelet.wait_for(lambda: kubelet.allocatable(MEMORY_RESOURCE) == UNITS, "one GPU withdrawn")
    kubelet.finish(whole)
    server.merge(pod_path(whole), {"status": {"phase": "Succeeded"}})
    kubelet.wait_for(lambda: kubelet.allocatable(MEMORY_RESOURCE) == 2 * UNITS, "both are back")
    eventually(lambda: not any(list((agent.state / each).iterdir()) for each in ("alloc", "ended")))


def test_a_kubelet_that_waits_for_its_runtime_ends_nobody(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
):
    resident, brief, last = (
        Pod.asking(each, memory=16, compute=20) for each in ("resident", "brief", "last")
    )
    for pod in (resident, brief, last):
        bind(server, agent, pod)
        kubelet.run(pod)

    def end(pod: Pod) -> None:
        """As soon as the API server says so, the agent compares its books with the kubelet's."""
        kubelet.finish(pod)
        lists = kubelet.podresources.lists
        server.remove(pod_path(pod))
        eventually(lambda: kubelet.podresources.lists > lists)

    # From now on the kubelet has listed the resident.
    end(brief)
    eventually(lambda: "brief/main is free again" in agent.output)
    kubelet.crash()
    kubelet.begin_start()
    end(last)
    kubelet.podresources.stop()
    kubelet.start()
    kubelet.wait_ready()
    another = Pod.asking("another", memory=16, compute=20)
    bind(server, agent, another)
    kubelet.run(another)
    assert_sound(kubelet, resident, another)
    assert "resident/main is free again" not in agent.output


def test_without_its_api_server_everything_goes_on(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
):
    known = Pod.asking("known", memory=16, compute=30)
    bind(server, agent, known)
    with server.away():
        unknown = Pod.asking("unknown", memory=16, compute=30)
        kubelet.run(unknown)
        kubelet.run(known)
        assert_sound(kubelet, known, unknown)
        agent.kill()
        agent.start_and_wait()
        another = Pod.asking("another", memory=16, compute=30)
        kubelet.run(another)
        assert_sound(kubelet, known, unknown, another)
    assert len(actual_of(server, known)) == 1


def test_a_cluster_that_nobody_names_is_done_without(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess]
):
    agent = make_agent()
    agent.environment["KUBECONFIG"] = "/nonexistent"
    agent.start_and_wait()
    assert "works without an API server" in agent.output
    kubelet.run(Pod.asking("a", memory=1, compute=1))


def test_a_running_pod_is_resized(kubelet: Kubelet, server: ApiServer, agent: AgentProcess):
    pod = Pod.asking("a", memory=16, compute=30)
    bind(server, agent, pod)
    options = kubelet.run(pod)["main"]
    (gpu,) = gpus_of(kubelet, pod)
    for wish, units in (("1", 24), ("2", 8)):
        request = encode(ResizeRequest(wish, {"main": Amounts(memory_units=units)}))
        server.merge(pod_path(pod), {"metadata": {"annotations": {names.RESIZE: request}}})
        server.wait_for(lambda units=units: caps_of(options) == {gpu: units * UNIT_BYTES})
    agent.kill()
    agent.start_and_wait()
    kubelet.start_in_time(pod)
    assert caps_of(options) == {gpu: 8 * UNIT_BYTES}


def test_a_resize_asked_while_the_agent_was_away_is_answered_when_it_is_back(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
) -> None:
    pod = Pod.asking("a", memory=16, compute=30)
    bind(server, agent, pod)
    options = kubelet.run(pod)["main"]
    (gpu,) = gpus_of(kubelet, pod)
    agent.kill()
    request = encode(ResizeRequest("1", {"main": Amounts(memory_units=24)}))
    server.merge(pod_path(pod), {"metadata": {"annotations": {names.RESIZE: request}}})
    listed = threading.Event()
    kubelet.podresources.before_answer = lambda: listed.wait(PATIENCE_S)
    try:
        agent.start()
        # They are told one after the other: when the second is known, the first is dealt with.
        for each in (pod, Pod.asking("b", memory=1, compute=1)):
            if each is not pod:
                server.add(bound(each))
            eventually(lambda each=each: f"({each.uid}) is of this node" in agent.output)
        assert caps_of(options) == {gpu: 16 * UNIT_BYTES}, "before its books are compared"
    finally:
        listed.set()
    # Long before it compares anyway what pods have, once a minute.
    server.wait_for(lambda: names.RESIZED in notes_of(server, pod), 30)
    assert decode_answer(notes_of(server, pod)[names.RESIZED]).refusal == ""
    assert caps_of(options) == {gpu: 24 * UNIT_BYTES}


def test_the_end_does_not_wait_for_an_api_server_that_does_not_answer(
    kubelet: Kubelet, server: ApiServer, agent: AgentProcess
) -> None:
    pod = Pod.asking("a", memory=16, compute=30)
    bind(server, agent, pod)
    gate = server.hold(times=math.inf)
    # The watches have something to ask, and so has what the pod was given.
    server.drop_watches()
    kubelet.run(pod)
    assert gate.reached.wait(PATIENCE_S)
    try:
        began_s = time.monotonic()
        assert agent.terminate() == 0
        assert time.monotonic() - began_s < 5
    finally:
        gate.open()


def test_uninstalling_takes_the_inventory_back(server: ApiServer, agent: AgentProcess) -> None:
    def inventory() -> str | None:
        found = server.get(f"/api/v1/nodes/{NODE}")
        assert found is not None
        text: str | None = found["metadata"]["annotations"].get(names.INVENTORY)
        return text

    server.wait_for(inventory)
    assert agent.terminate() == 0
    result = agent.run("--uninstall")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(", and the annotation on the Node\n")
    assert inventory() is None
    agent.state.mkdir()
    with server.away():
        result = agent.run("--uninstall")
    assert result.returncode == 0, result.stderr
    assert "the annotation on the Node stays: the API server" in result.stdout
