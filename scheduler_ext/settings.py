"""What an administrator can set for the extender."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliquot import settings
from aliquot.protocol.names import SCHEDULER_NAME
from aliquot.protocol.request import PLACEMENTS
from aliquot.settings import Address, Row, address, mib, one_of, or_off, path, seconds, whole, words

__all__ = ["ROWS", "Settings", "add_options", "load", "markdown_table"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Every field is a row of the table below, which says what it means."""

    listen: Address
    listen_tls: Address | None
    dashboard: Address | None
    kubeconfig: Path | None
    namespace: str
    pod_name: str
    leader_election: bool
    unit_mib: int
    placement: str
    assume_s: float
    group_wait_s: float
    default_compute_percent: int
    scheduler_name: str
    runtime_class: str
    init_containers: str
    shim_off_namespaces: tuple[str, ...]
    webhook_service: str
    extender_account: str
    agent_account: str
    log_format: str
    log_level: str


def _switch(text: str) -> bool:
    return one_of("on", "off")(text) == "on"


_ACCOUNT = "system:serviceaccount:aliquot-system"

# fmt: off
ROWS = (
    Row("listen", "listen", "ADDRESS", ":9420", address,
        "HTTP: kube-scheduler's verbs, /explain, /view, /metrics, /readyz, /livez"),
    Row("listen_tls", "listen-tls", "ADDRESS", ":9443", or_off(address),
        "HTTPS: the admission webhook, /metrics, /readyz, /livez; off for none"),
    Row("dashboard", "dashboard", "ADDRESS", ":9430", or_off(address),
        "HTTP: the web page and /view, and nothing else; off for none"),
    Row("kubeconfig", "kubeconfig", "FILE", "", path,
        "which cluster; empty for the pod's service account, or KUBECONFIG"),
    Row("namespace", "namespace", "NAME", "aliquot-system", str,
        "where our lease, our certificates and our own pod are", "POD_NAMESPACE"),
    Row("pod_name", "pod-name", "NAME", "", str,
        "our own pod, which is labelled while it leads; empty to label none", "POD_NAME"),
    Row("leader_election", "leader-election", "HOW", "on", _switch,
        "on, or off when there is only one replica"),
    Row("unit_mib", "memory-unit", "SIZE", "256Mi", mib,
        "the memory that one unit stands for; the node agents' value"),
    Row("placement", "placement", "POLICY", "fragmentation", one_of(*PLACEMENTS),
        f"for pods that name none: {', '.join(PLACEMENTS)}"),
    Row("assume_s", "assume-seconds", "SECONDS", "15", seconds,
        "how long GPUs are kept for a pod between our choice and kube-scheduler's bind"),
    Row("group_wait_s", "group-wait-seconds", "SECONDS", "30", seconds,
        "how long room is held for the members of a group that have not come yet"),
    Row("default_compute_percent", "default-compute", "PERCENT", "10", whole(1, 100),
        "for containers that ask for memory only"),
    Row("scheduler_name", "scheduler-name", "NAME", SCHEDULER_NAME, str,
        "who schedules pods that name us; empty leaves what they say"),
    Row("runtime_class", "runtime-class", "NAME", "", str,
        "runtimeClassName for pods that name us and none of those; empty adds none"),
    Row("init_containers", "init-containers", "RULE", "refuse",
        one_of("refuse", "warn", "allow"), "when they ask for GPUs: refuse, warn, allow"),
    Row("shim_off_namespaces", "shim-off-namespaces", "NAME,...", "", words,
        "namespaces whose pods may switch the shim off"),
    Row("webhook_service", "webhook-service", "NAME", "aliquot-webhook", str,
        "the Service through which the API server reaches the webhook"),
    Row("extender_account", "extender-account", "USER", f"{_ACCOUNT}:aliquot-extender", str,
        "who may write plans on pods: our own service account"),
    Row("agent_account", "agent-account", "USER", f"{_ACCOUNT}:aliquot-agent", str,
        "who may write on pods what they were given: the node agents' service account"),
    Row("log_format", "log-format", "FORM", "text", one_of("text", "json"), "text or json"),
    Row("log_level", "log-level", "LEVEL", "info", one_of("debug", "info", "warning", "error"),
        "how much to log: debug, info, warning, error"),
)
# fmt: on


def add_options(parser: argparse.ArgumentParser) -> None:
    settings.add_options(parser, ROWS)


def load(options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    return Settings(**settings.load_values(ROWS, options, environment))


def markdown_table() -> str:
    return settings.markdown_table(ROWS)


if __name__ == "__main__":
    print(markdown_table(), end="")
