"""What kube-scheduler itself decides about a pod beside its extender; pure."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["best_node", "failure_of", "own_reasons", "requests_of"]

Object = dict[str, Any]


def requests_of(pod: Object) -> Counter[str]:
    """Extended resources, as its NodeResourcesFit counts them: names with a domain."""
    total: Counter[str] = Counter()
    for container in pod["spec"].get("containers") or []:
        resources = container.get("resources") or {}
        # What has a limit and no request asks for its limit.
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, amount in asked.items():
            if "/" in name:
                total[name] += int(amount)
    return total


def own_reasons(pod: Object, node: Object, taken: Mapping[str, int]) -> list[str]:
    """Why the pod cannot be on the node; `taken` is what pods there have already."""
    if (node.get("spec") or {}).get("unschedulable"):
        return ["node(s) were unschedulable"]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return [
        f"Insufficient {name}"
        for name, amount in sorted(requests_of(pod).items())
        if amount > int(allocatable.get(name, 0)) - taken.get(name, 0)
    ]


def failure_of(nodes: int, reasons: Iterable[str]) -> str:
    """As it stands in events and in `kubectl describe pod`."""
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    if not nodes:
        return "no nodes available to schedule pods"
    return f"0/{nodes} nodes are available: {', '.join(counted)}."


def best_node(scores: Mapping[str, int], chance: random.Random) -> str:
    """It draws lots between equals."""
    best = max(scores.values())
    return chance.choice(sorted(name for name, score in scores.items() if score == best))
