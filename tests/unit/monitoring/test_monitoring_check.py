"""The check of rules and dashboards finds what it is for."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import dashboards, metrics_page, monitoring


def test_nothing_is_wrong() -> None:
    assert list(monitoring.problems()) == []
    assert metrics_page.is_fresh()


@pytest.mark.parametrize(
    ("expression", "names", "labels"),
    [
        ("up", {"up"}, set()),
        ('sum by (node) (rate(a_total{pod=~"x{1,2} by (z)", b!="c"}[5m])) > 0.5',
         {"a_total"}, {"node", "pod", "b"}),
        ("a:b:rate5m and on (gpu_uuid) max(c) == 1", {"a:b:rate5m", "c"}, {"gpu_uuid"}),
        ("absent(a) or vector(0) - 14 * 86400", {"a"}, set()),
        ("a offset 15m unless ignoring (x) b", {"a", "b"}, {"x"}),
        ("a * on (n) group_left (model) b", {"a", "b"}, {"n", "model"}),
        ("histogram_quantile(0.99, sum by (le) (rate(h_bucket[10m])))", {"h_bucket"}, {"le"}),
    ],
)  # fmt: skip
def test_metrics_and_labels_are_found_in_promql(
    expression: str, names: set[str], labels: set[str]
) -> None:
    assert monitoring.names_in(expression) == names
    assert monitoring.labels_in(expression) == labels


def with_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, **change: Any) -> str:
    """What is said when one alert is changed so."""
    found = yaml.safe_load((monitoring.COMPONENT / "rules.yaml").read_text())
    (rule,) = (
        rule
        for group in found["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("alert") == name
    )
    rule.update(change)
    for file in monitoring.COMPONENT.glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(found))
    monkeypatch.setattr(monitoring, "COMPONENT", tmp_path)
    return "\n".join(monitoring.problems())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"expr": "aliquot_gpu_xid_total > 0"}, "there is no metric aliquot_gpu_xid_total"),
        ({"expr": 'aliquot_gpu_usable{gpu="0"} == 0 and on (uuid) up'}, "has the label uuid"),
        ({"expr": 'up{job="aliquot-agents"} == 0'}, "no monitor makes the job aliquot-agents"),
        ({"alert": "AliquotGpuIll"}, "AliquotGpuIll: rules.yaml and docs/alerts.md"),
        ({"labels": {"severity": "urgent"}}, "no severity urgent"),
        (
            {"annotations": {"summary": "s", "runbook_url": "docs/alerts.md#aliquotgpuxid"}},
            "it needs summary and description",
        ),
        (
            {"annotations": {"summary": "s", "description": "d", "runbook_url": "x"}},
            "its runbook is not its section",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_told(
    change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert said in with_rule(monkeypatch, tmp_path, "AliquotGpuXid", **change)


def test_old_dashboards_and_an_old_page_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(dashboards, "FOLDER", tmp_path)
    assert "run `python -m deploy.dashboards`" in "\n".join(monitoring.problems())
    dashboards.write()
    assert list(monitoring.problems()) == []
    monkeypatch.setattr(metrics_page, "FILE", tmp_path / "metrics.md")
    assert not metrics_page.is_fresh()
