"""What we ship for kube-scheduler: the extender's part is the same for a second one and for the
cluster's own, and is as the documentation shows it."""

import re
from pathlib import Path

import pytest
import yaml

from aliquot.protocol import names
from scheduler_ext.routes import VERBS_PREFIX

ROOT = Path(__file__).parents[3]
SECOND = ROOT / "deploy/base/scheduler-config.yaml"
DEFAULT = ROOT / "deploy/schedulers/default.yaml"


def _documented() -> dict:
    text = (ROOT / "docs/extender.md").read_text()
    return yaml.safe_load(re.search(r"```yaml\n(apiVersion: kubesched.*?)```", text, re.S)[1])


@pytest.mark.parametrize("path", [SECOND, DEFAULT], ids=["second", "default"])
def test_both_configurations_are_the_documented_one(path):
    found, documented = yaml.safe_load(path.read_text()), _documented()
    assert found["extenders"] == documented["extenders"]
    assert found["percentageOfNodesToScore"] == 100


def test_our_verbs_and_resources_are_named():
    [extender] = _documented()["extenders"]
    assert extender["urlPrefix"].endswith(VERBS_PREFIX)
    assert {each["name"] for each in extender["managedResources"]} == {
        names.MEMORY_RESOURCE,
        names.COMPUTE_RESOURCE,
    }


def test_each_has_its_scheduler():
    scheduler = {
        path: yaml.safe_load(path.read_text())["profiles"][0]["schedulerName"]
        for path in (SECOND, DEFAULT)
    }
    assert scheduler == {SECOND: names.SCHEDULER_NAME, DEFAULT: "default-scheduler"}
