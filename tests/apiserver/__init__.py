"""An API server for tests: in this process, over real HTTP, with faults that a test drives."""

from tests.apiserver.faults import Gate
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.manifests import node, pod
from tests.apiserver.operations import RejectedError
from tests.apiserver.server import ApiServer

__all__ = ["ApiServer", "Gate", "RejectedError", "node", "pod", "write_kubeconfig"]
