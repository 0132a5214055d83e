"""A node that loses its power, with GPUs that are full.

The last of its folder: an API server goes on to ask the webhook over connections to an extender
that could not say that it ends, and gives up on each after 5 s. Deployments try again; people, and
tests that make pods one by one, are told so.
"""

from tests.e2e.installation import UNITS_A_GPU, Installation
from tests.e2e.workloads import Workloads, deployment

GIB_IN_MIB = 1024


def test_a_node_that_reboots_comes_back(installed: Installation, workloads: Workloads) -> None:
    """A kubelet that boots refuses the pods it had, before any device plugin can register; their
    Deployment replaces them, and what they held must be free again."""
    cluster = installed.cluster
    cluster.apply(deployment("rebooted", "see", "wait", replicas=4, memory="70Gi", compute=90))
    try:
        before = workloads.await_replicas("rebooted", 4)
        node = cluster.node_of(before[0])
        lost = {name for name in before if cluster.node_of(name) is node}
        assert len(lost) == 2

        node.crash()
        node.boot()
        node.join()
        again = workloads.await_replicas("rebooted", 4, without=lost)
        assert set(before) - lost <= set(again), "the other node's pods are the same as before"
        installed.await_ready()
        for name in again:
            (seen,) = workloads.await_line(name, "see")
            assert seen["total_mib"] == 70 * GIB_IN_MIB
        for units, percent in workloads.booked(*again).values():
            assert units <= UNITS_A_GPU
            assert percent <= 100
    finally:
        cluster.kubectl("delete", "deployment", "rebooted", "--wait=true", "--cascade=foreground")
