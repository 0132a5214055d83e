"""Reads of the API server without kubectl: tests ask often, and a program for each question would
take the processor from the cluster that they wait for."""

import json
import ssl
from typing import Any

from aliquot.kubernetes.http import HttpClient
from tests.e2e.certificates import Authority

__all__ = ["Api"]

PLACES = {
    "node": "/api/v1/nodes",
    "namespace": "/api/v1/namespaces",
    "pod": "/api/v1/namespaces/{namespace}/pods",
    "event": "/api/v1/namespaces/{namespace}/events",
    "daemonset": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "resourcequota": "/api/v1/namespaces/{namespace}/resourcequotas",
    "endpointslice": "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
}

Object = dict[str, Any]


class Api:
    def __init__(self, server: str, authority: Authority) -> None:
        tls = ssl.create_default_context(cafile=str(authority.root))
        pair = authority.issue("reader", "reader", ("system:masters",))
        tls.load_cert_chain(pair.certificate, pair.key)
        self._http = HttpClient(server, tls=tls, proxy="")

    def close(self) -> None:
        self._http.close()

    def find(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        text = self._get(f"{_place(kind, namespace)}/{name}")
        return json.loads(text) if text is not None else None

    def pod(self, name: str) -> Object:
        found = self.find("pod", name)
        assert found is not None, f"there is no pod {name}"
        return found

    def every(self, kind: str, labels: str = "", namespace: str = "default") -> list[Object]:
        text = self._get(_place(kind, namespace), labelSelector=labels)
        return list(json.loads(text)["items"]) if text is not None else []

    def events(self, pod: str) -> list[Object]:
        of_pod = f"involvedObject.kind=Pod,involvedObject.name={pod}"
        text = self._get(_place("event", "default"), fieldSelector=of_pod)
        return list(json.loads(text)["items"]) if text is not None else []

    def log(self, pod: str, namespace: str = "default", *, timestamps: bool = False) -> str:
        """What its only container has printed; nothing while it has not started."""
        options = {"timestamps": "true"} if timestamps else {}
        return self._get(f"{_place('pod', namespace)}/{pod}/log", **options) or ""

    def _get(self, path: str, **query: str) -> str | None:
        answer = self._http.request("GET", path, query=query, timeout_s=30)
        if answer.status in (400, 404):
            return None
        text = answer.body.decode(errors="replace")
        if answer.status != 200:
            raise OSError(f"{path}: {answer.status} {text}")
        return text


def _place(kind: str, namespace: str) -> str:
    return PLACES[kind].format(namespace=namespace)
