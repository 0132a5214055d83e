"""Other ways to install, after the first is gone: Helm with evictions, CDI, NVIDIA's runtime."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.attacks import BEYOND_CAP, OWN_LOADER, hostile_pod
from tests.e2e.binaries import binaries
from tests.e2e.cluster import Cluster
from tests.e2e.daemons import await_true
from tests.e2e.hardware import STATE, equip, unequip
from tests.e2e.images import PRODUCT_IMAGE
from tests.e2e.installation import NAMESPACE, Installation
from tests.e2e.instructions import INSTALL_PAGE, commands
from tests.e2e.node import Node
from tests.e2e.places import CHECKOUT
from tests.e2e.thief import Thief
from tests.e2e.workloads import Workloads, pod

GIB_IN_MIB = 1024
SUCCESS, OUT_OF_MEMORY = 0, 2
HARDWARE_VOLUME = {"name": "hardware", "hostPath": {"path": str(STATE.parent)}}


def type_in(cluster: Cluster, heading: str, *helms: str) -> None:
    """What docs tell those who use Helm, with these options of helm besides."""
    config = f"--kubeconfig={cluster.control_plane.admin}"
    for program, *words in commands(INSTALL_PAGE, heading, block=1):
        if program == "helm":
            command = [str(binaries()["helm"]), *words, *helms, config]
            subprocess.run(command, check=True, cwd=CHECKOUT)
        else:
            cluster.kubectl(*words)


@pytest.fixture
def bare(cluster: Cluster) -> Cluster:
    return stripped(cluster)


def stripped(cluster: Cluster) -> Cluster:
    """Without the installation of the other tests, if they were not run to their end."""
    if cluster.api.find("namespace", NAMESPACE) is not None:
        first = Installation(cluster)
        first.uninstall()
        first.clean_nodes()
    return cluster


@pytest.fixture
def helm_installed(bare: Cluster) -> Iterator[Installation]:
    type_in(bare, "2. The manifests", "--set=gpus=simulated", "--set=evict=true")
    installation = Installation(bare)
    installation.await_ready()
    yield installation
    type_in(bare, "Removing it", "--timeout=15m")
    installation.clean_nodes()


def test_helm_installs_and_a_pod_beyond_its_cap_is_evicted(helm_installed: Installation) -> None:
    cluster, workloads = helm_installed.cluster, Workloads(helm_installed.cluster)
    try:
        workloads.start(pod("honest", "see", "fill", "wait", memory="1Gi", compute=10))
        assert workloads.await_line("honest", "fill")["refused_with"] == OUT_OF_MEMORY
        workloads.start(hostile_pod(OWN_LOADER + f"{BEYOND_CAP} wait"))
        workloads.await_phase("hostile", "")
        assert "evicted by aliquot" in cluster.kubectl("get", "events")
        assert workloads.phase("honest") == "Running"

        [agent, *_], [extender, *_] = (helm_installed.pods(each) for each in ("agent", "extender"))
        thief = Thief(cluster, agent["metadata"]["name"])
        for namespace, name in ((NAMESPACE, extender["metadata"]["name"]), ("kube-system", "any")):
            assert "may evict no pods" in thief.evict(namespace, name)
    finally:
        workloads.end()


@contextmanager
def equipped(cluster: Cluster, nodes: Sequence[Node], folder: Path) -> Iterator[None]:
    """Machines with GPUs of their own, instead of simulated ones that come with the overlay."""
    for node in nodes:
        equip(node, cluster.images()[PRODUCT_IMAGE], folder)
    yield
    for node in nodes:
        unequip(node)


@contextmanager
def installed_with(
    cluster: Cluster, overlay: str | Path, nodes: Sequence[Node]
) -> Iterator[Installation]:
    installation = Installation(cluster, overlay, nodes)
    installation.install()
    yield installation
    installation.uninstall()
    installation.clean_nodes()


@pytest.fixture
def cdi_installed(bare: Cluster, tmp_path: Path) -> Iterator[Installation]:
    """The cdi overlay as it is; only the state of the simulated hardware is put beside it. One of
    the two nodes has no GPUs."""
    container = "/spec/template/spec/containers/0"
    additions = {
        f"{container}/env/-": {"name": "ALIQUOT_SIM_STATE", "value": str(STATE)},
        f"{container}/volumeMounts/-": {"name": "hardware", "mountPath": str(STATE.parent)},
        "/spec/template/spec/volumes/-": HARDWARE_VOLUME,
    }
    patch = [{"op": "add", "path": path, "value": value} for path, value in additions.items()]
    above = {
        "resources": [os.path.relpath(CHECKOUT / "deploy/overlays/cdi", tmp_path.resolve())],
        "patches": [
            {"target": {"kind": "DaemonSet", "name": "aliquot-agent"}, "patch": json.dumps(patch)}
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(above))
    nodes = bare.nodes[:1]
    with equipped(bare, nodes, tmp_path), installed_with(bare, tmp_path, nodes) as installation:
        yield installation
    for node in bare.nodes:
        assert "aliquot" not in node.machine.run("ls", "/run/cdi")


def test_a_runtime_that_knows_cdi_gives_a_pod_its_gpu(cdi_installed: Installation) -> None:
    sharing = sharing_pod()
    sharing["spec"]["volumes"] = [HARDWARE_VOLUME]
    sharing["spec"]["containers"][0] |= {
        "env": [{"name": "ALIQUOT_SIM_STATE", "value": str(STATE)}],
        "volumeMounts": [{"name": "hardware", "mountPath": str(STATE.parent)}],
    }
    assert_it_has_its_slice(cdi_installed, sharing)
    without_gpus = cdi_installed.cluster.nodes[1]
    assert cdi_installed.allocatable(without_gpus) == 0


@pytest.fixture(scope="module")
def runtime_installed(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    bare, folder = stripped(cluster), tmp_path_factory.mktemp("hardware")
    cluster_wide = ("-f", "deploy/runtime-class.yaml")
    bare.kubectl("apply", *cluster_wide)
    overlay, nodes = "deploy/overlays/nvidia-runtime", bare.nodes
    with equipped(bare, nodes, folder), installed_with(bare, overlay, nodes) as installation:
        yield installation
    bare.kubectl("delete", *cluster_wide)


def test_nvidias_runtime_gives_a_pod_its_gpu(runtime_installed: Installation) -> None:
    """To a pod that names no runtime class: it asks for a share of a GPU, and that is enough."""
    assert_it_has_its_slice(runtime_installed, sharing_pod())


def test_a_pod_that_has_nvidias_runtime_give_it_gpus_is_reported(
    runtime_installed: Installation,
) -> None:
    """It asks for no share, so nobody is asked whether it may have them."""
    intruder = pod("intruder", "take=4096", "wait", runtimeClassName="nvidia")
    everything = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    intruder["spec"]["containers"][0]["env"] = [everything]
    workloads = Workloads(runtime_installed.cluster)
    try:
        workloads.start(intruder)
        assert workloads.await_line("intruder", "take") == SUCCESS
        workloads.await_description("intruder", "GpuLimitBreached")
        counted = {"kind": "not-allocated", "pod": "intruder"}
        await_true(
            "it is counted",
            lambda: any(runtime_installed.metric("agent", "aliquot_breaches_total", **counted)),
        )
    finally:
        workloads.end()


def sharing_pod() -> dict[str, Any]:
    made = pod("sharing", memory="2Gi", compute=20)
    shows = """echo "{\\"nodes\\": \\"$(echo /dev/nvidia*)\\"}"; exec client see fill wait"""
    made["spec"]["containers"][0]["command"] = ["sh", "-c", shows]
    return made


def assert_it_has_its_slice(installed: Installation, sharing: dict[str, Any]) -> None:
    workloads = Workloads(installed.cluster)
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
