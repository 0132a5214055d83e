"""What an administrator can set for the node agent."""

import argparse
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliquot import settings
from aliquot.errors import UserError
from aliquot.settings import Row, address, folder, mib, one_of, or_off, path, size, whole, words
from deviceplugin.booking.sharing import POLICIES

__all__ = [
    "ROWS",
    "Settings",
    "add_options",
    "agent_url",
    "check_simulation",
    "load",
    "markdown_table",
]


@dataclass(frozen=True, slots=True)
class Settings:
    """Every field is a row of the table below, which says what it means."""

    node_name: str
    kubelet_dir: Path
    state_dir: Path
    gpus: tuple[str, ...]
    gpus_left: tuple[str, ...]
    memory_unit_bytes: int
    kept_back_bytes: int
    compute_percent: int
    default_policy: str
    gpu_access: str
    host_dir: Path
    sim_libraries: Path | None
    sim_state: Path | None
    usage_store: str
    shim_off_namespaces: tuple[str, ...]
    breach: str
    api_server: str
    listen: tuple[str, int] | None
    advertise_url: str
    log_format: str
    log_level: str


def _name(text: str) -> str:
    return text or socket.gethostname()


def _unit(text: str) -> int:
    return mib(text) << 20


def _advertised(text: str) -> str:
    if not text or text.startswith(("http://", "https://")):
        return text.rstrip("/")
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        raise UserError(f"{text!r} is neither an address nor a URL like http://HOST:9410") from None
    return text.strip("[]")


ROWS = (
    Row("node_name", "node-name", "NAME", "", _name, "this node's name in the cluster"),
    Row("kubelet_dir", "kubelet-dir", "DIR", "/var/lib/kubelet", folder, "the kubelet's folder"),
    Row(
        "state_dir",
        "state-dir",
        "DIR",
        "/var/lib/aliquot",
        folder,
        "our own folder; the same path here and on the host",
    ),
    Row(
        "gpus",
        "gpus",
        "GPU,...",
        "",
        words,
        "the GPUs that are ours, best by uuid: numbers shift when a GPU fails; empty for all",
    ),
    Row(
        "gpus_left",
        "gpus-left",
        "GPU,...",
        "",
        words,
        "GPUs that are left to others, best by uuid: numbers shift when a GPU fails",
    ),
    Row(
        "memory_unit_bytes",
        "memory-unit",
        "SIZE",
        "256Mi",
        _unit,
        "the memory that one id stands for",
    ),
    Row(
        "kept_back_bytes",
        "memory-kept-back",
        "SIZE",
        "0",
        size,
        "memory of each GPU that is never given away",
    ),
    Row(
        "compute_percent",
        "compute-percent",
        "PERCENT",
        "100",
        whole(100, 1000),
        "compute of each GPU; more than 100 over-commits it",
    ),
    Row(
        "default_policy",
        "default-policy",
        "POLICY",
        "burst",
        one_of(*POLICIES),
        f"for pods that name no compute policy: {', '.join(POLICIES)}",
    ),
    Row(
        "gpu_access",
        "gpu-access",
        "HOW",
        "auto",
        one_of("auto", "cdi", "runtime", "nodes", "simulated"),
        "how containers reach a GPU: auto, cdi, runtime (NVIDIA's), nodes (of /dev), simulated",
    ),
    Row("host_dir", "host-dir", "DIR", "/", folder, "where we see the host's own files"),
    Row(
        "sim_libraries",
        "sim-libraries",
        "DIR",
        "",
        path,
        "the driver of simulated GPUs, for gpu-access simulated",
    ),
    Row(
        "sim_state",
        "sim-state",
        "FILE",
        "",
        path,
        "the state of simulated GPUs, alone in its folder, for gpu-access simulated",
    ),
    Row(
        "usage_store",
        "usage-store",
        "WHERE",
        "tmpfs",
        one_of("tmpfs", "folder"),
        "where containers write usage: tmpfs, or folder, which lets them fill the node's disk",
    ),
    Row(
        "shim_off_namespaces",
        "shim-off-namespaces",
        "NAME,...",
        "",
        words,
        "namespaces whose pods may switch the shim off",
    ),
    Row(
        "breach",
        "breach",
        "WHAT",
        "report",
        one_of("report", "evict"),
        "what happens to a pod that passes its memory cap: report, evict",
    ),
    Row(
        "api_server",
        "api-server",
        "HOW",
        "auto",
        one_of("auto", "off"),
        "off works without any API server; auto asks the one of the service account or KUBECONFIG",
    ),
    Row(
        "listen",
        "listen",
        "ADDRESS",
        ":9410",
        or_off(address),
        "for /metrics, /view, /readyz and /livez; off for none",
    ),
    Row(
        "advertise_url",
        "advertise-url",
        "URL",
        "",
        _advertised,
        "where the cluster reaches `--listen`: http://... or just our address, which is that of "
        "the pod when not given (POD_IP)",
        usual_variable="POD_IP",
    ),
    Row("log_format", "log-format", "FORM", "text", one_of("text", "json"), "text or json"),
    Row(
        "log_level",
        "log-level",
        "LEVEL",
        "info",
        one_of("debug", "info", "warning", "error"),
        "how much to log: debug, info, warning, error",
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    settings.add_options(parser, ROWS)


def load(options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    return Settings(**settings.load_values(ROWS, options, environment, node=_name))


def check_simulation(given: Settings) -> None:
    """Nobody but an administrator can put there what simulated GPUs need."""
    if given.gpu_access != "simulated":
        return
    for flag, path_given in (
        ("--sim-libraries", given.sim_libraries),
        ("--sim-state", given.sim_state),
    ):
        if path_given is None:
            raise UserError(f"--gpu-access simulated needs {flag}")
        if not path_given.exists():
            raise UserError(f"{flag}: there is no {path_given}; `aliquot sim host` makes it")


def agent_url(given: Settings, port: int) -> str:
    """Where others in the cluster find our pages; empty when they cannot."""
    advertised = given.advertise_url
    if not advertised or "://" in advertised:
        return advertised
    if given.listen is None or (_is_loopback(given.listen[0]) and not _is_loopback(advertised)):
        return ""
    is_v6 = ipaddress.ip_address(advertised).version == 6
    return f"http://[{advertised}]:{port}" if is_v6 else f"http://{advertised}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def markdown_table() -> str:
    return settings.markdown_table(ROWS)


if __name__ == "__main__":
    print(markdown_table(), end="")
