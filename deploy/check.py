"""Checks deploy/ for `make check`: schemas, names, versions, and that Helm and kustomize agree."""

import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

from aliquot import __version__
from aliquot.protocol import names
from deploy import chart, webhooks
from deviceplugin.settings import ROWS

__all__ = ["problems"]

HERE = Path(__file__).parent
OVERLAYS = ("simulated", "nvidia-runtime", "cdi")
# Of operators whose schemas are not Kubernetes' own.
FOREIGN = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
# Read by others than our programs.
OTHERS_VARIABLES = {"LD_LIBRARY_PATH", "NODE_NAME", "POD_NAME", "POD_NAMESPACE"}

Object = dict[str, Any]


def problems() -> Iterator[str]:
    if not webhooks.is_fresh():
        yield "base/webhooks.yaml is old; run `python -m deploy.webhooks`"
    yield from _image_tag()
    yield from _scheduler_settings()
    for path in sorted(HERE.glob("examples/*.yaml")):
        yield from _schema_problems(path.name, _read(path.read_text()))
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        print("deploy: no kubectl on the PATH; overlays are not rendered", file=sys.stderr)
        return
    for overlay in OVERLAYS:
        rendered = render(kubectl, overlay)
        yield from _schema_problems(overlay, rendered)
        yield from _variable_problems(overlay, rendered)
        yield from chart.differences(overlay, rendered)


def render(kubectl: str, overlay: str) -> list[Object]:
    made = subprocess.run(
        [kubectl, "kustomize", HERE / "overlays" / overlay],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return _read(made.stdout)


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
    """A setting that the agent does not know would be ignored without a word."""
    known = {row.variable for row in ROWS} | OTHERS_VARIABLES
    for each in objects:
        if each["kind"] != "DaemonSet":
            continue
        for container in each["spec"]["template"]["spec"]["containers"]:
            for variable in container["env"]:
                name = variable["name"]
                if name not in known and not name.startswith("NVIDIA_"):
                    yield f"{where}: the agent has no setting {name}"


def _image_tag() -> Iterator[str]:
    kustomization = yaml.safe_load((HERE / "base/kustomization.yaml").read_text())
    (image,) = kustomization["images"]
    if image["newTag"] != __version__:
        yield f"base/kustomization.yaml names version {image['newTag']}, this is {__version__}"


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
