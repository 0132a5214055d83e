"""Whatever restarts: running pods keep their limits, nothing is over-booked, new pods start."""

import signal
from collections.abc import Callable

import pytest

from tests.e2e.daemons import await_true
from tests.e2e.installation import NAMESPACE, UNITS_A_GPU, Installation
from tests.e2e.node import Node
from tests.e2e.workloads import Workloads, pod

GIB_IN_MIB = 1024


def _node_of(installed: Installation, workloads: Workloads, name: str) -> Node:
    where = workloads.node_of(name)
    return next(node for node in installed.cluster.nodes if node.name == where)


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
            node = next(n for n in installed.cluster.nodes if n.name == each["spec"]["nodeName"])
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


@pytest.mark.parametrize("restart", RESTARTS, ids=lambda each: each.__name__.strip("_"))
def test_running_pods_keep_their_limits_and_new_ones_start(
    installed: Installation, workloads: Workloads, restart: Callable[[Installation], None]
) -> None:
    workloads.start(pod("before", "see", "fill", "burn", memory="1Gi", compute=20))
    workloads.await_line("before", "burning")
    node = _node_of(installed, workloads, "before")
    started = installed.simulated(node)["processes"][0]["host_pid"]

    # Some start while it happens.
    workloads.start(*(pod(f"during-{n}", "see", "wait", memory="2Gi", compute=10) for n in (1, 2)))
    restart(installed)
    for name in ("during-1", "during-2"):
        (seen,) = workloads.await_line(name, "see")
        assert seen["total_mib"] == 2 * GIB_IN_MIB
    installed.await_ready()

    assert workloads.phase("before") == "Running"
    assert started in {each["host_pid"] for each in installed.simulated(node)["processes"]}
    workloads.start(pod("after", "see", "wait", memory="1Gi", compute=10))
    (seen,) = workloads.await_line("after", "see")
    assert seen["total_mib"] == GIB_IN_MIB
    _nothing_is_over_booked(workloads, "before", "during-1", "during-2", "after")


def test_a_node_that_reboots_comes_back(installed: Installation, workloads: Workloads) -> None:
    again = {"restartPolicy": "Always"}
    workloads.start(pod("survivor", "see", "wait", memory="3Gi", compute=25, **again))
    workloads.await_line("survivor", "see")
    node = _node_of(installed, workloads, "survivor")

    node.crash()
    node.boot()
    node.join()
    await_true(f"{node.name} is ready", lambda: installed.cluster.is_ready(node))
    installed.await_ready()

    def runs_again() -> bool:
        found = installed.cluster.find("pod", "survivor")
        statuses = (found or {}).get("status", {}).get("containerStatuses", [])
        return any("running" in each["state"] and each["restartCount"] for each in statuses)

    await_true("the pod runs again", runs_again, 240)
    (seen,) = workloads.await_line("survivor", "see")
    assert seen["total_mib"] == 3 * GIB_IN_MIB
    workloads.start(pod("after", "see", "wait", memory="1Gi", compute=10))
    workloads.await_line("after", "see")
    _nothing_is_over_booked(workloads, "survivor", "after")


def _nothing_is_over_booked(workloads: Workloads, *pods: str) -> None:
    booked: dict[str, list[int]] = {}
    for name in pods:
        for gpu, units, percent in workloads.slices(name):
            total = booked.setdefault(gpu, [0, 0])
            total[0] += units
            total[1] += percent
    assert all(units <= UNITS_A_GPU and percent <= 100 for units, percent in booked.values())
