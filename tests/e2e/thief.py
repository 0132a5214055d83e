"""Somebody who has stolen the token of one of our pods, and has nothing else."""

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

from tests.e2e.cluster import Cluster
from tests.e2e.controlplane import SERVER
from tests.e2e.installation import NAMESPACE

__all__ = ["Thief"]

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


class Thief:
    """Each method answers what the API server says; nothing if it does it."""

    def __init__(self, cluster: Cluster, robbed: str) -> None:
        words = ("exec", f"--namespace={NAMESPACE}", robbed, "--", "cat", TOKEN)
        self._token = cluster.kubectl(*words)
        root = cluster.control_plane.authority.root
        self._context = ssl.create_default_context(cafile=str(root))

    def patch(self, path: str, body: dict[str, Any]) -> str:
        return self._ask("PATCH", path, body, "application/strategic-merge-patch+json")

    def evict(self, namespace: str, pod: str) -> str:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        path = f"namespaces/{namespace}/pods/{pod}/eviction"
        return self._ask("POST", path, eviction, "application/json")

    def _ask(self, method: str, path: str, body: dict[str, Any], content: str) -> str:
        request = urllib.request.Request(
            f"{SERVER}/api/v1/{path}",
            method=method,
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": content},
        )
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=60):
                return ""
        except urllib.error.HTTPError as error:
            return str(error.read().decode())
