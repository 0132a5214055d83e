"""What the API server can tell: nodes without their agent, the webhook's certificate, the clock."""

import base64
import binascii
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path

import msgspec
from cryptography import x509

from aliquot.doctor.finding import Finding, fail, good, note, warn
from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.credentials import find_connection
from aliquot.kubernetes.errors import ApiServerError, NoClusterError
from aliquot.kubernetes.objects import Node
from aliquot.kubernetes.paths import NODES
from aliquot.protocol import inventory, names
from aliquot.protocol.assignment import MalformedError

__all__ = ["check_cluster", "judge_bundle", "judge_clock", "judge_nodes"]

CLOCK_SECONDS_MOST = 2.0
SOON_DAYS = 3
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_NAMED = 5
"""More names than this help nobody."""


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    client_config: _ClientConfig = _ClientConfig()


class _Configuration(msgspec.Struct, frozen=True):
    webhooks: tuple[_Webhook, ...] = ()


@dataclass(slots=True)
class _Dates:
    """Remembers when the server last spoke, by its clock and by ours."""

    ahead_s: float | None = None

    def hear(self, headers: Message) -> None:
        told = headers.get("Date")
        if told:
            self.ahead_s = parsedate_to_datetime(told).timestamp() - time.time()


def check_cluster(kubeconfig: Path | None, context: str | None) -> Iterator[Finding]:
    try:
        connection = find_connection(kubeconfig, context)
    except NoClusterError as error:
        yield note("cluster", str(error))
        return
    dates = _Dates()
    connection.http.on_answer = dates.hear
    client = ApiClient(connection.http, namespace=connection.namespace)
    try:
        version = client.get("/version", _Version).git_version
        yield good("cluster", f"Kubernetes {version} answers")
        if dates.ahead_s is not None:
            yield judge_clock(dates.ahead_s)
        yield from judge_nodes(client.list(NODES, Node).items)
        yield from _judge_webhooks(client.list(_WEBHOOKS, _Configuration).items)
    except ApiServerError as error:
        yield fail("cluster", str(error), "check the kubeconfig, the network and your rights")
    finally:
        client.close()


def judge_clock(ahead_s: float) -> Finding:
    # The header has whole seconds.
    if abs(ahead_s) <= CLOCK_SECONDS_MOST:
        return good("clock", "agrees with the API server's")
    return warn(
        "clock",
        f"the API server's is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'}",
        "let both follow a time server; certificates and tokens are judged by the clock",
    )


def judge_nodes(nodes: list[Node]) -> Iterator[Finding]:
    ours = [node for node in nodes if _reports_gpus(node)]
    if not ours:
        yield warn(
            "nodes",
            f"none of {len(nodes)} nodes has shared GPUs",
            "apply the DaemonSet, and see its pods' logs",
        )
        return
    silent = sorted(node.metadata.name for node in ours if not _offers(node))
    if silent:
        more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        yield fail(
            "nodes",
            f"nothing is offered by {', '.join(silent[:_NAMED])}{more}: the node agent is away",
            "see the DaemonSet's pods there; running containers keep their share meanwhile",
        )
    yield good("nodes", f"{len(ours) - len(silent)} of {len(nodes)} nodes offer shared GPUs")


def _reports_gpus(node: Node) -> bool:
    """Agents run on nodes without GPUs, too, and say that there are none."""
    report = node.metadata.annotations.get(names.INVENTORY)
    if report is None:
        return False
    try:
        return bool(inventory.decode(report).gpus)
    except MalformedError:
        return True


def _offers(node: Node) -> bool:
    return node.status.allocatable.get(names.MEMORY_RESOURCE, "0") != "0"


def _judge_webhooks(configurations: list[_Configuration]) -> Iterator[Finding]:
    ours = [
        webhook
        for configuration in configurations
        for webhook in configuration.webhooks
        if webhook.name.endswith(names.DOMAIN)
    ]
    if not ours:
        yield warn(
            "webhook",
            "there is none, so quantities such as 4Gi are not understood",
            "apply the extender's manifests",
        )
    for webhook in ours:
        yield judge_bundle(webhook.client_config.ca_bundle, datetime.now(UTC))


def judge_bundle(bundle: str, now: datetime) -> Finding:
    try:
        certificates = x509.load_pem_x509_certificates(base64.b64decode(bundle, validate=True))
    except (ValueError, binascii.Error):
        return fail(
            "webhook",
            "its configuration has no certificate, so pods with shares cannot be created",
            "see the extender's log; it writes the certificate itself",
        )
    last = max(certificate.not_valid_after_utc for certificate in certificates)
    left_days = (last - now).days
    if left_days < SOON_DAYS:
        return fail(
            "webhook",
            f"its certificate ends on {last:%Y-%m-%d}",
            "the extender renews it long before: see why its replicas do not run",
        )
    return good("webhook", f"its certificate is good for {left_days} days")
