"""What a pod's annotations and plan add to an allocation, once our watch has seen the pod."""

import msgspec

from aliquot.protocol.names import MEMORY_RESOURCE
from deviceplugin.booking import ids
from deviceplugin.booking.identity import owner_of
from deviceplugin.booking.ledger import Allocation
from deviceplugin.booking.sources import PodView

__all__ = ["described"]


def described(allocation: Allocation, pod: PodView | None, default_policy: str) -> Allocation:
    """Unchanged when the pod is not known, makes no sense, or is a later one of the same name."""
    owner = allocation.owner
    if pod is None or pod.request is None or owner is None or owner.uid not in ("", pod.uid):
        return allocation
    containers = {each.name: each for each in pod.request.containers}
    request = containers.get(owner.container)
    return msgspec.structs.replace(
        allocation,
        owner=owner_of(pod, request) if request is not None else owner,
        policy=pod.request.policy or default_policy,
        weight=pod.request.weight,
        planned=_is_planned(allocation, pod),
    )


def _is_planned(allocation: Allocation, pod: PodView) -> bool | None:
    """Whether the kubelet gave what the extender planned; a resize does not count."""
    if pod.plan is None or allocation.owner is None:
        return None
    plan = pod.plan.containers.get(allocation.owner.container)
    if plan is None:
        return None
    is_memory = allocation.resource == MEMORY_RESOURCE
    wanted = {each.uuid: each.memory_units if is_memory else each.compute_percent for each in plan}
    given = ids.by_gpu(allocation.ids)
    return wanted == {uuid: len(some) for uuid, some in given.items()}
