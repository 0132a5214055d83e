"""Other ways to install, after the first is gone: Helm with evictions, and CDI."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy import chart
from simgpu.node import DRIVER_VERSION
from tests.e2e.archives import read_file
from tests.e2e.binaries import binaries
from tests.e2e.cluster import Cluster
from tests.e2e.images import PRODUCT_IMAGE
from tests.e2e.installation import NAMESPACE, Installation
from tests.e2e.node import Node
from tests.e2e.places import CHECKOUT
from tests.e2e.test_hostile import BEYOND_CAP, OWN_LOADER, hostile_pod
from tests.e2e.workloads import Workloads, pod

GIB_IN_MIB = 1024
OUT_OF_MEMORY = 2
DRIVER_FOLDER = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"
SIMULATED = "/run/simulated-hardware"


def helm(cluster: Cluster, *words: str) -> None:
    config = f"--kubeconfig={cluster.control_plane.admin}"
    command = [str(binaries()["helm"]), *words, f"--namespace={NAMESPACE}", config]
    subprocess.run(command, check=True)


@pytest.fixture
def bare(cluster: Cluster) -> Cluster:
    """Without the installation of the other tests, if they were not run to their end."""
    if cluster.api.find("namespace", NAMESPACE) is not None:
        first = Installation(cluster)
        first.uninstall()
        first.clean_nodes()
    return cluster


@pytest.fixture
def helm_installed(bare: Cluster) -> Iterator[Installation]:
    cluster = bare
    settings = ("--set=gpus=simulated", "--set=evict=true", "--create-namespace")
    helm(cluster, "install", "aliquot", str(chart.CHART), *settings)
    installation = Installation(cluster)
    installation.await_ready()
    yield installation
    helm(cluster, "uninstall", "aliquot", "--wait", "--timeout=15m")
    installation.clean_nodes()
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")


def test_helm_installs_and_a_pod_beyond_its_cap_is_evicted(helm_installed: Installation) -> None:
    workloads = Workloads(helm_installed.cluster)
    try:
        workloads.start(pod("honest", "see", "fill", "wait", memory="1Gi", compute=10))
        assert workloads.await_line("honest", "fill")["refused_with"] == OUT_OF_MEMORY
        workloads.start(hostile_pod(OWN_LOADER + f"{BEYOND_CAP} wait"))
        workloads.await_phase("hostile", "")
        assert workloads.phase("honest") == "Running"
    finally:
        workloads.end()


def equip(node: Node, product: Path, folder: Path) -> None:
    """Gives a machine what NVIDIA's driver would: device nodes, and libraries of its version."""
    run = node.machine.run
    run("mkdir", "-p", DRIVER_FOLDER)
    for name in ("libcuda.so", "libnvidia-ml.so"):
        library = folder / name
        library.write_bytes(read_file(product, f"simgpu/lib/{name}.1")[1])
        run("install", library, f"{DRIVER_FOLDER}/{name}.{DRIVER_VERSION}")
        run("ln", "-sf", f"{name}.{DRIVER_VERSION}", f"{DRIVER_FOLDER}/{name}.1")
    simulate = ("sim", "host", "--gpus=2xA100-80G", f"--name={node.name}")
    places = (f"--state={SIMULATED}/node", f"--libraries={folder / 'unused'}")
    run("env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "aliquot.cli", *simulate, *places)
    for name, minor in (("nvidia0", 0), ("nvidia1", 1), ("nvidiactl", 255)):
        run("mknod", "-m", "666", f"/dev/{name}", "c", "195", str(minor))


def unequip(node: Node) -> None:
    devices = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")
    node.machine.run("rm", "-rf", SIMULATED, "/run/nvidia", *devices)


@pytest.fixture
def cdi_installed(bare: Cluster, tmp_path: Path) -> Iterator[Installation]:
    """The cdi overlay as it is; only the state of the simulated hardware is put beside it."""
    cluster = bare
    for node in cluster.nodes:
        equip(node, cluster.images()[PRODUCT_IMAGE], tmp_path)
    container = "/spec/template/spec/containers/0"
    additions = {
        f"{container}/env/-": {"name": "ALIQUOT_SIM_STATE", "value": f"{SIMULATED}/node"},
        f"{container}/volumeMounts/-": {"name": "hardware", "mountPath": SIMULATED},
        "/spec/template/spec/volumes/-": {"name": "hardware", "hostPath": {"path": SIMULATED}},
    }
    patch = [{"op": "add", "path": path, "value": value} for path, value in additions.items()]
    above = {
        "resources": [os.path.relpath(CHECKOUT / "deploy/overlays/cdi", tmp_path.resolve())],
        "patches": [
            {
                "target": {"kind": "DaemonSet", "name": "aliquot-agent"},
                "patch": json.dumps(patch),
            }
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(above))
    installation = Installation(cluster, tmp_path)
    installation.install()
    yield installation
    installation.uninstall()
    installation.clean_nodes()
    for node in cluster.nodes:
        assert "aliquot" not in node.machine.run("ls", "/run/cdi")
        unequip(node)


def test_a_runtime_that_knows_cdi_gives_a_pod_its_gpu(cdi_installed: Installation) -> None:
    workloads = Workloads(cdi_installed.cluster)
    sharing = pod("sharing", memory="2Gi", compute=20)
    shows = """echo "{\\"nodes\\": \\"$(echo /dev/nvidia*)\\"}"; exec client see fill wait"""
    sharing["spec"]["volumes"] = [{"name": "hardware", "hostPath": {"path": SIMULATED}}]
    sharing["spec"]["containers"][0] |= {
        "command": ["sh", "-c", shows],
        "env": [{"name": "ALIQUOT_SIM_STATE", "value": "/hardware/node"}],
        "volumeMounts": [{"name": "hardware", "mountPath": "/hardware"}],
    }
    try:
        workloads.start(sharing)
        (seen,) = workloads.await_line("sharing", "see")
        assert seen["total_mib"] == 2 * GIB_IN_MIB
        assert workloads.await_line("sharing", "fill")["refused_with"] == OUT_OF_MEMORY
        given = workloads.await_line("sharing", "nodes").split()
        assert len(given) == 2
        assert given[0] in ("/dev/nvidia0", "/dev/nvidia1")
        assert given[1] == "/dev/nvidiactl"
    finally:
        workloads.end()
