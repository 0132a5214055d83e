"""Dashboards ask for what exists, in PromQL that parses, on panels that do not overlap."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import dashboards, monitoring
from deploy.dashboards.grafana import GRID
from tests.promtool import promtool

WRITTEN = {each.name: json.loads(dashboards.text(each)) for each in dashboards.DASHBOARDS}


def test_every_expression_parses(tmp_path: Path) -> None:
    found = [text for _, text in monitoring.expressions()]
    rules = [{"record": f"expression:{number}", "expr": text} for number, text in enumerate(found)]
    path = tmp_path / "expressions.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    assert f"{len(found)} rules found" in promtool("check", "rules", str(path))


@pytest.mark.parametrize("name", WRITTEN)
def test_panels_have_places_of_their_own(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    panels = WRITTEN[name]["panels"]
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= GRID
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("name", WRITTEN)
def test_links_lead_to_dashboards_with_the_variables_that_they_set(name: str) -> None:
    variables: dict[str, set[str]] = {
        each["uid"]: {variable["name"] for variable in each["templating"]["list"]}
        for each in WRITTEN.values()
    }
    for url in _urls(WRITTEN[name]):
        uid, _, query = url.removeprefix("/d/").partition("?")
        first, *others = query.split("&")
        assert first == "${datasource:queryparam}"
        assert {each.partition("=")[0].removeprefix("var-") for each in others} <= variables[uid]


@pytest.mark.parametrize("name", WRITTEN)
def test_variables_that_are_used_are_there(name: str) -> None:
    text = json.dumps(WRITTEN[name]["panels"])
    for variable in ("node", "gpu_uuid", "namespace", "pod"):
        has_it = any(each["name"] == variable for each in WRITTEN[name]["templating"]["list"])
        assert (f"${variable}" in text) == has_it


def test_the_dashboards_link_to_each_other() -> None:
    assert any("/d/aliquot-node?" in url for url in _urls(WRITTEN["cluster"]))
    assert any("/d/aliquot-pod?" in url for url in _urls(WRITTEN["cluster"]))
    for each in WRITTEN.values():
        assert [link["tags"] for link in each["links"]] == [each["tags"]]


def _urls(dashboard: dict[str, Any]) -> list[str]:
    return [
        link["url"]
        for panel in dashboard["panels"]
        for override in panel.get("fieldConfig", {}).get("overrides", ())
        for prop in override["properties"]
        if prop["id"] == "links"
        for link in prop["value"]
    ]
