"""Whatever restarts: running pods keep their limits, nothing is over-booked, new pods start."""

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.daemons import await_true
from tests.e2e.installation import NAMESPACE, UNITS_A_GPU, Installation
from tests.e2e.workloads import Workloads, deployment, pod

OUT_OF_MEMORY = 2
GPUS = 4
RESIDENT_MIB, GUEST_MIB = 70 * 1024, 10 * 1024
RESIDENT: dict[str, Any] = {"memory": f"{RESIDENT_MIB}Mi", "compute": 70}
GUEST: dict[str, Any] = {"memory": f"{GUEST_MIB}Mi", "compute": 30}


def _kill_agents(installed: Installation) -> None:
    for node in installed.cluster.nodes:
        installed.kill_container(node, installed.agent_on(node.name))


def _restart_kubelets(installed: Installation) -> None:
    for node in installed.cluster.nodes:
        node.kubelet.restart(signal.SIGKILL)


def _restart_containerd(installed: Installation) -> None:
    for node in installed.cluster.nodes:
        node.containerd.restart(signal.SIGKILL)
        node.await_containerd()


def _kill_leader(installed: Installation) -> None:
    [leader] = [
        each
        for each in installed.pods("extender")
        if each["metadata"]["labels"].get("aliquot.dev/leader") == "true"
    ]
    node = installed.cluster.node(leader["spec"]["nodeName"])
    installed.kill_container(node, leader["metadata"]["name"])


def _replace_extenders(installed: Installation) -> None:
    """While they come and go, somebody answers for every pod that is made."""
    cluster, extender = installed.cluster, ("deployment", "aliquot-extender")
    cluster.kubectl("rollout", "restart", "/".join(extender), f"--namespace={NAMESPACE}")
    tried = json.dumps(pod("tried", "wait", **GUEST))
    while not installed.is_rolled_out(*extender):
        cluster.kubectl("create", "--dry-run=server", "-f", "-", text=tried)


def _update_agents(installed: Installation) -> None:
    installed.cluster.kubectl(
        "rollout", "restart", "daemonset/aliquot-agent", f"--namespace={NAMESPACE}"
    )


def _restart_api_server(installed: Installation) -> None:
    plane = installed.cluster.control_plane
    plane.api_server.restart(signal.SIGKILL)
    plane.api_server.await_answer(plane.is_ready)


RESTARTS: list[Callable[[Installation], None]] = [
    _kill_agents,
    _update_agents,
    _restart_kubelets,
    _restart_containerd,
    _kill_leader,
    _replace_extenders,
    _restart_api_server,
]


@pytest.fixture(scope="module")
def residents(installed: Installation) -> Iterator[list[str]]:
    """One on each GPU through all restarts; beside each is room for exactly one guest. The first
    is at work."""
    installed.await_ready()
    workloads = Workloads(installed.cluster)
    names = [f"resident-{number}" for number in range(GPUS)]
    fixed = {"compute-policy": "fixed"}
    first, *others = (pod(name, "see", "wait", annotations=fixed, **RESIDENT) for name in names)
    first["spec"]["containers"][0]["args"] = ["see", "burn"]
    try:
        workloads.start(first, *others)
        for name in names:
            workloads.await_line(name, "see")
        workloads.await_line(names[0], "burning")
        yield names
    finally:
        workloads.end()


@pytest.mark.parametrize("restart", RESTARTS, ids=lambda each: each.__name__.strip("_"))
def test_running_pods_keep_their_limits_and_new_ones_start(
    installed: Installation,
    workloads: Workloads,
    residents: list[str],
    restart: Callable[[Installation], None],
) -> None:
    name = restart.__name__.strip("_").replace("_", "-")
    cluster = installed.cluster
    worker = Observed(installed, residents[0])
    # Some start while it happens. A kubelet that cannot reach the agent at that moment refuses the
    # pod for good; a Deployment brings another one.
    cluster.apply(deployment(name, "see", "wait", replicas=2, **GUEST))
    try:
        await_true("one is on its way", lambda: _is_on_its_way(installed, name))
        restart(installed)
        guests = workloads.await_replicas(name, 2)
        installed.await_ready()

        later = [f"{name}-later-{number}" for number in range(GPUS - len(guests))]
        workloads.start(*(pod(each, "see", "wait", **GUEST) for each in later))
        for guest in (*guests, *later):
            (seen,) = workloads.await_line(guest, "see")
            assert seen["total_mib"] == GUEST_MIB
        booked = workloads.booked(*residents, *guests, *later)
        assert list(booked.values()) == [(UNITS_A_GPU, 100)] * GPUS, "every GPU is just full"
        workloads.start(pod(f"{name}-too-much", "wait", memory="256Mi", compute=1))
        workloads.await_description(f"{name}-too-much", "FailedScheduling")
        assert workloads.phase(f"{name}-too-much") == "Pending"

        worker.assert_undisturbed()
        for resident in residents:
            status = cluster.api.pod(resident)["status"]
            assert status["phase"] == "Running"
            assert status["containerStatuses"][0]["restartCount"] == 0
        beyond = ("client", "see", f"take={RESIDENT_MIB + 1}")
        said = cluster.kubectl("exec", residents[0], "--", *beyond).splitlines()
        assert json.loads(said[0])["see"][0]["total_mib"] == RESIDENT_MIB
        assert json.loads(said[1])["take"] == OUT_OF_MEMORY
    finally:
        cluster.kubectl("delete", "deployment", name, "--wait=false")


class Observed:
    """A pod whose only process works: it shall go on, and get no more than its share meanwhile."""

    def __init__(self, installed: Installation, name: str) -> None:
        self._installed, self._name = installed, name
        self._pid, self._busy = self._look()

    def _look(self) -> tuple[int, tuple[int, list[int]]]:
        [process] = self._installed.processes(self._name)
        return process["host_pid"], self._installed.busy_ns(self._name)

    def assert_undisturbed(self) -> None:
        pid, (now_ns, [busy_ns]) = self._look()
        then_ns, [busy_then_ns] = self._busy
        assert pid == self._pid
        percent = 100 * (busy_ns - busy_then_ns) / (now_ns - then_ns)
        assert 0 < percent < RESIDENT["compute"] + 1


def _is_on_its_way(installed: Installation, app: str) -> bool:
    return any(
        each["spec"].get("nodeName") for each in installed.cluster.api.every("pod", f"app={app}")
    )
