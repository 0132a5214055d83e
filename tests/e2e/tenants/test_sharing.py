"""Pods share GPUs: each sees its slice and waits for room, and wrong requests are refused."""

import json
import subprocess
import sys

import pytest

from aliquot.protocol import names
from tests.e2e.daemons import await_true
from tests.e2e.installation import GPUS_A_NODE, Installation
from tests.e2e.workloads import Workloads, pod

GIB_IN_MIB = 1024


def test_a_pod_waits_with_its_reason_and_starts_when_there_is_room(
    installed: Installation, workloads: Workloads
) -> None:
    gpus = GPUS_A_NODE * len(installed.cluster.nodes)
    full = [pod(f"full-{number}", "wait", memory="45Gi", compute=40) for number in range(gpus)]
    workloads.start(*full)
    for each in full:
        workloads.await_phase(each["metadata"]["name"])

    workloads.start(pod("late", "see", "wait", memory="45Gi", compute=40))
    workloads.await_description("late", "has the most free memory: 35 of 45 GiB asked")
    assert workloads.phase("late") == "Pending"
    told = subprocess.run(
        [
            *(sys.executable, "-m", "aliquot.cli", "explain", "late"),
            f"--kubeconfig={installed.cluster.control_plane.admin}",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "its GPUs are free on none of 2 nodes" in told
    assert "35 of 80 GiB" in told

    workloads.end("full-0")
    workloads.await_phase("late")
    (seen,) = workloads.await_line("late", "see")
    assert seen["total_mib"] == 45 * GIB_IN_MIB


def test_twenty_pods_at_once(installed: Installation, workloads: Workloads) -> None:
    many = [pod(f"many-{number}", "see", "wait", memory="7Gi", compute=20) for number in range(20)]
    workloads.start(*many)
    booked: dict[str, list[tuple[int, int]]] = {}
    for each in many:
        name = each["metadata"]["name"]
        (seen,) = workloads.await_line(name, "see")
        assert seen["total_mib"] == 7 * GIB_IN_MIB
        for gpu, units, percent in workloads.slices(name):
            booked.setdefault(gpu, []).append((units, percent))
    for slices in booked.values():
        assert sum(units for units, _ in slices) <= 320
        assert sum(percent for _, percent in slices) <= 100
    assert sum(len(slices) for slices in booked.values()) == len(many)


def test_whole_gpus_stand_beside_fractions(workloads: Workloads) -> None:
    workloads.start(
        pod("whole", "see", "wait", compute=100),
        pod("part", "see", "wait", memory="4Gi", compute=20),
    )
    (seen,) = workloads.await_line("whole", "see")
    assert seen["total_mib"] == 80 * GIB_IN_MIB
    (part,) = workloads.await_line("part", "see")
    assert part["total_mib"] == 4 * GIB_IN_MIB
    [(gpu, _, _)] = workloads.slices("whole")
    assert gpu != workloads.slices("part")[0][0]
    only_there = {"gpu-uuid": gpu}
    workloads.start(pod("squeezed", "wait", memory="256Mi", compute=1, annotations=only_there))
    workloads.await_description("squeezed", "FailedScheduling")
    assert workloads.phase("squeezed") == "Pending"


def test_a_pod_on_two_gpus(workloads: Workloads) -> None:
    workloads.start(
        pod("two", "see", "wait", memory="20Gi", compute=100, annotations={"gpus": "2"})
    )
    seen = workloads.await_line("two", "see")
    assert [each["total_mib"] for each in seen] == [10 * GIB_IN_MIB] * 2
    slices = workloads.slices("two")
    assert len({gpu for gpu, _, _ in slices}) == 2
    assert [each[1:] for each in slices] == [(40, 50)] * 2


def test_a_group_starts_whole_or_not_at_all(workloads: Workloads) -> None:
    group = {"group": "g", "group-size": "3"}
    workloads.start(
        *(pod(f"g-{n}", "wait", memory="70Gi", compute=60, annotations=group) for n in (1, 2))
    )
    workloads.await_description("g-1", "FailedScheduling")
    assert {workloads.phase("g-1"), workloads.phase("g-2")} == {"Pending"}
    workloads.start(pod("g-3", "wait", memory="70Gi", compute=60, annotations=group))
    for number in (1, 2, 3):
        workloads.await_phase(f"g-{number}")


@pytest.mark.parametrize(
    ("limits", "annotations", "text"),
    [
        ({"compute": 150}, {}, "no multiple of 100"),
        ({"memory": "4Gi", "compute": 30}, {"compute-policy": "bursty"}, "must be one of"),
        ({"memory": "5Gi", "compute": 31}, {"gpus": "2"}, "cannot be split evenly"),
        ({"memory": "1Gi"}, {"plan": "{}"}, "aliquot.dev/plan"),
    ],
)
def test_the_webhook_says_how_to_do_it_right(
    workloads: Workloads, limits: dict[str, object], annotations: dict[str, str], text: str
) -> None:
    answer = workloads.try_to_start(pod("wrong", "wait", annotations=annotations, **limits))  # type: ignore[arg-type]
    assert text in answer
    assert workloads.phase("wrong") == ""


def test_a_second_apply_of_a_pod_with_a_quantity_changes_nothing(workloads: Workloads) -> None:
    same = pod("same", "wait", memory="1Gi", compute=10)
    workloads.start(same)
    workloads.await_phase("same")
    before = workloads.cluster.api.pod("same")
    answer = workloads.start(same)
    assert "unchanged" in answer or "configured" in answer, answer
    after = workloads.cluster.api.pod("same")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]


def test_a_quota_counts_both_resources(installed: Installation, workloads: Workloads) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {
            "hard": {
                f"requests.{names.MEMORY_RESOURCE}": "8",
                f"requests.{names.COMPUTE_RESOURCE}": "50",
            }
        },
    }
    installed.cluster.apply(quota)
    try:
        await_true(
            "the quota counts",
            lambda: "used" in json.dumps(installed.cluster.api.find("resourcequota", "gpus")),
        )
        workloads.start(pod("within", "wait", memory="1Gi", compute=30))
        workloads.await_phase("within")
        answer = workloads.try_to_start(pod("beyond", "wait", memory="1Gi", compute=30))
        assert "exceeded quota" in answer
        answer = workloads.try_to_start(pod("larger", "wait", memory="2Gi", compute=10))
        assert "exceeded quota" in answer
    finally:
        installed.cluster.kubectl("delete", "resourcequota", "gpus")
