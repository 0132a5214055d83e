"""One node as it is shown: what its agent tells, and what only the cluster knows; pure."""

from collections import defaultdict

import msgspec

from aliquot.protocol.inventory import GpuRecord
from aliquot.protocol.view import GpuView, NodeView, SliceView
from scheduler_ext.dashboard.knowledge import Holder, NodeFacts
from scheduler_ext.footprint import Amount
from scheduler_ext.ledger import NOTHING, Stage

__all__ = ["compose"]

_MIB = 1 << 20
_NAMED_PODS = 3
_RUNNING = (Stage.ACTUAL, Stage.TERMINATING)

SlicesByGpu = dict[str, tuple[SliceView, ...]]


def compose(
    facts: NodeFacts, answer: NodeView | None, problem: str, unit_mib: int, now: float
) -> NodeView:
    """`answer` is None when the agent told nothing; `problem` then says why."""
    name = facts.record.name
    problems = [facts.record.refusal, problem, answer.problem if answer else "", _unplaced(facts)]
    text = "; ".join(each for each in problems if each)
    if answer is None:
        held = _by_gpu(facts.holders, unit_mib)
        gpus = tuple(
            _gpu(record, held.get(record.uuid, ()), unit_mib)
            for record in (facts.record.inventory.gpus if facts.record.inventory else ())
        )
        return NodeView(name=name, taken_at=now, gpus=gpus, problem=text)
    # What runs is the agent's to tell; what has been decided for the node, but has not come there
    # yet, only we know.
    coming = [each for each in facts.holders if each.entry.stage not in _RUNNING]
    planned = _by_gpu(coming, unit_mib)
    gpus = tuple(
        _with(gpu, planned[gpu.uuid]) if gpu.uuid in planned else gpu for gpu in answer.gpus
    )
    return msgspec.structs.replace(answer, name=name, gpus=gpus, problem=text)


def _with(gpu: GpuView, planned: tuple[SliceView, ...]) -> GpuView:
    there = {(each.namespace, each.pod) for each in gpu.slices}
    missing = tuple(each for each in planned if (each.namespace, each.pod) not in there)
    return msgspec.structs.replace(gpu, slices=gpu.slices + missing) if missing else gpu


def _gpu(record: GpuRecord, slices: tuple[SliceView, ...], unit_mib: int) -> GpuView:
    advertised_bytes = record.memory_units * unit_mib * _MIB
    return GpuView(
        uuid=record.uuid,
        index=record.index,
        model=record.model,
        memory_bytes=record.memory_mib * _MIB or advertised_bytes,
        memory_advertised_bytes=advertised_bytes,
        compute_advertised_percent=float(record.compute_percent),
        unusable=record.unusable,
        slices=slices,
    )


def _by_gpu(holders: list[Holder] | tuple[Holder, ...], unit_mib: int) -> SlicesByGpu:
    found: defaultdict[str, list[SliceView]] = defaultdict(list)
    for holder in holders:
        for share in holder.entry.footprint:
            found[share.uuid].append(_slice(holder, share.amount, unit_mib))
    return {
        uuid: tuple(sorted(slices, key=lambda each: (each.namespace, each.pod)))
        for uuid, slices in found.items()
    }


def _slice(holder: Holder, amount: Amount, unit_mib: int) -> SliceView:
    pod, entry = holder
    request = pod.request
    return SliceView(
        namespace=pod.namespace,
        pod=pod.name,
        # The ledger counts by pod: what its containers have on one GPU is one part here.
        container=", ".join(each.name for each in request.containers) if request else "",
        is_running=entry.stage in _RUNNING,
        # The node's default is not known here.
        policy=(request.policy or "") if request else "",
        memory_limit_bytes=None if amount.wholes else amount.memory_units * unit_mib * _MIB,
        compute_percent=float(amount.compute_percent),
    )


def _unplaced(facts: NodeFacts) -> str:
    """Pods that are booked on every GPU because nobody knows which one they have."""
    names = [pod.title for pod, entry in facts.holders if entry.unlocated != NOTHING]
    if not names:
        return ""
    named = ", ".join(sorted(names)[:_NAMED_PODS])
    more = f" and {len(names) - _NAMED_PODS} more" if len(names) > _NAMED_PODS else ""
    return f"on which GPU {named}{more} run is not known, so they count on each of them"
