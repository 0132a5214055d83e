"""Pods that stand in the API server and at the kubelet alike."""

from pathlib import Path
from typing import Any

from aliquot.protocol import names
from aliquot.protocol.assignment import Assignment, Slice, encode
from simcluster.apiserver import ApiServer, write_kubeconfig
from simcluster.kubelet import Pod, Role

__all__ = ["NODE", "bound", "kubeconfig", "plan", "pod_path"]

NODE = "node-1"


def pod_path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def bound(pod: Pod, node: str = NODE, **annotations: str) -> dict[str, Any]:
    """The pod's manifest; annotations by their names without the domain, dashes as underscores."""
    containers: list[dict[str, Any]] = []
    first: list[dict[str, Any]] = []
    for each in pod.containers:
        limits = {resource: str(count) for resource, count in each.limits.items()}
        made: dict[str, Any] = {"name": each.name, "image": "app", "resources": {"limits": limits}}
        if each.role is Role.SIDECAR:
            made["restartPolicy"] = "Always"
        (containers if each.role is Role.APP else first).append(made)
    spec: dict[str, Any] = {"containers": containers, "initContainers": first}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": {
                f"{names.DOMAIN}/{name.replace('_', '-')}": text
                for name, text in annotations.items()
            },
        },
        "spec": spec,
    }


def plan(uuid: str, memory: int, compute: int, container: str = "main") -> str:
    return encode(Assignment({container: (Slice(uuid, memory, compute),)}))


def kubeconfig(server: ApiServer, path: Path) -> str:
    return str(write_kubeconfig(server.url, path))
