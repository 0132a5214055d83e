"""Replicas share one Secret, the API server trusts it, and a running server takes up renewals."""

import base64
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aliquot.kubernetes.errors import ApiServerError
from scheduler_ext.certificates import CertificateKeeper, Lifetimes, Material, ServingContext
from scheduler_ext.certificates.material import renewed
from scheduler_ext.webhook import webhook_configurations
from simcluster.apiserver import ApiServer

HOSTS = ("aliquot-webhook.aliquot-system.svc", "aliquot-webhook.aliquot-system.svc.cluster.local")
BIRTH = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "/api/v1/namespaces/default/secrets/aliquot-webhook"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"


@contextmanager
def tls_server(context: ssl.SSLContext) -> Iterator[int]:
    """Says hello to whoever completes a handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    stream, _ = listener.accept()
                except OSError:
                    return
                with stream:
                    stream.settimeout(60)
                    try:
                        with context.wrap_socket(stream, server_side=True) as secured:
                            secured.sendall(b"hello")
                    except OSError:
                        # The client did not like the certificate.
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join()


def greeting(port: int, trusted: Material, host: str = HOSTS[0]) -> bytes:
    client = ssl.create_default_context(cadata=trusted.trusted_pem.decode())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as stream,
        client.wrap_socket(stream, server_hostname=host) as secured,
    ):
        return secured.recv(5)


def test_a_running_server_takes_up_new_certificates():
    now = datetime.now(UTC)
    first, second = (renewed(None, HOSTS, now, Lifetimes()) for _ in range(2))
    serving = ServingContext(first)
    with tls_server(serving.context) as port:
        assert greeting(port, first) == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError):
            greeting(port, second)
        serving.load(second)
        assert greeting(port, second) == b"hello"
        with pytest.raises(ssl.SSLCertVerificationError):
            greeting(port, first)
        with pytest.raises(ssl.SSLCertVerificationError):
            greeting(port, second, "elsewhere.svc")


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        client = server.client()
        for each in webhook_configurations("default"):
            client.create(f"{REGISTRATION}/{each['kind'].lower()}s", each)
        yield server


def keeper(
    api: ApiServer, now: Callable[[], datetime], heard: list[Material] | None = None
) -> CertificateKeeper:
    listener = heard if heard is not None else []
    return CertificateKeeper(api.client(), HOSTS, listener.append, clock=now)


def bundles(api: ApiServer) -> set[bytes]:
    client, found = api.client(), set()
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        configuration = client.get(f"{REGISTRATION}/{kind}/aliquot", dict[str, Any])
        for webhook in configuration["webhooks"]:
            found.add(base64.b64decode(webhook["clientConfig"]["caBundle"]))
    return found


def test_both_replicas_serve_the_same_and_the_api_server_trusts_it(api: ApiServer):
    heard: list[Material] = []
    one = keeper(api, lambda: BIRTH, heard).refresh()
    other = keeper(api, lambda: BIRTH).refresh()
    assert one.encode() == other.encode() == heard[0].encode()
    assert bundles(api) == {one.trusted_pem}


def test_the_empty_secret_of_the_manifests_is_filled_in(api: ApiServer, caplog):
    """We have no right to create one."""
    empty = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
    metadata = {"name": "aliquot-webhook", "namespace": "default", "labels": {"a": "b"}}
    api.client().create(SECRET.rpartition("/")[0], {**empty, "metadata": metadata})
    made = keeper(api, lambda: BIRTH).refresh()
    stored = api.client().get(SECRET, dict[str, Any])
    assert base64.b64decode(stored["data"]["ca.crt"]) == made.trusted_pem
    assert stored["metadata"]["labels"] == {"a": "b"}
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_replicas_that_start_at_once_agree(api: ApiServer):
    gate = api.hold(method="POST", path="secrets", times=2)
    made: list[Material] = []
    threads = [
        threading.Thread(target=lambda: made.append(keeper(api, lambda: BIRTH).refresh()))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    # Both have found nothing and are about to write: one of them must come second.
    deadline_s = time.monotonic() + 60
    while sum(each.method == "POST" and "secrets" in each.path for each in api.requests) < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    gate.open()
    for thread in threads:
        thread.join(120)
    assert len(made) == 2
    assert made[0].encode() == made[1].encode()
    assert bundles(api) == {made[0].trusted_pem}


def test_a_renewal_is_told_once_and_shared(api: ApiServer):
    now = [BIRTH]
    heard: list[Material] = []
    first = keeper(api, lambda: now[0], heard)
    first.refresh()
    first.refresh()
    assert len(heard) == 1
    now[0] = BIRTH + timedelta(days=61)
    second = keeper(api, lambda: now[0]).refresh()
    first.refresh()
    assert len(heard) == 2
    assert heard[1].encode() == second.encode()


def test_a_spoiled_secret_is_made_anew_and_a_stripped_configuration_mended(api: ApiServer):
    before = keeper(api, lambda: BIRTH).refresh()
    client = api.client()
    client.patch(SECRET, {"data": {"tls.key": base64.b64encode(b"nonsense").decode()}})
    after = keeper(api, lambda: BIRTH).refresh()
    assert after.encode() != before.encode()
    assert bundles(api) == {after.trusted_pem}
    for each in webhook_configurations("default"):
        path = f"{REGISTRATION}/{each['kind'].lower()}s/aliquot"
        client.delete(path)
        client.create(path.removesuffix("/aliquot"), each)
    assert keeper(api, lambda: BIRTH).refresh().encode() == after.encode()
    assert bundles(api) == {after.trusted_pem}


def test_without_configurations_the_certificates_are_made_all_the_same():
    with ApiServer() as api:
        assert keeper(api, lambda: BIRTH).refresh().certificate


def test_an_api_server_that_fails_is_told_to_whoever_asks(api: ApiServer):
    api.fail(500, method="GET", path="secrets")
    with pytest.raises(ApiServerError):
        keeper(api, lambda: BIRTH).refresh()


def test_the_keeper_goes_on_after_a_failure(api: ApiServer):
    now, heard = [BIRTH], [threading.Event(), threading.Event()]
    told: list[Material] = []

    def on_change(material: Material) -> None:
        told.append(material)
        heard[len(told) - 1].set()

    running = CertificateKeeper(
        api.client(), HOSTS, on_change, clock=lambda: now[0], interval_s=0.02
    )
    running.refresh()
    running.start()
    try:
        api.fail(500, method="GET", path="secrets", times=2)
        now[0] = BIRTH + timedelta(days=61)
        assert heard[1].wait(60)
    finally:
        running.stop()
    assert told[0].certificate != told[1].certificate
