"""The last test: nothing of Aliquot stays on a node."""

from aliquot.protocol import names
from tests.e2e.cluster import Cluster
from tests.e2e.daemons import await_true
from tests.e2e.installation import Installation
from tests.e2e.workloads import Workloads, pod

KINDS = (
    "clusterroles",
    "clusterrolebindings",
    "mutatingwebhookconfigurations",
    "namespaces",
    "priorityclasses",
    "rolebindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
)


def cleaners_logs(cluster: Cluster) -> str:
    words = (
        "logs",
        "--namespace=kube-system",
        "--selector=app.kubernetes.io/name=aliquot-uninstall",
    )
    return cluster.kubectl(*words, "--container=uninstall", "--tail=-1", check=False)


def test_uninstalling_leaves_the_nodes_clean(installed: Installation, workloads: Workloads) -> None:
    """Even when a pod still has its share: its node waits for it, and it keeps its limits."""
    cluster = installed.cluster
    last = pod("last", "see", "fill", "wait", memory="1Gi", compute=10)
    workloads.start(last)
    workloads.await_line("last", "fill")
    await_true("all others are gone", lambda: len(cluster.api.every("pod")) == 1)
    installed.uninstall()

    def end_the_last() -> None:
        await_true("it is waited for", lambda: "last" in cleaners_logs(cluster))
        beyond = cluster.kubectl("exec", "last", "--", "client", "see", check=False)
        assert "cuDevicePrimaryCtxRetain answered 2" in beyond, "its memory is full as before"
        workloads.end("last")

    installed.clean_nodes(meanwhile=end_the_last)
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
    left = cluster.kubectl("get", ",".join(KINDS), "--all-namespaces", "-o", "name")
    assert "aliquot" not in left
    nodes = cluster.kubectl("get", "nodes", "-o", "json")
    assert names.INVENTORY not in nodes
