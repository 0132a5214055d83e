"""The full answer to `why does my pod wait`: every node and GPU, as a table in JSON."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aliquot.protocol.inventory import GpuRecord
from scheduler_ext.ledger import Ledger
from scheduler_ext.placement import Cluster, Request
from scheduler_ext.placement.fit import eligible_devices, kind_of_devices
from scheduler_ext.reasons import amount_text, asked_text, reasons_for
from scheduler_ext.records import PodRecord
from scheduler_ext.verbs import Verbs

__all__ = ["explain", "verdict"]


def explain(verbs: Verbs, pod: PodRecord, now_s: float) -> dict[str, Any]:
    """Takes the state's lock for a copy only: the table of a large cluster takes its time."""
    state = verbs.state
    with state.lock:
        trial = state.cluster.scratch()
        left_out = {name: state.refusal(name) for name in state.nodes if name not in trial.row_of}
        gpus = {name: state.gpus_of(name) for name in trial.row_of}
        entry = state.ledger.entry(pod.uid)
        since_s = verbs.waiting.since_s(pod.uid)
        free = {name: _free(state.ledger, name, records) for name, records in gpus.items()}
        together = _together(verbs, pod, gpus)
    unit_mib = state.unit_mib
    answer: dict[str, Any] = {
        "pod": pod.title,
        "uid": pod.uid,
        "node": pod.node,
        "asked": _asked(pod, unit_mib),
        "placement": (pod.demand and pod.demand.policy) or verbs.choices.default_policy,
    }
    if pod.refusal:
        return {**answer, "verdict": pod.refusal, "nodes": []}
    if entry is not None:
        answer["gpus"] = [share.uuid for share in entry.footprint]
        answer["stage"] = str(entry.stage)
        answer["node"] = entry.node
    if since_s is not None:
        answer["waiting_s"] = round(now_s - since_s, 1)
    nodes = _nodes(trial, pod, gpus, free, together, unit_mib)
    nodes += [{"node": name, "fits": False, "reason": text} for name, text in left_out.items()]
    nodes.sort(key=lambda each: (not each["fits"], each["node"]))
    answer["verdict"] = verdict(pod, sum(each["fits"] for each in nodes), len(nodes))
    answer["nodes"] = nodes
    return answer


def _nodes(
    trial: Cluster,
    pod: PodRecord,
    gpus: Mapping[str, tuple[GpuRecord, ...]],
    free: Mapping[str, list[tuple[int, int]]],
    together: NDArray[np.bool_] | None,
    unit_mib: int,
) -> list[dict[str, Any]]:
    assert pod.demand is not None
    names = list(gpus)
    rows = np.array([trial.row_of[name] for name in names], dtype=np.int64)
    requests = pod.demand.requests
    eligible = [eligible_devices(trial, rows, request) for request in requests]
    wanted = [kind_of_devices(trial, rows, request) for request in requests]
    fits = np.ones(len(rows), dtype=np.bool_)
    for each, request in zip(eligible, requests, strict=True):
        fits &= each.sum(axis=1) >= request.gpus
    if together is not None:
        fits &= together
    reasons = iter(reasons_for(trial, rows[~fits], pod.demand, unit_mib))
    table = []
    for number, name in enumerate(names):
        devices = [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "model": gpu.model,
                "memory_gib": _gib(gpu.memory_units, unit_mib),
                "memory_free_gib": _gib(free[name][device][0], unit_mib),
                "compute_percent": gpu.compute_percent,
                "compute_free_percent": free[name][device][1],
                "fits": any(bool(each[number, device]) for each in eligible),
                "wanted": any(bool(each[number, device]) for each in wanted),
                **({"unusable": gpu.unusable} if gpu.unusable else {}),
            }
            for device, gpu in enumerate(gpus[name])
        ]
        row: dict[str, Any] = {"node": name, "fits": bool(fits[number]), "gpus": devices}
        if not fits[number]:
            row["reason"] = next(reasons).text
        table.append(row)
    return table


def _together(verbs: Verbs, pod: PodRecord, gpus: Mapping[str, object]) -> NDArray[np.bool_] | None:
    """By node, where all of several containers fit at once; None for a pod with a single one."""
    if pod.demand is None or len(pod.demand.parts) < 2:
        return None
    rows = [verbs.state.cluster.row_of[name] for name in gpus]
    fits: NDArray[np.bool_] = np.isfinite(verbs.choices.scores(pod.demand).cost[rows])
    return fits


def _free(ledger: Ledger, node: str, gpus: tuple[GpuRecord, ...]) -> list[tuple[int, int]]:
    free = []
    for gpu in gpus:
        taken = ledger.taken_of(gpu.uuid).plus(ledger.unlocated_on(node))
        memory = 0 if taken.wholes else max(gpu.memory_units - taken.memory_units, 0)
        free.append((memory, max(gpu.compute_percent - taken.compute_percent, 0)))
    return free


def _asked(pod: PodRecord, unit_mib: int) -> list[dict[str, Any]]:
    if pod.demand is None:
        return []
    return [
        {
            "containers": [container.name for container in part.containers],
            "gpus": part.request.gpus,
            "of_each": asked_text(part.request, unit_mib),
            **_selection(part.request),
        }
        for part in pod.demand.parts
    ]


def _selection(request: Request) -> dict[str, list[str]]:
    chosen = {
        "models": request.models,
        "excluded_models": request.excluded_models,
        "uuids": request.uuids,
        "excluded_uuids": request.excluded_uuids,
    }
    return {name: sorted(words) for name, words in chosen.items() if words}


def verdict(pod: PodRecord, fits: int, nodes: int) -> str:
    """In one sentence; `fits` of `nodes` have room for it."""
    if pod.node:
        return f"it is bound to {pod.node}"
    if not nodes:
        return "no node reports GPUs; see whether the node agent runs on them"
    if not fits:
        return f"its GPUs are free on none of {nodes} nodes"
    return (
        f"its GPUs are free on {fits} of {nodes} nodes; if it still waits, its event says what "
        f"else kube-scheduler misses there"
    )


def _gib(units: int, unit_mib: int) -> float:
    return float(amount_text(units, unit_mib))
