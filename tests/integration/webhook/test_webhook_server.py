"""The webhook as the API server reaches it: HTTPS with our own certificates, real bytes."""

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from aliquot.protocol import names
from scheduler_ext.certificates import Lifetimes, ServingContext
from scheduler_ext.certificates.material import renewed
from scheduler_ext.server import Server
from scheduler_ext.webhook import GpuCatalog, GpuKind, Webhook, WebhookSettings, webhook_routes

CATALOG = GpuCatalog(frozenset({GpuKind("NVIDIA A100-SXM4-80GB", 320)}))


class Client:
    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._connection = http.client.HTTPSConnection(
            "localhost", port, context=context, timeout=60
        )

    def post(self, path: str, body: bytes) -> tuple[int, Any]:
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def client() -> Iterator[Client]:
    material = renewed(None, ["localhost"], datetime.now(UTC), Lifetimes())
    webhook = Webhook(WebhookSettings(), lambda: CATALOG)
    server = Server(webhook_routes(webhook), tls=ServingContext(material).context)
    server.start()
    trusting = ssl.create_default_context(cadata=material.trusted_pem.decode())
    made = Client(server.port, trusting)
    yield made
    made.close()
    server.stop()


def review(**limits: str) -> bytes:
    pod = {
        "metadata": {"name": "train"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    request = {"uid": "1", "kind": {"kind": "Pod"}, "operation": "CREATE", "object": pod}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "request": request}).encode()


def test_a_pod_is_converted(client: Client) -> None:
    status, answer = client.post("/mutate", review(**{names.MEMORY_RESOURCE: "4Gi"}))
    assert status == 200
    patch = json.loads(base64.b64decode(answer["response"]["patch"]))
    place = "/spec/containers/0/resources/limits/aliquot.dev~1gpu-memory"
    assert {"op": "replace", "path": place, "value": "16"} in patch


def test_a_refusal_is_an_answer_not_an_error(client: Client) -> None:
    status, answer = client.post("/validate", review(**{names.COMPUTE_RESOURCE: "150"}))
    assert status == 200
    assert answer["response"]["allowed"] is False
    assert "no multiple of 100" in answer["response"]["status"]["message"]


def test_nonsense_is_a_400_and_the_connection_lives_on(client: Client) -> None:
    status, answer = client.post("/mutate", b"{")
    assert status == 400
    assert "no AdmissionReview" in answer["error"]
    assert client.post("/mutate", review(**{names.MEMORY_RESOURCE: "4Gi"}))[0] == 200


@pytest.mark.parametrize("depth", [900, 100_000])
def test_what_is_nested_too_deeply_is_a_400(client: Client, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    for path in ("/mutate", "/validate"):
        given = review(**{names.MEMORY_RESOURCE: "4Gi"})
        status, answer = client.post(path, given.replace(b'"main"', b'"main", "deep": ' + nested))
        assert (status, answer) == (400, {"error": "the body is nested too deeply"})
    assert client.post("/mutate", review(**{names.MEMORY_RESOURCE: "4Gi"}))[0] == 200
