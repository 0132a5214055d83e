"""deploy/ is what the programs expect, and its checks find what they are for."""

import tomllib
from pathlib import Path

import pytest
import yaml

from deploy import chart, check
from deploy.image.lock_part import part
from tests.e2e.instructions import INSTALL_PAGE, kubectl_commands

ROOT = Path(__file__).parents[2]


def test_manifests_have_no_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tools that render overlays are not there before `make e2e`; `make check` comes after it.
    monkeypatch.delenv("ALIQUOT_NO_SKIPS", raising=False)
    assert list(check.problems()) == []


def test_missing_tools_fail_where_nothing_may_be_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_NO_SKIPS", "1")
    monkeypatch.setenv("PATH", "/nowhere")
    [problem] = check.problems()
    assert "no kubectl and helm" in problem


def test_the_readme_installs_as_the_install_page_does() -> None:
    """And what that page says is what the end-to-end tests type."""
    told = kubectl_commands(INSTALL_PAGE, "2. The manifests")
    short = kubectl_commands(ROOT / "README.md", "On a cluster")
    assert [words for words in short if "my-pod.yaml" not in words] == told


def test_a_misspelt_field_is_found() -> None:
    (pod,) = yaml.safe_load_all((ROOT / "deploy/examples/two-gpus.yaml").read_text())
    pod["spec"]["restartPolice"] = pod["spec"].pop("restartPolicy")
    (problem,) = check._schema_problems("example", [pod])
    assert "restartPolice" in problem


def test_a_setting_that_the_agent_does_not_have_is_found() -> None:
    agent = yaml.safe_load((ROOT / "deploy/base/agent.yaml").read_text().split("\n---\n")[0])
    agent["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "ALIQUOT_NODE_NAMES"}]
    (problem,) = check._variable_problems("base", [agent])
    assert "ALIQUOT_NODE_NAMES" in problem


def test_a_difference_between_the_two_roads_is_found() -> None:
    ours = {"spec": {"replicas": 2, "template": {"name": "a"}}}
    theirs = {"spec": {"replicas": 3, "template": {"name": "a"}}}
    assert list(chart._unequal("Deployment", ours, theirs)) == [
        "Deployment.spec.replicas: kustomize has 2, the chart 3"
    ]
    assert list(chart._unequal("Deployment", ours, ours)) == []


@pytest.mark.parametrize("value", [False, 0, ""])
def test_a_value_that_only_one_road_says_is_found(value: object) -> None:
    """`automountServiceAccountToken: false` and `replicas: 0` mean something."""
    said, silent = {"spec": {"a": value, "b": 1}}, {"spec": {"b": 1}}
    for pair in ((said, silent), (silent, said)):
        assert len(list(chart._unequal("Pod", *pair))) == 1
    assert list(chart._unequal("Pod", {"labels": {}, "rules": []}, {})) == []


def test_the_image_gets_what_the_product_needs_and_no_test_runner() -> None:
    locked = part((ROOT / "requirements.lock").read_text(), {"aliquot"})
    names = {line.split("==")[0] for line in locked.splitlines() if line[:1].isalnum()}
    assert {"grpcio", "numpy", "pycparser", "protobuf"} <= names
    assert not {"pytest", "mypy", "ziglang", "setuptools"} & names


def test_the_image_is_made_from_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.split(".")[0] for name in project["tool"]["setuptools"]["packages"]}
    copied = {
        line.split()[1]
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ")
    }
    assert packages <= copied
