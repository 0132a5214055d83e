"""The decision of GetPreferredAllocation: which GPU a container gets, and which ids of it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from aliquot.protocol.request import WHOLE_PERCENT, PodRequest, Role
from deviceplugin.booking import ids
from deviceplugin.booking.errors import Refusal
from deviceplugin.booking.identity import Admitted, amount_of
from deviceplugin.booking.ledger import Allocation, Ledger
from deviceplugin.booking.supply import Supply

__all__ = ["Question", "amount_text", "choose", "siblings"]

WHAT_TO_DO = "ask for less, or wait until others end"


@dataclass(frozen=True, slots=True)
class Question:
    """What the kubelet asks, and what is known about it."""

    resource: str
    size: int
    available: Collection[str]
    must_include: Collection[str] = ()
    admitted: Admitted | None = None
    gone: frozenset[str] = frozenset()
    """Names of allocations whose containers have ended: their ids are free."""
    reserved: frozenset[str] = frozenset()
    """Answered a moment ago to somebody else, whose Allocate is on its way."""
    pod_gpus: tuple[str, ...] = ()
    """Where the pod's other containers are, if it must stay on their GPUs."""
    passed_on: frozenset[str] = frozenset()
    """Names of the allocations of its pod's init containers, whose ids the kubelet re-uses."""


@dataclass(slots=True)
class _Room:
    """What one GPU has for the container."""

    uuid: str
    free: list[str] = field(default_factory=list)
    other_free: int = 0
    empty: bool = True

    @property
    def amount(self) -> int:
        return len(self.free)


@dataclass(frozen=True, slots=True)
class _Need:
    each: int
    """Of the asked resource, on each GPU."""
    gpus: int
    other_each: int = 0
    room_each: int = 0
    """What else must be there, for the pod's other containers."""
    whole: bool = False
    where: tuple[str, ...] | None = None
    """The only GPUs that will do, and why."""
    why: str = ""


def choose(question: Question, supply: Supply, ledger: Ledger) -> list[str]:
    """Exactly as many ids as asked for, or a Refusal with a text for the pod's user."""
    _check(question, supply)
    must = ids.by_gpu(question.must_include)
    rooms = _rooms(question, supply, ledger)
    planned = _by_plan(question, rooms, must)
    if planned is not None:
        return planned
    need = _need(question, must)
    chosen = _best_fit(need, rooms, question, supply)
    return _take(question, must, {room.uuid: (room, need.each) for room in chosen})


def amount_text(resource: str, amount: int, unit_bytes: int) -> str:
    """`48 units (12 GiB)` or `30 percent`."""
    if resource == COMPUTE_RESOURCE:
        return f"{amount} percent"
    gib = f"{amount * unit_bytes / (1 << 30):.2f}".rstrip("0").rstrip(".")
    return f"{amount} {'unit' if amount == 1 else 'units'} ({gib} GiB)"


def _check(question: Question, supply: Supply) -> None:
    admitted = question.admitted
    if admitted is not None and admitted.pod is not None and admitted.pod.request is None:
        raise Refusal(admitted.pod.refusal or "the pod's annotations make no sense")
    if question.size < 1:
        raise Refusal(f"{question.size} ids of {question.resource} are not a request")
    for each in question.must_include:
        try:
            ids.parse(question.resource, each)
        except ids.IdError as error:
            raise Refusal(str(error)) from None
    if not any(supply.usable()):
        reasons = "; ".join(
            f"{supply.name(gpu.uuid)} {supply.why_unusable(gpu.uuid)}"
            for gpu in supply.hardware.gpus
        )
        raise Refusal(f"no GPU of this node can be used ({reasons or 'it has none'})")


def _rooms(question: Question, supply: Supply, ledger: Ledger) -> dict[str, _Room]:
    """What is free on every usable GPU that the pod may have."""
    closed = {uuid for uuid, each in ledger.closed().items() if each.name not in question.gone}
    withdrawn = ledger.closed().keys() if question.resource == COMPUTE_RESOURCE else ()
    rooms = {
        gpu.uuid: _Room(gpu.uuid)
        for gpu in supply.usable()
        if gpu.uuid not in closed and _admits(question, gpu.uuid, gpu.model)
    }
    must = frozenset(question.must_include)
    other = ids.other(question.resource)
    offered = must.union(question.available)
    freed = ledger.freed(question.gone)
    free = must | ((ledger.unheld(offered) | (freed & offered)) - question.reserved)
    freed = ledger.freed(question.gone | question.passed_on)
    occupied = ledger.occupied(question.gone)
    for room in rooms.values():
        room.free = [each for each in supply.ids(question.resource, room.uuid) if each in free]
        some = supply.ids(other, room.uuid)
        room.other_free = len(freed.intersection(some))
        # The kubelet does not know yet that the memory of a whole GPU is back, except for what
        # others held there.
        if room.uuid not in withdrawn:
            room.other_free += len(some) - ledger.count_held(some)
        room.empty = room.uuid not in occupied
    return rooms


