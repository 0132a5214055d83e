"""How GPU time is split. The last that is measured in its folder, when other clusters have come to
their end: programs that wait for a processor cannot show what a GPU would give them."""

import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.daemons import await_true
from tests.e2e.installation import Installation
from tests.e2e.shares import assert_shares
from tests.e2e.workloads import Workloads, pod

GIB_IN_MIB = 1024
GIB_IN_UNITS = 4
OUT_OF_MEMORY = 2


@pytest.fixture(autouse=True)
def alone(workloads: Workloads) -> None:
    """Time and room on a GPU that others are about to leave are not free yet."""
    workloads.await_alone()


def test_two_pods_share_one_gpu(installed: Installation, workloads: Workloads) -> None:
    fixed: dict[str, Any] = {
        "annotations": {"compute-policy": "fixed", "placement": "pack"},
        "cpu": "500m",
    }
    workloads.start(
        pod("a", "see", "fill", "burn", memory="1Gi", compute=30, **fixed),
        pod("b", "see", "fill", "burn", memory="2Gi", compute=60, **fixed),
    )
    for name, gib in (("a", 1), ("b", 2)):
        (seen,) = workloads.await_line(name, "see")
        assert seen["total_mib"] == gib * GIB_IN_MIB
        filled = workloads.await_line(name, "fill")
        assert filled["refused_with"] == OUT_OF_MEMORY
        # A context and the loaded code are paid from the slice, too.
        assert 0.5 * gib * GIB_IN_MIB < filled["taken_mib"] <= gib * GIB_IN_MIB
        workloads.await_line(name, "burning")

    (first,), (second,) = workloads.slices("a"), workloads.slices("b")
    assert first[0] == second[0], "both are on one GPU"
    assert first[1:] == (GIB_IN_UNITS, 30)
    assert second[1:] == (2 * GIB_IN_UNITS, 60)

    assert_shares(installed, {"a": 30, "b": 60})


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
