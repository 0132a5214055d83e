"""Alerts fire when they should, and only then."""

from pathlib import Path

import pytest
import yaml

from deploy import monitoring
from tests.promtool import promtool

CASES = sorted(Path(__file__).parent.glob("*.yaml"))


def rule_file(folder: Path, *, only_summaries: bool = False) -> Path:
    """As Prometheus reads it, without the operator's object around it."""
    spec = yaml.safe_load((monitoring.COMPONENT / "rules.yaml").read_text())["spec"]
    for group in spec["groups"] if only_summaries else ():
        for rule in group["rules"]:
            if "annotations" in rule:
                rule["annotations"] = {"summary": rule["annotations"]["summary"]}
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    assert f"{len(monitoring.rules())} rules found" in promtool(
        "check", "rules", str(rule_file(tmp_path))
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should(path: Path, tmp_path: Path) -> None:
    rule_file(tmp_path, only_summaries=True)
    case = tmp_path / path.name
    case.write_text(path.read_text())
    promtool("test", "rules", str(case))


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires: set[str] = set()
    silent: set[str] = set()
    for path in CASES:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for case in test.get("alert_rule_test", ()):
                (fires if case["exp_alerts"] else silent).add(case["alertname"])
    alerts = {rule["alert"] for rule in monitoring.rules() if "alert" in rule}
    assert fires == silent == alerts


def test_every_recording_rule_is_asked_for() -> None:
    """By an alert, a dashboard or another rule; else nobody needs it."""
    recorded = {rule["record"] for rule in monitoring.rules() if "record" in rule}
    asked = {name for _, text in monitoring.expressions() for name in monitoring.names_in(text)}
    assert recorded <= asked
