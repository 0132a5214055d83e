"""Pods and nodes as tests need them, in Kubernetes' own JSON."""

from typing import Any

from aliquot.protocol import names

__all__ = ["mirror", "node", "owned_by", "pod"]


def pod(
    name: str,
    namespace: str = "default",
    *,
    node: str = "",
    memory: int | str = 0,
    compute: int | str = 0,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    containers: list[dict[str, Any]] | None = None,
    phase: str = "",
) -> dict[str, Any]:
    """With one container `main`, unless `containers` are given."""
    limits = {
        resource: str(amount)
        for resource, amount in ((names.MEMORY_RESOURCE, memory), (names.COMPUTE_RESOURCE, compute))
        if amount
    }
    main = {"name": "main", "image": "app", "resources": {"limits": limits, "requests": limits}}
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {"containers": containers if containers is not None else [main]},
    }
    if node:
        made["spec"]["nodeName"] = node
    if phase:
        made["status"] = {"phase": phase}
    return made


def mirror(
    name: str, static_uid: str, namespace: str = "team", *, node: str = "n1"
) -> dict[str, Any]:
    """What a kubelet shows of a static pod, which itself knows it as `static_uid`."""
    hashes = dict.fromkeys(("kubernetes.io/config.mirror", "kubernetes.io/config.hash"), static_uid)
    made = pod(name, namespace, node=node, annotations=hashes, phase="Running")
    made["metadata"]["ownerReferences"] = owned_by(node)
    return made


def owned_by(node: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node, "controller": True}]


def node(
    name: str,
    *,
    memory_units: int = 0,
    compute_percent: int = 0,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    ready: bool = True,
) -> dict[str, Any]:
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    if memory_units:
        allocatable[names.MEMORY_RESOURCE] = str(memory_units)
    if compute_percent:
        allocatable[names.COMPUTE_RESOURCE] = str(compute_percent)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {},
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
