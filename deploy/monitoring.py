"""Checks that rules and dashboards ask for what exists: metrics, labels, jobs, pages."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy import dashboards, metrics_page

__all__ = ["expressions", "labels_in", "names_in", "problems", "rules"]

HERE = Path(__file__).parent
COMPONENT = HERE / "components" / "monitoring"
ALERTS_PAGE = HERE.parent / "docs" / "alerts.md"

# Of Prometheus itself, and of the library that both programs use.
FOREIGN = {"up", "ALERTS", "process_cpu_seconds_total", "process_resident_memory_bytes"}
# What Prometheus adds to every series of a target, and to its alerts.
ADDED_LABELS = {"job", "node", "pod", "alertname", "alertstate", "severity"}
SEVERITIES = {"info", "warning", "critical"}

_WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS |= {"offset", "bool"}
_STRING = r'"(?:[^"\\]|\\.)*"'
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_GROUPING = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"

Rule = dict[str, Any]


def problems() -> Iterator[str]:
    if not dashboards.is_fresh():
        yield "components/monitoring/dashboards are old; run `python -m deploy.dashboards`"
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    known = metrics_page.series().keys() | recorded | FOREIGN
    labels = ADDED_LABELS.union(*metrics_page.series().values())
    jobs = _jobs()
    for where, expression in expressions():
        for name in sorted(names_in(expression) - known):
            yield f"{where}: there is no metric {name}"
        for label in sorted(labels_in(expression) - labels):
            yield f"{where}: no metric has the label {label}"
        for job in re.findall(r'\bjob="([^"]*)"', expression):
            if job not in jobs:
                yield f"{where}: no monitor makes the job {job}"
    yield from _alert_problems([rule for rule in rules() if "alert" in rule])


def rules() -> list[Rule]:
    found = yaml.safe_load((COMPONENT / "rules.yaml").read_text())
    return [rule for group in found["spec"]["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and PromQL; what Grafana fills in is filled in."""
    for rule in rules():
        yield f"rules.yaml: {rule.get('alert') or rule['record']}", rule["expr"]
    for dashboard in dashboards.DASHBOARDS:
        for title, expression in dashboard.expressions():
            yield (
                f"dashboard {dashboard.name}: {title}",
                re.sub(r"\$__(rate_)?interval", "5m", expression),
            )


def names_in(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    bare = re.sub(_STRING, '""', expression)
    bare = re.sub(_GROUPING, " ", bare)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    bare = re.sub(r"\b\d+(\.\d+)?[a-z]*", " ", bare)
    found = re.findall(rf"({_NAME})\s*(\(?)", bare)
    return {name for name, call in found if not call and name not in _WORDS}


def labels_in(expression: str) -> set[str]:
    """The labels by which it selects and groups."""
    bare = re.sub(_STRING, '""', expression)
    groups = ",".join(re.findall(_GROUPING, bare))
    selectors = ",".join(re.findall(r"\{([^}]*)\}", bare))
    return set(re.findall(_NAME, groups)) | set(re.findall(rf"({_NAME})\s*[=!]", selectors))


def _jobs() -> set[str]:
    """The jobs as which our monitors have Prometheus ask agents and extenders."""
    found = set()
    for monitor in yaml.safe_load_all((COMPONENT / "monitors.yaml").read_text()):
        spec = monitor["spec"]
        for endpoint in spec.get("endpoints") or spec["podMetricsEndpoints"]:
            for change in endpoint["relabelings"]:
                if change.get("targetLabel") == "job":
                    found.add(change["replacement"])
    return found


def _alert_problems(alerts: Iterable[Rule]) -> Iterator[str]:
    explained = re.findall(r"^### (\w+)$", ALERTS_PAGE.read_text(), re.MULTILINE)
    named = [rule["alert"] for rule in alerts]
    for name in sorted(set(named) ^ set(explained)):
        yield f"{name}: rules.yaml and docs/alerts.md do not both have it"
    for rule in alerts:
        name, annotations = rule["alert"], rule["annotations"]
        if rule["labels"]["severity"] not in SEVERITIES:
            yield f"{name}: no severity {rule['labels']['severity']}"
        if not annotations.keys() >= {"summary", "description"}:
            yield f"{name}: it needs summary and description"
        if annotations["runbook_url"] != f"docs/alerts.md#{name.lower()}":
            yield f"{name}: its runbook is not its section of docs/alerts.md"
