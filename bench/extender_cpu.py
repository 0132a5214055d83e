"""What the extender's decisions cost in processor time, without sockets: true on a busy machine."""

import gc
import random
import time
from typing import Any

import msgspec

from bench.extender_cluster import Kind, bound_pods, kinds, nodes, pending_pod
from scheduler_ext.choices import Choices
from scheduler_ext.garbage import keep_what_is_there
from scheduler_ext.objects import Node, Pod
from scheduler_ext.ratings import Ratings
from scheduler_ext.records import pod_record
from scheduler_ext.state import ClusterState
from scheduler_ext.verbs import BEST_SCORE, Verbs
from scheduler_ext.waiting import WaitingPods
from scheduler_ext.wire import ExtenderArgs, FilterResult

__all__ = ["measure_cpu"]

_decode = msgspec.json.Decoder(ExtenderArgs).decode
_encode = msgspec.json.encode


def measure_cpu(node_count: int, pod_count: int, calls: int, seed: int) -> dict[str, Any]:
    """Milliseconds of the deciding thread, JSON included."""
    state = ClusterState()
    verbs = Verbs(state, Choices(state.cluster, "fragmentation"), WaitingPods())
    state.replace_nodes([msgspec.convert(each, Node) for each in nodes(node_count)])
    pods = [msgspec.convert(each, Pod) for each in bound_pods(pod_count, node_count, seed)]
    began_s = time.thread_time()
    state.replace_pods(pods)
    rebuild_s = time.thread_time() - began_s
    del pods
    usual = gc.get_threshold()
    keep_what_is_there()
    ratings = Ratings(state.cluster)
    names = [f"gpu-node-{number:05}" for number in range(node_count)]
    drawn = random.Random(seed)
    for number, kind in enumerate(kinds()):
        _one(verbs, ratings, number, kind, names)
    spent = [
        _one(verbs, ratings, 1000 + number, drawn.choice(kinds()), names) for number in range(calls)
    ]
    both = sorted(filter_ms + prioritize_ms for filter_ms, prioritize_ms, _ in spent)
    decisions = sorted(decision_ms for _, _, decision_ms in spent)
    gc.set_threshold(*usual)
    gc.unfreeze()
    return {
        "cpu_rebuild_s": round(rebuild_s, 2),
        "cpu_both_p50_ms": round(both[len(both) // 2], 2),
        "cpu_both_p99_ms": round(both[int(len(both) * 0.99)], 2),
        "cpu_bind_decision_p99_ms": round(decisions[int(len(decisions) * 0.99)], 2),
    }


def _one(
    verbs: Verbs, ratings: Ratings, number: int, kind: Kind, names: list[str]
) -> tuple[float, float, float]:
    """Of filter, prioritize and the bind decision; zeros for what is not asked."""
    pod = pending_pod(number, kind)
    body = _encode({"Pod": pod, "Nodes": None, "NodeNames": names})
    began_s = time.thread_time()
    args = _decode(body)
    found = verbs.filter(args.pod, args.node_names or [])
    failed = {name: reason.text for name, reason in found.failed.items()}
    _encode(FilterResult(found.passed, failed, {}))
    filter_ms = 1e3 * (time.thread_time() - began_s)
    if not found.passed:
        return filter_ms, 0.0, 0.0
    body = _encode({"Pod": pod, "Nodes": None, "NodeNames": found.passed})
    began_s = time.thread_time()
    args = _decode(body)
    rated = verbs.rate(args.pod, args.node_names or [])
    ratings.encode(found.passed, rated.rows, rated.scores)
    prioritize_ms = 1e3 * (time.thread_time() - began_s)
    record = pod_record(args.pod)
    assert record is not None
    began_s = time.thread_time()
    verbs.choose(record, found.passed[rated.scores.tolist().index(BEST_SCORE)])
    decision_ms = 1e3 * (time.thread_time() - began_s)
    verbs.holdings.settle(record.uid)
    return filter_ms, prioritize_ms, decision_ms
