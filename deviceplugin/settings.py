"""What an administrator can set: one table behind flags, environment, config file and docs."""

import argparse
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliquot.errors import UserError
from aliquot.sizes import parse_size
from deviceplugin.configfile import ConfigFile
from deviceplugin.sharing import POLICIES

__all__ = ["Settings", "add_options", "load", "markdown_table"]

VARIABLE_PREFIX = "ALIQUOT_"
CONFIG_VARIABLE = f"{VARIABLE_PREFIX}CONFIG"


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
    log_format: str
    log_level: str


def _name(text: str) -> str:
    return text or socket.gethostname()


def _path(text: str) -> Path | None:
    return Path(text).absolute() if text else None


def _size(text: str) -> int:
    if "%" in text:
        raise UserError(f"{text} is a percentage; write a size like 256Mi")
    return parse_size(text, 0)


def _unit(text: str) -> int:
    size_bytes = _size(text)
    if size_bytes < 1 << 20 or size_bytes % (1 << 20):
        raise UserError(f"{text} is no whole number of Mi; write it like 256Mi")
    return size_bytes


def _percent(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 100 <= int(text) <= 1000):
        raise UserError(f"{text!r} is not a whole number from 100 to 1000")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise UserError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


def _listen(text: str) -> tuple[str, int] | None:
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UserError(f"{text!r} is no address; write it like :9410, 127.0.0.1:9410, or off")
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True)
class _Row:
    attribute: str
    name: str
    shows: str
    """Stands for the value in help texts."""
    default: str
    read: Callable[[str], Any]
    meaning: str

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.replace("-", "_").upper()


ROWS = (
    _Row("node_name", "node-name", "NAME", "", _name, "this node's name in the cluster"),
    _Row("kubelet_dir", "kubelet-dir", "DIR", "/var/lib/kubelet", Path, "the kubelet's folder"),
    _Row(
        "state_dir",
        "state-dir",
        "DIR",
        "/var/lib/aliquot",
        Path,
        "our own folder; the same path here and on the host",
    ),
    _Row(
        "gpus",
        "gpus",
        "GPU,...",
        "",
        _words,
        "numbers or uuids of the GPUs that are ours; empty for all",
    ),
    _Row(
        "gpus_left",
        "gpus-left",
        "GPU,...",
        "",
        _words,
        "numbers or uuids of GPUs that are left to others",
    ),
    _Row(
        "memory_unit_bytes",
        "memory-unit",
        "SIZE",
        "256Mi",
        _unit,
        "the memory that one id stands for",
    ),
    _Row(
        "kept_back_bytes",
        "memory-kept-back",
        "SIZE",
        "0",
        _size,
        "memory of each GPU that is never given away",
    ),
    _Row(
        "compute_percent",
        "compute-percent",
        "PERCENT",
        "100",
        _percent,
        "compute of each GPU; more than 100 over-commits it",
    ),
    _Row(
        "default_policy",
        "default-policy",
        "POLICY",
        "burst",
        _one_of(*POLICIES),
        f"for pods that name no compute policy: {', '.join(POLICIES)}",
    ),
    _Row(
        "gpu_access",
        "gpu-access",
        "HOW",
        "auto",
        _one_of("auto", "cdi", "runtime", "nodes", "simulated"),
        "how containers reach a GPU: auto, cdi, runtime (NVIDIA's), nodes (of /dev), simulated",
    ),
    _Row("host_dir", "host-dir", "DIR", "/", Path, "where we see the host's own files"),
    _Row(
        "sim_libraries",
        "sim-libraries",
        "DIR",
        "",
        _path,
        "the driver of simulated GPUs, for gpu-access simulated",
    ),
    _Row(
        "sim_state",
        "sim-state",
        "FILE",
        "",
        _path,
        "the state of simulated GPUs, alone in its folder, for gpu-access simulated",
    ),
    _Row(
        "usage_store",
        "usage-store",
        "WHERE",
        "tmpfs",
        _one_of("tmpfs", "folder"),
        "where containers write usage: tmpfs, or folder, which lets them fill the node's disk",
    ),
    _Row(
        "shim_off_namespaces",
        "shim-off-namespaces",
        "NAME,...",
        "",
        _words,
        "namespaces whose pods may switch the shim off",
    ),
    _Row(
        "breach",
        "breach",
        "WHAT",
        "report",
        _one_of("report", "evict"),
        "what happens to a pod that passes its memory cap: report, evict",
    ),
    _Row(
        "api_server",
        "api-server",
        "HOW",
        "auto",
        _one_of("auto", "off"),
        "off works without any API server; auto asks the one of the service account or KUBECONFIG",
    ),
    _Row(
        "listen",
        "listen",
        "ADDRESS",
        ":9410",
        _listen,
        "for /metrics, /readyz and /livez; off for none",
    ),
    _Row("log_format", "log-format", "FORM", "text", _one_of("text", "json"), "text or json"),
    _Row(
        "log_level",
        "log-level",
        "LEVEL",
        "info",
        _one_of("debug", "info", "warning", "error"),
        "how much to log: debug, info, warning, error",
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"a TOML file with settings (also {CONFIG_VARIABLE})",
    )
    for row in ROWS:
        default = f" (default: {row.default})" if row.default else ""
        parser.add_argument(
            row.flag,
            dest=row.attribute,
            metavar=row.shows,
            help=row.meaning.replace("%", "%%") + default,
        )


def load(options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """A flag counts before the environment, that before the file, that before the default."""
    texts: dict[str, tuple[str, str]] = {}
    for row in ROWS:
        if options.get(row.attribute) is not None:
            texts[row.name] = options[row.attribute], row.flag
        elif row.variable in environment:
            texts[row.name] = environment[row.variable], row.variable
    if path := options.get("config") or environment.get(CONFIG_VARIABLE):
        file = ConfigFile(Path(path), [row.name for row in ROWS])
        node_name = _name(texts.get("node-name", ("", ""))[0])
        texts = {**file.texts(node_name), **texts}
    return Settings(**{row.attribute: _value(row, texts.get(row.name)) for row in ROWS})


def _value(row: _Row, given: tuple[str, str] | None) -> Any:
    text, origin = given or (row.default, row.flag)
    try:
        return row.read(text)
    except UserError as error:
        raise UserError(f"{origin}: {error}") from None


def markdown_table() -> str:
    lines = ["| flag, and key in the file | environment | default | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{row.flag} {row.shows}` | `{row.variable}` "
        f"| {f'`{row.default}`' if row.default else ''} | {row.meaning} |"
        for row in ROWS
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_table(), end="")
