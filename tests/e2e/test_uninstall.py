"""The last test: nothing of Aliquot stays on a node."""

from aliquot.protocol import names
from tests.e2e.daemons import await_true
from tests.e2e.installation import Installation
from tests.e2e.workloads import Workloads, pod


def test_uninstalling_leaves_the_nodes_clean(installed: Installation, workloads: Workloads) -> None:
    workloads.start(pod("last", "see", "wait", memory="1Gi", compute=10))
    workloads.await_line("last", "see")
    workloads.end()

    cluster = installed.cluster
    await_true("all pods are gone", lambda: not cluster.api.every("pod"))
    installed.uninstall()
    installed.clean_nodes()
    for node in cluster.nodes:
        await_true(
            f"{node.name} advertises nothing",
            lambda node=node: installed.allocatable(node) == 0,  # type: ignore[misc]
        )
        assert node.machine.run("find", "/var/lib", "-maxdepth", "1", "-name", "aliquot*") == ""
        assert node.machine.run("find", "/run/cdi", "/run/aliquot-simulated", check=False) == ""
        mounts = node.machine.run("findmnt", "--list", "--noheadings", "--output=TARGET")
        assert "/var/lib/aliquot" not in mounts
        sockets = node.machine.run("ls", "/var/lib/kubelet/device-plugins")
        assert "aliquot" not in sockets
    left = cluster.kubectl("get", "clusterroles,clusterrolebindings,priorityclasses", "-o", "name")
    assert names.DOMAIN.split(".")[0] not in left
