"""An API server for tests: in this process, over real HTTP, with faults that a test drives."""

from simcluster.apiserver.faults import Gate
from simcluster.apiserver.kubeconfig import write_kubeconfig
from simcluster.apiserver.manifests import mirror, node, owned_by, pod
from simcluster.apiserver.operations import RejectedError
from simcluster.apiserver.server import ApiServer

__all__ = [
    "ApiServer",
    "Gate",
    "RejectedError",
    "mirror",
    "node",
    "owned_by",
    "pod",
    "write_kubeconfig",
]
