"""Writes docs/metrics.md from the tables of agent and extender.

`python -m deploy.metrics_page` writes the page; `deploy.check` compares.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from deviceplugin.telemetry.metrics import ROWS as AGENT_ROWS
from scheduler_ext.metrics import ROWS as EXTENDER_ROWS

__all__ = ["is_fresh", "series", "text"]

FILE = Path(__file__).parents[1] / "docs" / "metrics.md"

_INTRODUCTION = """\
# Metrics

*Written from the tables in `deviceplugin/telemetry/metrics.py` and `scheduler_ext/metrics.py` by
`python -m deploy.metrics_page`.*

Agent and extender serve `/metrics` in Prometheus' text format, in base units; ratios are from 0
to 1. The usual `process_` metrics of each program come with them. [alerts.md](alerts.md) says what
`deploy/components/monitoring` makes of them: alerts, and dashboards for Grafana.

## Node agent

The series of a container are there from its allocation on, before it has used anything. What a
container says of itself (used, peak, refused, busy, throttled, launches) comes from its own
account, and [security.md](security.md) says how far that can be trusted. Everything else is what
the agent and the driver know. Prometheus adds `node`, the node that the agent runs on.

"""
_EXTENDER = """
## Extender

Every replica is asked. All know nodes and pods; only the leader answers kube-scheduler, so verbs
and waiting pods are found there.

"""
_HEAD = "| metric | type | labels | meaning |\n|---|---|---|---|\n"


class Row(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def help(self) -> str: ...


def text() -> str:
    return _INTRODUCTION + _table(AGENT_ROWS) + _EXTENDER + _table(EXTENDER_ROWS)


def series() -> dict[str, frozenset[str]]:
    """The labels of every series that agents and extenders have, by its name."""
    found: dict[str, frozenset[str]] = {}
    for row in (*AGENT_ROWS, *EXTENDER_ROWS):
        labels = frozenset(row.labels)
        if row.kind == "histogram":
            found[f"{row.name}_bucket"] = labels | {"le"}
            found[f"{row.name}_sum"] = found[f"{row.name}_count"] = labels
        else:
            found[row.name] = labels
    return found


def is_fresh() -> bool:
    return FILE.is_file() and FILE.read_text() == text()


def _table(rows: Iterable[Row]) -> str:
    lines = []
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.help} |\n")
    return _HEAD + "".join(lines)


if __name__ == "__main__":
    FILE.write_text(text())
