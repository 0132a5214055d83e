"""A large cluster for the extender's benchmark: its nodes, its pods, and lists of them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from aliquot.protocol import assignment, inventory, names
from aliquot.protocol.assignment import Assignment, Slice
from aliquot.protocol.inventory import GpuRecord, Link, NodeInventory

__all__ = ["Kind", "bound_pods", "kinds", "nodes", "pending_pod"]

GPUS = 8
MEMORY_UNITS = 320
_MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
_LINKS = tuple(
    tuple(Link.NVLINK if one // 4 == other // 4 else Link.PCIE_SWITCH for other in range(GPUS))
    for one in range(GPUS)
)


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods of one kind, as a Deployment makes them."""

    memory_units: int
    compute_percent: int
    gpus: int = 1
    model: str = ""

    def annotations(self) -> dict[str, str]:
        given = {names.GPU_MODEL: self.model}
        if self.gpus > 1 and self.memory_units:
            given[names.GPUS] = str(self.gpus)
        return {name: text for name, text in given.items() if text}

    def limits(self) -> dict[str, str]:
        given = {
            names.MEMORY_RESOURCE: self.memory_units * self.gpus,
            names.COMPUTE_RESOURCE: self.compute_percent * self.gpus,
        }
        return {name: str(amount) for name, amount in given.items() if amount}


def kinds() -> list[Kind]:
    """Forty kinds: shares of many sizes, some pinned to a model, some over several GPUs."""
    shares = [
        Kind(memory, compute)
        for memory in (8, 16, 32, 48, 64, 96)
        for compute in (5, 10, 20, 25, 40)
    ]
    pinned = [Kind(32, 20, model="H100"), Kind(64, 25, model="A100"), Kind(16, 10, model="!H100")]
    several = [Kind(80, 50, 2), Kind(40, 25, 2), Kind(160, 50, 4), Kind(80, 25, 4)]
    whole = [Kind(0, 100), Kind(0, 100, 2), Kind(0, 100, 4)]
    return shares + pinned + several + whole


def uuid_of(node: int, gpu: int) -> str:
    return f"GPU-{node:08x}-0000-4000-8000-{gpu:012x}"


def nodes(count: int, agent_url: str = "") -> Iterator[dict[str, Any]]:
    for number in range(count):
        model = _MODELS[number % 4 == 0]
        gpus = tuple(
            GpuRecord(uuid_of(number, index), index, model, MEMORY_UNITS, memory_mib=81920, sms=108)
            for index in range(GPUS)
        )
        reported = NodeInventory(gpus, links=_LINKS, driver="550.54", agent_url=agent_url)
        found = inventory.encode(reported)
        allocatable = {
            "cpu": "128",
            "memory": "1024Gi",
            "pods": "110",
            names.MEMORY_RESOURCE: str(GPUS * MEMORY_UNITS),
            names.COMPUTE_RESOURCE: str(GPUS * 100),
        }
        yield {
            "metadata": {
                "name": f"gpu-node-{number:05}",
                "uid": f"node-{number}",
                "resourceVersion": str(number + 1),
                "annotations": {names.INVENTORY: found},
                "labels": {"kubernetes.io/hostname": f"gpu-node-{number:05}"},
            },
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }


def bound_pods(count: int, node_count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Pods of the share kinds, dealt out in turn so that every GPU has room for its part."""
    drawn = random.Random(seed)
    shares = [kind for kind in kinds() if kind.gpus == 1 and kind.memory_units and not kind.model]
    free: dict[int, tuple[int, int]] = {}
    place = 0
    for number in range(count):
        kind = drawn.choice(shares)
        for _ in range(node_count * GPUS):
            place = (place + 1) % (node_count * GPUS)
            memory, compute = free.get(place, (MEMORY_UNITS, 100))
            if memory >= kind.memory_units and compute >= kind.compute_percent:
                break
        else:
            raise ValueError(f"{count} pods do not fit on {node_count} nodes")
        free[place] = (memory - kind.memory_units, compute - kind.compute_percent)
        node, gpu = divmod(place, GPUS)
        part = Slice(uuid_of(node, gpu), kind.memory_units, kind.compute_percent)
        given = assignment.encode(Assignment({"main": (part,)}))
        made = pending_pod(number, kind, prefix="bound")
        made["metadata"]["annotations"] |= {names.PLAN: given, names.ACTUAL: given}
        made["spec"]["nodeName"] = f"gpu-node-{node:05}"
        made["status"] = {"phase": "Running", **_STATUS}
        yield made


def pending_pod(number: int, kind: Kind, prefix: str = "new") -> dict[str, Any]:
    limits = kind.limits()
    resources = {"limits": limits, "requests": {"cpu": "2", "memory": "8Gi", **limits}}
    return {
        "metadata": {
            "name": f"{prefix}-{number:06}-7c9d8b6f5-x2k4p",
            "namespace": f"team-{number % 50}",
            "uid": f"{number:08x}-1111-4222-8333-{prefix:_>12}",
            "resourceVersion": str(1_000_000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": kind.annotations(),
            "labels": {"app": f"app-{number % 500}", "pod-template-hash": "7c9d8b6f5"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"app-{number % 500}", "uid": "u"}],
        },
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/team/app:1.2.3",
                    "command": ["python", "-m", "serve"],
                    "env": [{"name": f"SETTING_{index}", "value": "x" * 20} for index in range(15)],
                    "resources": resources,
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
        "status": {"phase": "Pending"},
    }


_STATUS = {
    "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ],
    "podIP": "10.0.0.1",
    "containerStatuses": [{"name": "main", "ready": True, "image": "app", "imageID": "sha256:0"}],
}


def pages(objects: Iterator[dict[str, Any]], size: int = 500) -> list[bytes]:
    """A collection as the API server sends it, page by page."""
    encoded = [msgspec.json.encode(each) for each in objects]
    chunks = [encoded[start : start + size] for start in range(0, len(encoded), size)] or [[]]
    made = []
    for number, chunk in enumerate(chunks):
        more = str(number + 1) if number + 1 < len(chunks) else ""
        head = msgspec.json.encode({"resourceVersion": "2000000", "continue": more})
        made.append(b'{"metadata":' + head + b',"items":[' + b",".join(chunk) + b"]}")
    return made
