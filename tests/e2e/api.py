"""Reads of the API server without kubectl: tests ask often, and a program for each question would
take the processor from the cluster that they wait for."""

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from tests.e2e.certificates import Authority

__all__ = ["Api"]

PLACES = {
    "node": "/api/v1/nodes",
    "namespace": "/api/v1/namespaces",
    "pod": "/api/v1/namespaces/{namespace}/pods",
    "daemonset": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "resourcequota": "/api/v1/namespaces/{namespace}/resourcequotas",
    "endpointslice": "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
}

Object = dict[str, Any]


class Api:
    def __init__(self, server: str, authority: Authority) -> None:
        self._server = server
        self._context = ssl.create_default_context(cafile=str(authority.root))
        pair = authority.issue("reader", "reader", ("system:masters",))
        self._context.load_cert_chain(pair.certificate, pair.key)

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        text = self._get(f"{_place(kind, namespace)}/{name}")
        return json.loads(text) if text is not None else None

    def pod(self, name: str) -> Object:
        found = self.find("pod", name)
        assert found is not None, f"there is no pod {name}"
        return found

    def every(self, kind: str, labels: str = "", namespace: str = "default") -> list[Object]:
        selector = urllib.parse.urlencode({"labelSelector": labels})
        text = self._get(f"{_place(kind, namespace)}?{selector}")
        return list(json.loads(text)["items"]) if text is not None else []

    def log(self, pod: str, namespace: str = "default", *, timestamps: bool = False) -> str:
        """What its only container has printed; nothing while it has not started."""
        options = "?timestamps=true" if timestamps else ""
        return self._get(f"{_place('pod', namespace)}/{pod}/log{options}") or ""

    def _get(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(
                self._server + path, context=self._context, timeout=30
            ) as response:
                return str(response.read().decode(errors="replace"))
        except urllib.error.HTTPError as error:
            if error.code in (400, 404):
                return None
            raise


def _place(kind: str, namespace: str) -> str:
    return PLACES[kind].format(namespace=namespace)
