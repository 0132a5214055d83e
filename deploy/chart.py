"""Compares what the Helm chart makes with what kustomize makes: two roads to one installation."""

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CHART", "differences", "faults"]

CHART = Path(__file__).parent / "helm" / "aliquot"
NAMESPACE = "aliquot-system"
KUBE_VERSION = "1.36.3"
"""Of the scheduler that kustomize names; the chart takes the cluster's."""
# Each tool marks what it has made.
MARKS = ("app.kubernetes.io/managed-by", "helm.sh/chart", "app.kubernetes.io/instance")

Object = dict[str, Any]


def faults(helm: str) -> Iterator[str]:
    """What helm itself finds wrong."""
    linted = subprocess.run(
        [helm, "lint", "--strict", "--quiet", CHART], check=False, capture_output=True, text=True
    )
    if linted.returncode:
        yield f"helm lint: {(linted.stdout + linted.stderr).strip()}"


def differences(helm: str, overlay: str, kustomized: list[Object], *values: str) -> Iterator[str]:
    """`values` are set besides, such as `evict=true`."""
    ours, theirs = _by_name(kustomized), _by_name(_rendered(helm, overlay, values))
    ours.pop(f"Namespace/{NAMESPACE}", None)  # helm install --create-namespace makes it
    for name in sorted(ours.keys() ^ theirs.keys()):
        yield f"{overlay}: only {'kustomize' if name in ours else 'the chart'} has {name}"
    for name in sorted(ours.keys() & theirs.keys()):
        yield from _unequal(f"{overlay}: {name}", ours[name], theirs[name])


def _rendered(helm: str, overlay: str, values: Iterable[str]) -> list[Object]:
    made = subprocess.run(
        [
            *(helm, "template", "aliquot", CHART, f"--namespace={NAMESPACE}"),
            # A helm that was compiled from its module takes an old version for the cluster's.
            *(f"--set=gpus={overlay}", f"--kube-version={KUBE_VERSION}"),
            *(f"--set={value}" for value in values),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise SystemExit(f"deploy: helm template: {made.stderr.strip()}")
    return [each for each in yaml.safe_load_all(made.stdout) if each]


def _by_name(objects: list[Object]) -> dict[str, Object]:
    return {_full_name(each): each for each in objects}


def _full_name(each: Object) -> str:
    metadata = each["metadata"]
    name = f"{each['kind']}/{_unhashed(metadata['name'])}"
    # Of two objects with one name, the other is not in our own namespace.
    namespace = metadata.get("namespace", NAMESPACE)
    return name if namespace == NAMESPACE else f"{name} in {namespace}"


def _unhashed(name: str) -> str:
    """kustomize appends a digest to names of generated ConfigMaps."""
    return re.sub(r"^(aliquot-scheduler-config)-[a-z0-9]{10}$", r"\1", name)


def _unequal(where: str, ours: Any, theirs: Any) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted((ours.keys() | theirs.keys()) - {*MARKS, "checksum/config"}):
            yield from _unequal(f"{where}.{key}", _said(ours.get(key)), _said(theirs.get(key)))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(_sorted(ours), _sorted(theirs), strict=True)):
            yield from _unequal(f"{where}[{number}]", *pair)
    elif isinstance(ours, str) and isinstance(theirs, str):
        if _unhashed(ours).split() != theirs.split():
            yield f"{where}: kustomize has {ours!r}, the chart {theirs!r}"
    elif ours != theirs and not _only_marks(ours, theirs):
        yield f"{where}: kustomize has {ours!r}, the chart {theirs!r}"


def _said(value: Any) -> Any:
    """To leave a list or a mapping out is to leave it empty; `false`, 0 and "" are said."""
    return None if value in ({}, []) else value


def _sorted(values: list[Any]) -> list[Any]:
    """Lists of named things are sets to Kubernetes; kustomize puts patches first."""
    if all(isinstance(each, dict) and "name" in each for each in values):
        return sorted(values, key=lambda each: str(each["name"]))
    return values


def _only_marks(ours: Any, theirs: Any) -> bool:
    """Annotations that only one of them has, and that are its marks."""
    present = ours or theirs
    return isinstance(present, dict) and present.keys() <= {*MARKS, "checksum/config"}
