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
