"""GPUs that break, pods that are resized, and pods that have to go for others."""

import subprocess
import sys

from tests.e2e.daemons import await_true
from tests.e2e.installation import GPUS_A_NODE, UNITS_A_GPU, Installation
from tests.e2e.shares import assert_shares
from tests.e2e.workloads import Workloads, pod

GIB_IN_MIB = 1024


def test_a_broken_gpu_is_taken_out_and_comes_back(
    installed: Installation, workloads: Workloads
) -> None:
    node = installed.cluster.nodes[0]
    broken = {"gpu-uuid": installed.simulated(node)["devices"][1]["uuid"]}
    workloads.start(pod("there", "see", "wait", memory="1Gi", compute=10, annotations=broken))
    workloads.await_line("there", "see")
    installed.fault(node, 1, "xid=79")
    try:
        await_true(
            "its memory is withdrawn",
            lambda: installed.allocatable(node) == (GPUS_A_NODE - 1) * UNITS_A_GPU,
        )
        await_true(
            "an event says so",
            lambda: "Xid 79" in installed.cluster.kubectl("describe", "node", node.name),
        )
        await_true(
            "metrics say so",
            lambda: (
                installed.metric("agent", "aliquot_gpu_xids_total", xid="79") == [1]
                and sorted(installed.metric("agent", "aliquot_gpu_usable")) == [0, 1, 1, 1]
            ),
        )
        assert workloads.phase("there") == "Running", "whoever is on it is left alone"
        workloads.start(pod("late", "see", "wait", memory="1Gi", compute=10, annotations=broken))
        workloads.await_description("late", "FailedScheduling")
        assert workloads.phase("late") == "Pending"
    finally:
        installed.fault(node, 1, "clear")
    await_true("it is back", lambda: installed.allocatable(node) == GPUS_A_NODE * UNITS_A_GPU)
    workloads.await_line("late", "see")


def test_a_running_pod_grows_and_shrinks(installed: Installation, workloads: Workloads) -> None:
    """In two processes that know nothing of it: one watches its memory, one works."""
    fixed = {"compute-policy": "fixed"}
    resized = pod("resized", memory="2Gi", compute=20, cpu="500m", annotations=fixed)
    both = "client watch & exec client burn"
    resized["spec"]["containers"][0] |= {"command": ["sh", "-c", both]}
    workloads.start(resized)
    workloads.await_line("resized", "burning")
    started = {each["host_pid"] for each in installed.processes("resized")}
    for gib, percent in ((6, 50), (1, 10)):
        assert not resize(installed, f"--memory={gib}Gi", f"--compute={percent}").returncode
        await_true(
            f"it sees {gib} GiB",
            lambda gib=gib: (
                workloads.await_line("resized", "see")[0]["total_mib"]  # type: ignore[misc]
                == gib * GIB_IN_MIB
            ),
        )
        assert_shares(installed, {"resized": percent})
    assert {each["host_pid"] for each in installed.processes("resized")} == started

    refused = resize(installed, "--memory=81Gi", "--compute=10")
    assert refused.returncode
    assert "79" in refused.stderr + refused.stdout, "what could be added is named"
    assert workloads.await_line("resized", "see")[0]["total_mib"] == GIB_IN_MIB


def resize(installed: Installation, *words: str) -> "subprocess.CompletedProcess[str]":
    admin = installed.cluster.control_plane.admin
    command = [sys.executable, "-m", "aliquot.cli", "resize", "pod/resized", "--timeout=600"]
    return subprocess.run(
        [*command, f"--kubeconfig={admin}", *words], check=False, capture_output=True, text=True
    )


def test_a_pod_with_priority_takes_the_place_of_another(
    installed: Installation, workloads: Workloads
) -> None:
    cluster = installed.cluster
    cluster.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
    )
    try:
        gpus = GPUS_A_NODE * len(cluster.nodes)
        low = [pod(f"low-{n}", "wait", memory="60Gi", compute=50) for n in range(gpus)]
        workloads.start(*low)
        for each in low:
            workloads.await_phase(each["metadata"]["name"])
        workloads.start(
            pod("high", "see", "wait", memory="60Gi", compute=50, priorityClassName="urgent")
        )
        workloads.await_phase("high")
        running = [each for each in low if workloads.phase(each["metadata"]["name"]) == "Running"]
        assert len(running) == gpus - 1, "one had to go, and one is enough"
    finally:
        cluster.kubectl("delete", "priorityclass", "urgent")
