"""Dashboards in a few words, and the long JSON that Grafana wants for them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "DATASOURCE",
    "Column",
    "Dashboard",
    "Panel",
    "Query",
    "Row",
    "Variable",
    "number",
    "part",
    "render",
]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "aliquot"
SCHEMA = 39
"""Of Grafana 10.3; later ones read it, too."""
GRID = 24
"""Columns of Grafana's grid."""

Json = dict[str, Any]
Steps = tuple[tuple[float, str], ...]
"""From which value on which colour; green below."""


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """How a column of a table is shown; `link` is the uid of the dashboard that it leads to."""

    title: str
    unit: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    stack: bool = False
    most: float | None = None
    steps: Steps = ()
    columns: dict[str, Column] = field(default_factory=dict)
    """Of tables, by label, or by `Value #A` and so on for the queries; others are hidden."""
    about: str = ""


def number(title: str, expr: str, *, width: int, unit: str = "short", steps: Steps = ()) -> Panel:
    """One number in large letters."""
    return Panel(title, (Query(expr),), kind="stat", unit=unit, width=width, height=4, steps=steps)


def part(title: str, expr: str, *, width: int) -> Panel:
    """How much of a whole, from 0 to 1, as a dial."""
    return Panel(
        title, (Query(expr),), kind="gauge", unit="percentunit", width=width, height=4, most=1
    )


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    label: str
    query: str
    has_all: bool = True


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    """Of the file; with `aliquot-` before it, the uid that others link to."""
    title: str
    about: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def uid(self) -> str:
        return f"{TAG}-{self.name}"

    def expressions(self) -> Iterable[tuple[str, str]]:
        """Title of the panel or variable, and PromQL."""
        for row in self.rows:
            for panel in row.panels:
                for query in panel.queries:
                    yield panel.title, query.expr


def render(dashboard: Dashboard) -> Json:
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": [TAG],
        "schemaVersion": SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "links": [
            {
                "type": "dashboards",
                "title": "Aliquot",
                "tags": [TAG],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "annotations": {"list": []},
        "panels": _panels(dashboard.rows),
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Cluster", "type": "datasource", "query": "prometheus"}


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": "Variable"},
        # With every change of the time range: pods come and go.
        "refresh": 2,
        "sort": 1,
        "multi": variable.has_all,
        "includeAll": variable.has_all,
        **({"allValue": ".*", "current": _ALL} if variable.has_all else {}),
    }


_ALL = {"selected": True, "text": ["All"], "value": ["$__all"]}


def _panels(rows: Iterable[Row]) -> list[Json]:
    made: list[Json] = []
    top = 0
    for row in rows:
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": GRID, "h": 1},
                "panels": [],
            }
        )
        top += 1
        left = lowest = 0
        for panel in row.panels:
            if left + panel.width > GRID:
                top, left, lowest = top + lowest, 0, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            made.append({"id": len(made) + 1, "gridPos": place, **_panel(panel)})
            left, lowest = left + panel.width, max(lowest, panel.height)
        top += lowest
    return made


def _panel(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    steps += [{"color": color, "value": value} for value, color in panel.steps]
    defaults: Json = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
    }
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 30 if panel.stack else 8,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stack else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.steps else "off"},
        }
    is_table = panel.kind == "table"
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
                "instant": panel.kind != "timeseries",
                "range": panel.kind == "timeseries",
                "format": "table" if is_table else "time_series",
            }
            for number, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": defaults, "overrides": _overrides(panel)},
        "options": _options(panel),
        **({"transformations": _table(panel)} if is_table else {}),
    }


def _options(panel: Panel) -> Json:
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    match panel.kind:
        case "timeseries":
            return {
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case "stat":
            return {"reduceOptions": reduce, "colorMode": "value", "graphMode": "none"}
        case "gauge":
            return {"reduceOptions": reduce, "showThresholdMarkers": True}
        case "table":
            return {"cellHeight": "sm", "showHeader": True}
        case _:
            raise ValueError(f"no panel of kind {panel.kind}")


def _table(panel: Panel) -> list[Json]:
    """One line for each set of labels, and only the columns that were named, in their order."""
    names = list(panel.columns)
    return [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": names}}},
        {
            "id": "organize",
            "options": {
                "indexByName": {name: number for number, name in enumerate(names)},
                "renameByName": {name: each.title for name, each in panel.columns.items()},
            },
        },
    ]


def _overrides(panel: Panel) -> list[Json]:
    made = []
    for name, column in panel.columns.items():
        properties: list[Json] = []
        if column.unit:
            properties.append({"id": "unit", "value": column.unit})
        if column.link:
            others = "".join(
                f"&var-{label}=${{__data.fields[{each.title!r}]}}"
                for label, each in panel.columns.items()
                if label != name and each.link == column.link
            )
            url = (
                f"/d/{column.link}?${{datasource:queryparam}}&var-{name}=${{__value.text}}{others}"
            )
            properties.append({"id": "links", "value": [{"title": f"Show {name}", "url": url}]})
        if properties:
            made.append(
                {"matcher": {"id": "byName", "options": column.title}, "properties": properties}
            )
    return made
