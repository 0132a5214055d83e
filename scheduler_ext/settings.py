"""What an administrator can set: one table behind flags, environment, config file and docs."""

import argparse
import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliquot.errors import UserError
from aliquot.protocol.names import SCHEDULER_NAME
from aliquot.protocol.request import PLACEMENTS
from aliquot.sizes import parse_size

__all__ = ["ROWS", "Settings", "add_options", "load", "markdown_table"]

VARIABLE_PREFIX = "ALIQUOT_"
CONFIG_VARIABLE = f"{VARIABLE_PREFIX}CONFIG"

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Settings:
    """Every field is a row of the table below, which says what it means."""

    listen: Address
    listen_tls: Address | None
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
    init_containers: str
    shim_off_namespaces: tuple[str, ...]
    webhook_service: str
    extender_account: str
    agent_account: str
    log_level: str


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _mib(text: str) -> int:
    size_bytes = 0 if "%" in text else parse_size(text, 0)
    if size_bytes < 1 << 20 or size_bytes % (1 << 20):
        raise UserError(f"{text} is no whole number of Mi; write it like 256Mi")
    return size_bytes >> 20


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 3600:
        raise UserError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds


def _percent(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 100):
        raise UserError(f"{text!r} is not a whole number from 1 to 100")
    return int(text)


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise UserError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


def _switch(text: str) -> bool:
    return _one_of("on", "off")(text) == "on"


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UserError(f"{text!r} is no address; write it like :9443 or 127.0.0.1:9443")
    return host.strip("[]") or "0.0.0.0", int(port)


def _address_or_off(text: str) -> Address | None:
    return None if text == "off" else _address(text)


@dataclass(frozen=True, slots=True)
class Row:
    attribute: str
    name: str
    shows: str
    """Stands for the value in help texts."""
    default: str
    read: Callable[[str], Any]
    meaning: str
    usual_variable: str = ""
    """Under which manifests usually tell a pod this about itself."""

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.replace("-", "_").upper()


_ACCOUNT = "system:serviceaccount:aliquot-system"

# fmt: off
ROWS = (
    Row("listen", "listen", "ADDRESS", ":9420", _address,
        "HTTP: kube-scheduler's verbs, /explain, /metrics, /readyz, /livez"),
    Row("listen_tls", "listen-tls", "ADDRESS", ":9443", _address_or_off,
        "HTTPS: the admission webhook and all of the above; off for none"),
    Row("kubeconfig", "kubeconfig", "FILE", "", _path,
        "which cluster; empty for the pod's service account, or KUBECONFIG"),
    Row("namespace", "namespace", "NAME", "aliquot-system", str,
        "where our lease, our certificates and our own pod are", "POD_NAMESPACE"),
    Row("pod_name", "pod-name", "NAME", "", str,
        "our own pod, which is labelled while it leads; empty to label none", "POD_NAME"),
    Row("leader_election", "leader-election", "HOW", "on", _switch,
        "on, or off when there is only one replica"),
    Row("unit_mib", "memory-unit", "SIZE", "256Mi", _mib,
        "the memory that one unit stands for; the node agents' value"),
    Row("placement", "placement", "POLICY", "fragmentation", _one_of(*PLACEMENTS),
        f"for pods that name none: {', '.join(PLACEMENTS)}"),
    Row("assume_s", "assume-seconds", "SECONDS", "15", _seconds,
        "how long GPUs are kept for a pod between our choice and kube-scheduler's bind"),
    Row("group_wait_s", "group-wait-seconds", "SECONDS", "30", _seconds,
        "how long room is held for the members of a group that have not come yet"),
    Row("default_compute_percent", "default-compute", "PERCENT", "10", _percent,
        "for containers that ask for memory only"),
    Row("scheduler_name", "scheduler-name", "NAME", SCHEDULER_NAME, str,
        "who schedules pods that name us; empty leaves what they say"),
    Row("init_containers", "init-containers", "RULE", "refuse",
        _one_of("refuse", "warn", "allow"), "when they ask for GPUs: refuse, warn, allow"),
    Row("shim_off_namespaces", "shim-off-namespaces", "NAME,...", "", _words,
        "namespaces whose pods may switch the shim off"),
    Row("webhook_service", "webhook-service", "NAME", "aliquot-webhook", str,
        "the Service through which the API server reaches the webhook"),
    Row("extender_account", "extender-account", "USER", f"{_ACCOUNT}:aliquot-extender", str,
        "who may write plans on pods: our own service account"),
    Row("agent_account", "agent-account", "USER", f"{_ACCOUNT}:aliquot-agent", str,
        "who may write on pods what they were given: the node agents' service account"),
    Row("log_level", "log-level", "LEVEL", "info", _one_of("debug", "info", "warning", "error"),
        "how much to log: debug, info, warning, error"),
)
# fmt: on


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help=f"a TOML file with settings (also {CONFIG_VARIABLE})"
    )
    for row in ROWS:
        default = f" (default: {row.default})" if row.default else ""
        parser.add_argument(
            row.flag, dest=row.attribute, metavar=row.shows, help=row.meaning + default
        )


def load(options: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """A flag counts before the environment, that before the file, that before the default."""
    texts: dict[str, tuple[str, str]] = {}
    if path := options.get("config") or environment.get(CONFIG_VARIABLE):
        texts = _from_file(Path(path))
    for row in ROWS:
        if options.get(row.attribute) is not None:
            texts[row.name] = options[row.attribute], row.flag
        elif row.variable in environment:
            texts[row.name] = environment[row.variable], row.variable
        elif row.name not in texts and row.usual_variable in environment:
            texts[row.name] = environment[row.usual_variable], row.usual_variable
    return Settings(**{row.attribute: _value(row, texts.get(row.name)) for row in ROWS})


def _from_file(path: Path) -> dict[str, tuple[str, str]]:
    try:
        given = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the config file {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: {error}") from None
    names = [row.name for row in ROWS]
    texts: dict[str, tuple[str, str]] = {}
    for name, value in given.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise UserError(f"{path}: there is no setting {name}; {hint}")
        words = value if isinstance(value, list) else [value]
        if not all(isinstance(word, str | int | float) for word in words):
            raise UserError(f"{path}: {name}: {value!r} is neither a text, a number nor a list")
        texts[name] = ",".join(map(str, words)), f"{path}: {name}"
    return texts


def _value(row: Row, given: tuple[str, str] | None) -> Any:
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
