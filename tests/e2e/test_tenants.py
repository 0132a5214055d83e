"""GPUs that break, pods that are resized, and pods that have to go for others."""

import subprocess
import sys

from tests.e2e.daemons import await_true
from tests.e2e.installation import GPUS_A_NODE, UNITS_A_GPU, Installation
from tests.e2e.workloads import Workloads, pod

GIB_IN_MIB = 1024


def test_a_broken_gpu_is_taken_out_and_comes_back(
    installed: Installation, workloads: Workloads
) -> None:
    node = installed.cluster.nodes[0]
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
    finally:
        installed.fault(node, 1, "clear")
    await_true("it is back", lambda: installed.allocatable(node) == GPUS_A_NODE * UNITS_A_GPU)


def test_a_running_pod_grows_and_shrinks(installed: Installation, workloads: Workloads) -> None:
    watching = "while :; do client see; sleep 1; done"
    resized = pod("resized", memory="2Gi", compute=20)
    resized["spec"]["containers"][0] |= {"command": ["sh", "-c", watching]}
    workloads.start(resized)
    workloads.await_line("resized", "see")
    for gib, percent in ((6, 50), (1, 10)):
        subprocess.run(
            [
                *(sys.executable, "-m", "aliquot.cli", "resize", "pod/resized"),
                *(f"--memory={gib}Gi", f"--compute={percent}", "--timeout=600"),
                f"--kubeconfig={installed.cluster.control_plane.admin}",
            ],
            check=True,
        )
        await_true(
            f"it sees {gib} GiB",
            lambda gib=gib: (
                workloads.await_line("resized", "see")[0]["total_mib"]  # type: ignore[misc]
                == gib * GIB_IN_MIB
            ),
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
    cluster.kubectl("delete", "priorityclass", "urgent")
