"""The REST paths of the resources that we touch."""

from urllib.parse import quote

__all__ = [
    "BUDGETS",
    "NODES",
    "PODS",
    "binding_path",
    "events_path",
    "eviction_path",
    "lease_path",
    "leases_path",
    "node_path",
    "pod_path",
    "pods_path",
]

PODS = "/api/v1/pods"
"""Of all namespaces, for lists and watches."""
NODES = "/api/v1/nodes"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{_word(namespace)}/pods"


def pod_path(namespace: str, name: str) -> str:
    return f"{pods_path(namespace)}/{_word(name)}"


def binding_path(namespace: str, name: str) -> str:
    return f"{pod_path(namespace, name)}/binding"


def eviction_path(namespace: str, name: str) -> str:
    return f"{pod_path(namespace, name)}/eviction"


def node_path(name: str) -> str:
    return f"{NODES}/{_word(name)}"


def events_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{_word(namespace)}/events"


def leases_path(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{_word(namespace)}/leases"


def lease_path(namespace: str, name: str) -> str:
    return f"{leases_path(namespace)}/{_word(name)}"


def _word(text: str) -> str:
    # Names come from users as well: a slash must not lead to another resource.
    return quote(text, safe="")
