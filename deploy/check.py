"""Checks deploy/ for `make check`: schemas, names, versions, and that Helm and kustomize agree."""

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import yaml

from aliquot import __version__
from aliquot.protocol import names
from deploy import chart, metrics_page, monitoring, webhooks
from deviceplugin.settings import ROWS as AGENT_ROWS
from scheduler_ext.settings import ROWS as EXTENDER_ROWS

__all__ = ["problems"]

HERE = Path(__file__).parent
OVERLAYS = ("simulated", "nvidia-runtime", "cdi")
SINGLE = (HERE / "uninstall/cleaner.yaml", HERE / "runtime-class.yaml")
# Of operators whose schemas are not Kubernetes' own.
FOREIGN = ("ServiceMonitor", "PodMonitor", "PrometheusRule")

Object = dict[str, Any]


def problems() -> Iterator[str]:
    if not webhooks.is_fresh():
        yield "base/webhooks.yaml is old; run `python -m deploy.webhooks`"
    if not metrics_page.is_fresh():
        yield "docs/metrics.md is not what the tables say; run `python -m deploy.metrics_page`"
    yield from monitoring.problems()
    yield from _image_tag()
    yield from _scheduler_settings()
    for path in sorted((*HERE.glob("examples/*.yaml"), *SINGLE)):
        yield from _schema_problems(path.name, _read(path.read_text()))
    kubectl, helm = shutil.which("kubectl"), shutil.which("helm")
    if kubectl is None or helm is None:
        # Both are among the programs that `make e2e` compiles, and CI runs that first.
        lacking = "no kubectl and helm on the PATH; overlays and chart are not rendered"
        if os.environ.get("ALIQUOT_NO_SKIPS"):
            yield lacking
        else:
            print(f"deploy: {lacking}", file=sys.stderr)
        return
    yield from chart.faults(helm)
    for overlay in OVERLAYS:
        rendered = _kustomized(kubectl, HERE / "overlays" / overlay)
        yield from _schema_problems(overlay, rendered)
        yield from _variable_problems(overlay, rendered)
        yield from chart.differences(helm, overlay, rendered)
    evicting = _with_component(kubectl, overlay, "evict")
    yield from _schema_problems("evict", evicting)
    yield from _variable_problems("evict", evicting)
    yield from chart.differences(helm, overlay, evicting, "evict=true")
    watched = _kustomized(kubectl, monitoring.COMPONENT)
    yield from _schema_problems("monitoring", watched)
    yield from chart.differences(helm, overlay, rendered + watched, "monitoring=true")


def _kustomized(kubectl: str, folder: Path) -> list[Object]:
    made = subprocess.run(
        [kubectl, "kustomize", folder],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return _read(made.stdout)


def _with_component(kubectl: str, overlay: str, component: str) -> list[Object]:
    """As an administrator writes it above an overlay, to which a component's patches apply."""
    with tempfile.TemporaryDirectory() as folder:
        above = {
            "resources": [os.path.relpath(HERE / "overlays" / overlay, folder)],
            "components": [os.path.relpath(HERE / "components" / component, folder)],
        }
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(above))
        return _kustomized(kubectl, Path(folder))


def _read(text: str) -> list[Object]:
    return [each for each in yaml.safe_load_all(text) if each]


def _schema_problems(where: str, objects: Iterable[Object]) -> Iterator[str]:
    for each in objects:
        if each["kind"] in FOREIGN:
            continue
        name = f"{where}: {each['kind']} {each['metadata']['name']}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of versions newer than the schemas
                kubernetes_validate.validate(
                    each, kubernetes_validate.latest_version(), strict=True
                )
        except kubernetes_validate.ValidationError as error:
            yield f"{name}: {error.message}"
        except kubernetes_validate.SchemaNotFoundError as error:
            yield f"{name}: no schema: {error}"


def _variable_problems(where: str, objects: Iterable[Object]) -> Iterator[str]:
    """A setting that a program does not know would be ignored without a word."""
    known = {
        "agent": {row.variable for row in AGENT_ROWS},
        "extender": {row.variable for row in EXTENDER_ROWS},
    }
    for each in objects:
        if each["kind"] not in ("DaemonSet", "Deployment"):
            continue
        for container in each["spec"]["template"]["spec"]["containers"]:
            for variable in container.get("env", ()):
                name = variable["name"]
                if name.startswith("ALIQUOT_") and name not in known[container["name"]]:
                    yield f"{where}: the {container['name']} has no setting {name}"


def _image_tag() -> Iterator[str]:
    for name in ("base", "overlays/simulated", "uninstall"):
        kustomization = yaml.safe_load((HERE / name / "kustomization.yaml").read_text())
        (image,) = kustomization["images"]
        if image["newTag"] != __version__:
            yield f"{name} names version {image['newTag']}, this is {__version__}"
    described = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    if described["appVersion"] != __version__:
        yield f"the chart names version {described['appVersion']}, this is {__version__}"


def _scheduler_settings() -> Iterator[str]:
    settings = yaml.safe_load((HERE / "base/scheduler-config.yaml").read_text())
    (extender,) = settings["extenders"]
    managed = {resource["name"] for resource in extender["managedResources"]}
    if managed != {names.MEMORY_RESOURCE, names.COMPUTE_RESOURCE}:
        yield f"base/scheduler-config.yaml manages {', '.join(sorted(managed))}"
    if settings["profiles"][0]["schedulerName"] != names.SCHEDULER_NAME:
        yield f"base/scheduler-config.yaml does not name {names.SCHEDULER_NAME}"


def main() -> int:
    found = list(problems())
    for text in found:
        print(f"deploy: {text}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
