"""What tests of the extender need: nodes with GPUs, pods, and a scheduler that asks as Go does."""

import http.client
import json
import random
from typing import Any

from aliquot.protocol import assignment, inventory, names
from aliquot.protocol.assignment import Assignment
from aliquot.protocol.inventory import GpuRecord, Link, NodeInventory
from simcluster.apiserver import node, pod

__all__ = ["FakeScheduler", "gpu_node", "gpu_pod", "plan_of", "uuid_of"]

Object = dict[str, Any]

MODEL = "NVIDIA A100-SXM4-40GB"


def uuid_of(node_name: str, index: int) -> str:
    return f"GPU-{node_name}-{index}"


def gpu_node(
    name: str,
    gpus: int = 2,
    *,
    memory_units: int = 160,
    model: str = MODEL,
    unit_mib: int = 256,
    compute_percent: int = 100,
    unusable: dict[int, str] | None = None,
    linked: bool = False,
    agent: bool = True,
) -> Object:
    """A node as its agent reports it; without `agent` as it is when that is gone."""
    records = tuple(
        GpuRecord(
            uuid_of(name, index),
            index,
            model,
            memory_units,
            compute_percent,
            unusable=(unusable or {}).get(index, ""),
        )
        for index in range(gpus)
    )
    # Pairs of neighbours are connected directly.
    links = tuple(
        tuple(Link.NVLINK if one // 2 == other // 2 else Link.SYSTEM for other in range(gpus))
        for one in range(gpus)
    )
    found = NodeInventory(records, unit_mib, links=links if linked else ())
    return node(
        name,
        memory_units=gpus * memory_units if agent else 0,
        compute_percent=gpus * compute_percent if agent else 0,
        annotations={names.INVENTORY: inventory.encode(found)},
    )


def gpu_pod(
    name: str,
    memory: int = 16,
    compute: int = 30,
    *,
    namespace: str = "default",
    priority: int = 0,
    **more: Any,
) -> Object:
    made = pod(name, namespace, memory=memory, compute=compute, **more)
    made["spec"]["priority"] = priority
    made["metadata"]["uid"] = f"uid-{namespace}-{name}"
    made.setdefault("status", {"phase": "Pending"})
    return made


def plan_of(stored: Object) -> Assignment | None:
    text = stored["metadata"].get("annotations", {}).get(names.PLAN)
    return assignment.decode(text) if text else None


class FakeScheduler:
    """Asks the extender over a real connection, in kube-scheduler's order and JSON."""

    def __init__(self, port: int, seed: int = 1, timeout_s: float = 60.0) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        self._random = random.Random(seed)

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> "FakeScheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        self._line.request(method, path, data if body is not None else None, headers)
        answer = self._line.getresponse()
        text = answer.read()
        is_json = answer.headers.get("Content-Type") == "application/json"
        return answer.status, json.loads(text) if is_json else text.decode()

    def verb(self, name: str, body: object) -> Any:
        status, answer = self.call("POST", f"/scheduler/{name}", body)
        assert status == 200, answer
        return answer

    def filter(self, stored: Object, nodes: list[str]) -> Any:
        return self.verb("filter", {"Pod": stored, "Nodes": None, "NodeNames": nodes})

    def prioritize(self, stored: Object, nodes: list[str]) -> dict[str, int]:
        answer = self.verb("prioritize", {"Pod": stored, "Nodes": None, "NodeNames": nodes})
        return {each["Host"]: each["Score"] for each in answer}

    def bind(self, stored: Object, node_name: str) -> str:
        metadata = stored["metadata"]
        answer = self.verb(
            "bind",
            {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": node_name,
            },
        )
        error: str = answer["Error"]
        return error

    def choose(self, stored: Object, nodes: list[str]) -> str | None:
        """The scheduling cycle: the node, or None when the pod fits nowhere."""
        answer = self.filter(stored, nodes)
        assert not answer["Error"], answer["Error"]
        passed: list[str] = answer["NodeNames"]
        if len(passed) < 2:
            return passed[0] if passed else None
        scores = self.prioritize(stored, passed)
        best = max(scores.values())
        return self._random.choice([name for name, score in scores.items() if score == best])

    def schedule(self, stored: Object, nodes: list[str]) -> str | None:
        """The node the pod was bound to, or None."""
        chosen = self.choose(stored, nodes)
        if chosen is None or self.bind(stored, chosen):
            return None
        return chosen
