"""`aliquot doctor` on a machine, in a container's root, on a node and beside a cluster."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.doctor.cluster import check_cluster
from aliquot.doctor.finding import Level
from aliquot.doctor.image import check_image
from aliquot.doctor.node import check_node
from aliquot.protocol import names
from shim import limits
from shim.limits import DeviceLimits, Kind, Limits
from simcluster.apiserver import ApiServer, node, write_kubeconfig
from tests.simulated import simulated_node

ROOT = Path(__file__).parents[3]
DEADLINE_S = 120
UUID = "GPU-00000000-0000-0000-0000-000000000001"


def doctor(env: dict[str, str], home: Path) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-m", "aliquot.cli", "doctor", "-o", "json"],
        env={**env, "PYTHONPATH": str(ROOT), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_on_simulated_gpus_the_driver_is_good(tmp_path: Path) -> None:
    with simulated_node("2xL4") as simulated:
        _, findings = doctor(simulated.env, tmp_path)
    told = {finding["subject"]: finding for finding in findings}
    assert told["cuda"]["level"] == told["nvml"]["level"] == "ok"
    assert "2 GPUs" in told["cuda"]["text"]
    assert told["shim"]["level"] == "ok"


def test_without_a_driver_it_says_so_and_exits_with_1(tmp_path: Path) -> None:
    nowhere = {"PATH": os.environ["PATH"]}
    code, findings = doctor(nowhere, tmp_path)
    assert code == 1
    broken = {finding["subject"] for finding in findings if finding["level"] == "failure"}
    assert {"cuda", "nvml"} <= broken


def test_a_containers_limits_are_read_out(tmp_path: Path) -> None:
    for kind in Kind:
        (tmp_path / "etc/aliquot" / kind.name.lower()).mkdir(parents=True)
    device = DeviceLimits(UUID, 1 << 30, share=3000)
    limits.create(tmp_path / "etc/aliquot/memory/limits", Kind.MEMORY, Limits((device,)))
    memory, compute = list(check_image(tmp_path))[-2:]
    assert memory.level is Level.GOOD
    assert memory.text == f"1Gi of {UUID}"
    assert compute.level is Level.FAIL
    limits.create(tmp_path / "etc/aliquot/compute/limits", Kind.COMPUTE, Limits((device,)))
    assert list(check_image(tmp_path))[-1].text == f"30% of {UUID}, fixed"


@pytest.fixture
def root() -> Iterator[Path]:
    """Short enough for a socket's address."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_a_node_is_judged_by_its_kubelet_and_its_ways_to_gpus(root: Path) -> None:
    assert [finding.level for finding in check_node(root)] == [Level.NOTE]
    for name in ("device-plugins", "pod-resources"):
        (root / "var/lib/kubelet" / name).mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(root / "var/lib/kubelet/device-plugins/kubelet.sock"))
        kubelet.listen()
        plugins, resources, access, files = check_node(root)
        assert plugins.level is Level.GOOD
        assert resources.level is Level.FAIL
        assert "pod-resources/kubelet.sock is missing" in resources.text
        assert access.level is Level.WARN
        assert files.level is Level.GOOD
    (root / "etc/cdi").mkdir(parents=True)
    plugins, _, access, _ = check_node(root)
    assert plugins.level is Level.FAIL, "nobody listens any more"
    assert "CDI" in access.text


def test_a_cluster_is_judged_by_its_nodes_and_webhook(tmp_path: Path) -> None:
    with ApiServer() as server:
        path = write_kubeconfig(server.url, tmp_path / "config")
        server.add(node("good", memory_units=4, annotations={names.INVENTORY: "{}"}))
        server.add(node("away", annotations={names.INVENTORY: "{}"}))
        findings = list(check_cluster(path, None))
    told = {(finding.subject, finding.level) for finding in findings}
    assert ("cluster", Level.GOOD) in told
    assert ("nodes", Level.FAIL) in told
    assert ("nodes", Level.GOOD) in told
    assert ("webhook", Level.WARN) in told
    (unreachable,) = check_cluster(path, None)
    assert unreachable.level is Level.FAIL


def test_no_kubeconfig_is_no_fault(tmp_path: Path) -> None:
    assert [each.level for each in check_cluster(tmp_path / "none", None)] == [Level.NOTE]
