"""What the manifests of deploy/ promise, read as they are written; `make check` renders them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
Object = dict[str, Any]


def objects(*patterns: str) -> Iterator[Object]:
    for pattern in patterns:
        for path in sorted(DEPLOY.glob(pattern)):
            yield from (each for each in yaml.safe_load_all(path.read_text()) if each)


def only(kind: str, name: str, *patterns: str) -> Object:
    [found] = [
        each
        for each in objects(*(patterns or ("base/*.yaml",)))
        if (each.get("kind"), each["metadata"]["name"]) == (kind, name)
    ]
    return found


def environment(workload: Object) -> dict[str, str | None]:
    [container] = workload["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container.get("env", ())}


def test_pods_get_the_runtime_class_that_the_agent_has_and_that_can_be_made() -> None:
    agent = only("DaemonSet", "aliquot-agent", "overlays/nvidia-runtime/agent.yaml")
    extender = only("Deployment", "aliquot-extender", "overlays/nvidia-runtime/extender.yaml")
    [made] = objects("runtime-class.yaml")
    name = made["metadata"]["name"]
    assert agent["spec"]["template"]["spec"]["runtimeClassName"] == name
    assert environment(extender)["ALIQUOT_RUNTIME_CLASS"] == name


def test_no_selector_takes_pods_of_others() -> None:
    """Selectors are immutable, and somebody else's pods may be `component: agent` as well."""
    found = list(_selectors(list(objects("base/*.yaml", "components/*/*.yaml"))))
    assert len(found) > 10
    for selector in found:
        assert selector["app.kubernetes.io/name"] == "aliquot", selector
        assert "app.kubernetes.io/component" in selector


def _selectors(value: Any) -> Iterator[dict[str, str]]:
    if isinstance(value, list):
        for each in value:
            yield from _selectors(each)
    elif isinstance(value, dict):
        if value.get("kind") == "Service":
            yield value["spec"]["selector"]
        for key, each in value.items():
            if key == "matchLabels":
                yield each
            else:
                yield from _selectors(each)
