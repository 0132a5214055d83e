"""Asks the API server to evict a pod, with respect for disruption budgets."""

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError
from aliquot.kubernetes.paths import eviction_path

__all__ = ["evict"]


def evict(client: ApiClient, namespace: str, name: str, uid: str) -> None:
    """Done also when the pod is gone. A budget that forbids it now raises an ApiError of 429."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    try:
        client.create(eviction_path(namespace, name), body)
    except ApiError as error:
        if not error.not_found and not error.conflict:
            raise
