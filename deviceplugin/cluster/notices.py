"""What is worth an event, in words: a GPU that changed, a pod that is not where it was planned."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aliquot.kubernetes.events import EventType
from aliquot.protocol.assignment import Assignment
from aliquot.protocol.inventory import GpuRecord, NodeInventory

__all__ = ["Notice", "not_as_planned", "of_hardware"]


@dataclass(frozen=True, slots=True)
class Notice:
    reason: str
    message: str
    type: EventType = "Warning"


def of_hardware(before: NodeInventory | None, now: NodeInventory) -> Iterator[Notice]:
    """What changed since the last inventory; nothing new for GPUs that were well from the start."""
    known = {each.uuid: each for each in before.gpus} if before is not None else {}
    for gpu in now.gpus:
        old = known.pop(gpu.uuid, None)
        if gpu.unusable and (old is None or old.unusable != gpu.unusable):
            yield Notice(
                "GpuUnusable",
                f"{_name(gpu)} is unusable: {gpu.unusable}; nothing new starts on it until it "
                "has recovered, containers on it are left running",
            )
        elif not gpu.unusable and old is not None and old.unusable:
            yield Notice("GpuRecovered", f"{_name(gpu)} is usable again", "Normal")
    for gone in known.values():
        yield Notice("GpuGone", f"{_name(gone)} is not on this node any more")


def not_as_planned(
    plan: Assignment | None, actual: Assignment, name_of: Callable[[str], str]
) -> Notice | None:
    """Only other GPUs count: amounts change with a resize."""
    if plan is None:
        return None
    texts = []
    for container, slices in sorted(actual.containers.items()):
        planned = {each.uuid for each in plan.containers.get(container, ())}
        given = {each.uuid for each in slices}
        if planned and planned != given:
            texts.append(
                f"container {container} was given {_list(given, name_of)} and not "
                f"{_list(planned, name_of)}, as planned"
            )
    if not texts:
        return None
    return Notice(
        "NotAsPlanned",
        f"{'; '.join(texts)}. It runs within its limits; the scheduler extender counts what was "
        "given",
    )


def _list(uuids: set[str], name_of: Callable[[str], str]) -> str:
    return " and ".join(sorted(name_of(uuid) for uuid in uuids))


def _name(gpu: GpuRecord) -> str:
    return f"GPU {gpu.index} ({gpu.model}, {gpu.uuid})"
