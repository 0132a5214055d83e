"""Grafana's dashboards: described here, written as JSON into components/monitoring/dashboards."""

import json
from pathlib import Path

from deploy.dashboards.cluster import CLUSTER
from deploy.dashboards.grafana import Dashboard, render
from deploy.dashboards.node import NODE
from deploy.dashboards.pod import POD
from deploy.dashboards.scheduler import SCHEDULER

__all__ = ["DASHBOARDS", "is_fresh", "write"]

DASHBOARDS = (CLUSTER, NODE, POD, SCHEDULER)
FOLDER = Path(__file__).parents[1] / "components" / "monitoring" / "dashboards"


def text(dashboard: Dashboard) -> str:
    """A line for each panel, so that a change of one is a change of one."""
    whole = render(dashboard)
    panels = ",\n  ".join(map(json.dumps, whole.pop("panels")))
    head = json.dumps(whole, indent=1).removesuffix("\n}")
    return f'{head},\n "panels": [\n  {panels}\n ]\n}}\n'


def is_fresh() -> bool:
    found = {path.name: path.read_text() for path in FOLDER.glob("*")}
    return found == {f"{each.name}.json": text(each) for each in DASHBOARDS}


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for each in DASHBOARDS:
        (FOLDER / f"{each.name}.json").write_text(text(each))