def _admits(question: Question, uuid: str, model: str) -> bool:
    admitted = question.admitted
    if admitted is None or admitted.pod is None or admitted.pod.request is None:
        return True
    request = admitted.pod.request
    return request.uuids.admits_uuid(uuid) and request.models.admits_model(model)


def _need(question: Question, must: Mapping[str, list[str]]) -> _Need:
    admitted, resource, size = question.admitted, question.resource, question.size
    request = admitted.request if admitted is not None else None
    gpus, other_each, room_each = 1, 0, 0
    if admitted is not None and admitted.pod is not None and admitted.pod.request and request:
        gpus = admitted.pod.request.gpus_of(request)
        other_each = amount_of(request, ids.other(resource)) // gpus
        if _keeps_one_gpu(admitted):
            room_each = _largest(admitted.pod.request, resource)
            other_each = _largest(admitted.pod.request, ids.other(resource))
    elif resource == COMPUTE_RESOURCE and size > WHOLE_PERCENT:
        # Of a pod that we cannot see: several GPUs are certain, how it is split is not.
        gpus = -(-size // WHOLE_PERCENT)
    where, why = _forced(question, must)
    if where is not None:
        gpus, room_each = len(where), 0
        if admitted is not None and admitted.partner is not None:
            other_each = 0
        elif request is not None:
            other_each = amount_of(request, ids.other(resource)) // gpus
    if size % gpus:
        raise Refusal(
            f"needs {size} ids of {resource}, which cannot be split evenly over {gpus} GPUs; "
            f"ask for a multiple of {gpus}"
        )
    return _Need(size // gpus, gpus, other_each, room_each, _is_whole(admitted), where, why)


def _is_whole(admitted: Admitted | None) -> bool:
    if admitted is None or admitted.pod is None or admitted.request is None:
        return False
    request = admitted.pod.request
    return request is not None and request.is_whole(admitted.request)


def _forced(
    question: Question, must: Mapping[str, list[str]]
) -> tuple[tuple[str, ...] | None, str]:
    admitted = question.admitted
    if admitted is not None and admitted.partner is not None:
        half = "memory" if admitted.partner.resource == MEMORY_RESOURCE else "compute share"
        return admitted.partner.gpus, f"where its {half} is"
    if must:
        return tuple(must), "where its pod's init container is"
    if question.pod_gpus:
        return question.pod_gpus, "where its pod's init container is"
    return None, ""


def _by_plan(
    question: Question, rooms: Mapping[str, _Room], must: Mapping[str, list[str]]
) -> list[str] | None:
    """As the extender planned it, where that is possible."""
    admitted = question.admitted
    if admitted is None or not admitted.plan:
        return None
    wanted = {each.uuid: (each.memory_units, each.compute_percent) for each in admitted.plan}
    if question.resource == COMPUTE_RESOURCE:
        wanted = {uuid: (percent, units) for uuid, (units, percent) in wanted.items()}
    forced, _ = _forced(question, must)
    is_first, is_whole = admitted.partner is None, _is_whole(admitted)
    fits = (
        sum(amount for amount, _ in wanted.values()) == question.size
        and (forced is None or set(forced) == set(wanted))
        and all(
            (room := rooms.get(uuid)) is not None
            and room.amount >= amount
            and (room.empty if is_whole else not is_first or room.other_free >= other)
            for uuid, (amount, other) in wanted.items()
        )
    )
    if not fits:
        return None
    return _take(question, must, {uuid: (rooms[uuid], wanted[uuid][0]) for uuid in wanted})


def _best_fit(
    need: _Need, rooms: Mapping[str, _Room], question: Question, supply: Supply
) -> list[_Room]:
    eligible = [rooms[uuid] for uuid in need.where or rooms if uuid in rooms]
    fitting = [
        room
        for room in eligible
        if room.amount >= max(need.each, need.room_each)
        and room.other_free >= need.other_each
        # Without anything of the other resource no container can be complete there.
        and (room.empty if need.whole else need.where is not None or room.other_free)
    ]
    if len(fitting) < need.gpus:
        raise Refusal(_refusal(need, eligible, question, supply))

    def waste(room: _Room) -> tuple[bool, int, int, int]:
        gpu = supply.gpu(room.uuid)
        return (
            room.other_free < _likely_other(need, room, question, supply),
            room.amount - need.each,
            room.other_free - need.other_each,
            gpu.index if gpu is not None else 0,
        )

    return sorted(fitting, key=waste)[: need.gpus]


def _likely_other(need: _Need, room: _Room, question: Question, supply: Supply) -> int:
    """Of a pod that we cannot see: most want about as large a part of the one as of the other, and
    a first half that leaves no room for the second is the pod's end."""
    if question.admitted is not None and question.admitted.request is not None:
        return 0
    all_of_it = supply.count(question.resource, room.uuid)
    other = supply.count(ids.other(question.resource), room.uuid)
    return other * min(need.each, all_of_it) // all_of_it if all_of_it else 0


def _take(
    question: Question,
    must: Mapping[str, list[str]],
    taken: Mapping[str, tuple[_Room, int]],
) -> list[str]:
    found: list[str] = []
    for uuid, (room, count) in taken.items():
        first = must.get(uuid, [])
        if len(first) > count:
            raise Refusal(
                f"the kubelet wants {len(first)} ids of its init container re-used on one GPU, "
                f"of which {count} are asked for; ask for the same number of GPUs in both"
            )
        already = set(first)
        rest = [each for each in room.free if each not in already]
        found += [*first, *rest[: count - len(first)]]
    if not set(question.must_include) <= set(found):
        raise Refusal(
            "the kubelet wants ids of its init container re-used that are on another GPU; "
            "ask for the same number of GPUs in all containers of the pod"
        )
    return found


def _refusal(need: _Need, eligible: Iterable[_Room], question: Question, supply: Supply) -> str:
    rooms = list(eligible)
    unit_bytes = supply.sharing.unit_bytes
    other = ids.other(question.resource)

    def text(amount: int, other_amount: int) -> str:
        parts = [(question.resource, amount), (other, other_amount)]
        if need.other_each:
            parts.sort(key=lambda part: part[0] != MEMORY_RESOURCE)
        else:
            parts = parts[:1]
        return " and ".join(amount_text(*part, unit_bytes) for part in parts)

    asked = f"needs {text(max(need.each, need.room_each), need.other_each)}"
    if need.whole:
        asked = f"needs {need.gpus} whole GPU{'s' if need.gpus > 1 else ''}"
        empty = sum(room.empty for room in rooms)
        return f"{asked}; {empty} of {len(rooms)} that it may have are empty; {WHAT_TO_DO}"
    if need.where is not None:
        names = " and ".join(supply.name(uuid) for uuid in need.where)
        asked += f" on {'each of ' if len(need.where) > 1 else ''}{names}, {need.why}"
    elif need.gpus > 1:
        asked += f" on each of {need.gpus} GPUs"
    else:
        asked += " on one GPU"
    if not rooms:
        reasons = [
            f"{supply.name(uuid)} {supply.why_unusable(uuid) or 'is not one it may have'}"
            for uuid in need.where or [gpu.uuid for gpu in supply.hardware.gpus]
        ]
        return f"{asked}; {', '.join(reasons)}"
    most = max(rooms, key=lambda room: (room.other_free > 0, _closeness(room, need)))
    if most.amount >= need.each and not most.other_free:
        return f"{asked}; no {other} is free beside it on any GPU; {WHAT_TO_DO}"
    verb = "has" if len(rooms) == 1 else "comes closest:" if need.other_each else "has the most:"
    return (
        f"{asked}; {supply.name(most.uuid)} {verb} {text(most.amount, most.other_free)}; "
        f"{WHAT_TO_DO}"
    )


def _closeness(room: _Room, need: _Need) -> tuple[float, int]:
    part = min(1.0, room.amount / need.each)
    if need.other_each:
        part = min(part, room.other_free / need.other_each)
    return (part, room.amount)


def _largest(request: PodRequest, resource: str) -> int:
    """What a pod has at most at any time: its largest init container, or all others together."""
    amounts = [(each.role, amount_of(each, resource)) for each in request.containers]
    init = max((amount for role, amount in amounts if role is Role.INIT), default=0)
    return max(init, sum(amount for role, amount in amounts if role is not Role.INIT))


def siblings(admitted: Admitted | None, ledger: Ledger, gone: Collection[str]) -> list[Allocation]:
    """What a pod has already whose containers pass ids on to each other."""
    if admitted is None or not _keeps_one_gpu(admitted):
        return []
    return [each for each in ledger.of_pod(admitted.owner) if each.name not in gone]


def _keeps_one_gpu(admitted: Admitted | None) -> bool:
    """Whether all containers of the pod must share GPUs: the kubelet passes ids between them."""
    request = admitted.pod.request if admitted is not None and admitted.pod is not None else None
    return request is not None and any(each.role is Role.INIT for each in request.containers)
