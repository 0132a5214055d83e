"""Keeps the Secret that both replicas share, and the trust that the API server has in it."""

import base64
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError, ApiServerError
from scheduler_ext.certificates.material import Lifetimes, Material, MaterialError, renewed

__all__ = ["CertificateKeeper"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_ATTEMPTS = 10
INTERVAL_S = 300.0
RETRY_S = 10.0


class CertificateKeeper:
    """`refresh` once before serving; then `start`, and `on_change` hears of each renewal."""

    def __init__(
        self,
        client: ApiClient,
        hosts: Sequence[str],
        on_change: Callable[[Material], None],
        *,
        secret: str = "aliquot-webhook",
        configuration: str = "aliquot",
        lifetimes: Lifetimes | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._client = client
        self._hosts = tuple(hosts)
        self._on_change = on_change
        self._secret = secret
        self._secrets_path = f"/api/v1/namespaces/{client.namespace}/secrets"
        self._configuration = configuration
        self._lifetimes = lifetimes or Lifetimes()
        self._clock = clock
        self._interval_s = interval_s
        self._told: dict[str, bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 15.0) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def refresh(self) -> Material:
        """Reads what is shared, renews what is due, and sees to it that the API server trusts it.

        Raises an ApiServerError when the API server cannot be asked.
        """
        material = self._repeated(self._share)
        for kind in _KINDS:
            self._repeated(partial(self._entrust, kind, material.trusted_pem))
        encoded = material.encode()
        if encoded != self._told:
            self._told = encoded
            self._on_change(material)
        return material

    def _run(self) -> None:
        pause_s = self._interval_s
        while not self._stopping.wait(pause_s):
            pause_s = self._interval_s
            try:
                self.refresh()
            except ApiServerError as error:
                log.warning("the webhook's certificates could not be looked after: %s", error)
                pause_s = min(RETRY_S, self._interval_s)

    def _repeated(self, step: Callable[[], T]) -> T:
        """The other replica does the same work; whoever comes second looks again."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return step()
            except ApiError as error:
                if not error.conflict:
                    raise
        return step()

    def _share(self) -> Material:
        stored = self._read(f"{self._secrets_path}/{self._secret}")
        # Manifests bring an empty one, since we may not create any.
        material = _material(stored) if stored and stored.get("data") else None
        due = renewed(material, self._hosts, self._clock(), self._lifetimes)
        if due == material:
            return due
        data = {name: base64.b64encode(pem).decode() for name, pem in due.encode().items()}
        if stored is None:
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "Opaque",
                "metadata": {
                    "name": self._secret,
                    "namespace": self._client.namespace,
                    "labels": {"app.kubernetes.io/name": "aliquot"},
                },
                "data": data,
            }
            self._client.create(self._secrets_path, body)
        else:
            # The resource version that came with it makes this a conflict if it is outdated.
            self._client.update(f"{self._secrets_path}/{self._secret}", {**stored, "data": data})
        log.info("the webhook's certificates were renewed")
        return due

    def _entrust(self, kind: str, trusted_pem: bytes) -> None:
        path = f"{_REGISTRATION}/{kind}/{self._configuration}"
        found = self._read(path)
        if found is None:
            log.warning("there is no %s/%s: pods are not admitted by us", kind, self._configuration)
            return
        bundle = base64.b64encode(trusted_pem).decode()
        clients = [webhook["clientConfig"] for webhook in found.get("webhooks") or ()]
        if all(client.get("caBundle") == bundle for client in clients):
            return
        for client in clients:
            client["caBundle"] = bundle
        self._client.update(path, found)

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            return self._client.get(path, dict[str, Any])
        except ApiError as error:
            if error.not_found:
                return None
            raise


def _material(secret: dict[str, Any]) -> Material | None:
    try:
        data = secret.get("data") or {}
        return Material.decode({name: base64.b64decode(text) for name, text in data.items()})
    except (MaterialError, ValueError) as error:
        log.warning("the Secret of the webhook's certificates is made anew: %s", error)
        return None
