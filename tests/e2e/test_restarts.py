"""Whatever restarts: running pods keep their limits, nothing is over-booked, new pods start."""

import signal
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from tests.e2e.daemons import await_true
from tests.e2e.installation import NAMESPACE, UNITS_A_GPU, Installation
from tests.e2e.workloads import Workloads, pod

GIB = 1 << 30
GIB_IN_MIB = 1024


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
    for each in installed.pods("extender"):
        if each["metadata"]["labels"].get("aliquot.dev/leader") == "true":
            node = installed.cluster.node(each["spec"]["nodeName"])
            installed.kill_container(node, each["metadata"]["name"])


def _replace_extenders(installed: Installation) -> None:
    installed.cluster.kubectl(
        "rollout", "restart", "deployment/aliquot-extender", f"--namespace={NAMESPACE}"
    )


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
def survivor(installed: Installation) -> Iterator[int]:
    """A program that works through all of it; its process."""
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
    survivor: int,
    restart: Callable[[Installation], None],
) -> None:
    # Some start while it happens. A kubelet that cannot reach the agent at that moment refuses the
    # pod for good; a Deployment brings another one.
    name = restart.__name__.strip("_").replace("_", "-")
    cluster = installed.cluster
    cluster.apply(_deployment(name, memory="2Gi", compute=10, replicas=2))
    try:
        restart(installed)
        during = [each["metadata"]["name"] for each in _running(installed, name, 2)]
        for each in during:
            (seen,) = workloads.await_line(each, "see")
            assert seen["total_mib"] == 2 * GIB_IN_MIB
        installed.await_ready()

        assert workloads.phase("survivor") == "Running"
        [process] = installed.processes("survivor")
        assert process["host_pid"] == survivor
        assert 0.5 * GIB < process["usages"][0]["used_bytes"] <= GIB
        workloads.start(pod(f"after-{name}", "see", "wait", memory="1Gi", compute=10))
        (seen,) = workloads.await_line(f"after-{name}", "see")
        assert seen["total_mib"] == GIB_IN_MIB
        _nothing_is_over_booked(workloads, "survivor", f"after-{name}", *during)
    finally:
        cluster.kubectl("delete", "deployment", name, "--wait=false")


def test_a_node_that_reboots_comes_back(installed: Installation, workloads: Workloads) -> None:
    """A kubelet that boots refuses the pods it had, before any device plugin can register; their
    Deployment replaces them, and what they held must be free again."""
    cluster = installed.cluster
    cluster.apply(_deployment("rebooted", memory="70Gi", compute=80, replicas=4))
    try:
        before = _running(installed, "rebooted", 4)
        node = cluster.node(before[0]["spec"]["nodeName"])

        node.crash()
        node.boot()
        node.join()
        lost = {
            each["metadata"]["name"] for each in before if each["spec"]["nodeName"] == node.name
        }
        again = [
            each["metadata"]["name"] for each in _running(installed, "rebooted", 4, without=lost)
        ]
        installed.await_ready()
        for name in again:
            (seen,) = workloads.await_line(name, "see")
            assert seen["total_mib"] == 70 * GIB_IN_MIB
        _nothing_is_over_booked(workloads, *again)
    finally:
        cluster.kubectl("delete", "deployment", "rebooted", "--wait=true", "--cascade=foreground")


def _deployment(name: str, memory: str, compute: int, replicas: int) -> dict[str, Any]:
    template = pod(name, "see", "wait", memory=memory, compute=compute, restartPolicy="Always")
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def _running(
    installed: Installation, app: str, wanted: int, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The pods of a Deployment, when as many as wanted are ready, and no other ones."""
    found: list[dict[str, Any]] = []

    def ready() -> bool:
        found[:] = [
            each
            for each in installed.cluster.api.every("pod", f"app={app}")
            if "deletionTimestamp" not in each["metadata"]
            and each["metadata"]["name"] not in without
            and each["status"]["phase"] == "Running"
            and all(status["ready"] for status in each["status"]["containerStatuses"])
        ]
        return len(found) == wanted

    await_true(f"{wanted} pods of {app} run", ready)
    return found


def _nothing_is_over_booked(workloads: Workloads, *pods: str) -> None:
    booked: dict[str, list[int]] = {}
    for name in pods:
        for gpu, units, percent in workloads.slices(name):
            total = booked.setdefault(gpu, [0, 0])
            total[0] += units
            total[1] += percent
    assert all(units <= UNITS_A_GPU and percent <= 100 for units, percent in booked.values())
