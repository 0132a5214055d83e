"""GPUs that break, and pods that have to go for others."""

from tests.e2e.daemons import await_true
from tests.e2e.installation import GPUS_A_NODE, UNITS_A_GPU, Installation
from tests.e2e.workloads import Workloads, pod


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
