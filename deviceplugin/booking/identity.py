"""Which container is being admitted: a look-up where the kubelet answers, else careful guesses."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from aliquot.protocol.assignment import Slice
from aliquot.protocol.names import MEMORY_RESOURCE
from aliquot.protocol.request import ContainerRequest, Role
from deviceplugin.booking import ids
from deviceplugin.booking.ledger import Allocation, Ledger, Owner, allocation_name
from deviceplugin.booking.presence import Presence
from deviceplugin.booking.sources import Held, PodView

__all__ = [
    "Admitted",
    "amount_of",
    "by_listing",
    "by_partner",
    "by_plan",
    "owner_of",
    "worth_waiting_for",
]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A container that the kubelet is admitting, as far as it is known."""

    owner: Owner
    pod: PodView | None = None
    request: ContainerRequest | None = None
    partner: Allocation | None = None
    is_guess: bool = False
    """Good enough to choose a GPU by, and not to be written down."""

    @property
    def plan(self) -> tuple[Slice, ...]:
        if self.pod is None or self.pod.plan is None:
            return ()
        return self.pod.plan.containers.get(self.owner.container, ())


def amount_of(request: ContainerRequest, resource: str) -> int:
    return request.memory_units if resource == MEMORY_RESOURCE else request.compute_percent


def owner_of(pod: PodView, request: ContainerRequest) -> Owner:
    return Owner(pod.namespace, pod.name, request.name, pod.uid, request.role is Role.INIT)


def by_listing(
    resource: str,
    size: int,
    listing: list[Held],
    ledger: Ledger,
    find: Callable[[str, str], PodView | None],
    presence: Presence,
) -> Admitted | None:
    """The listed pod of which a container lacks just this. Pods that ask for no device look alike,
    so the specification decides; `request` is None where nobody can tell what it asks for."""
    candidates = _pods_that_lack(resource, listing)
    found, unseen, senseless = [], {}, []
    for (namespace, name), listed in candidates.items():
        pod = find(namespace, name)
        if pod is None:
            unseen[namespace, name] = listed
        elif (match := _match(pod, resource, size, listed, ledger)) is not None:
            found.append(match)
        elif pod.request is None:
            senseless.append(pod)
    if found:
        # Whoever has its other half is in the middle of it; else the kubelet takes them in turn.
        return min(found, key=lambda each: (each.partner is None, _age(each)))
    if not unseen and len(senseless) == 1:
        pod = senseless[0]
        return Admitted(Owner(pod.namespace, pod.name, uid=pod.uid), pod)
    return _unseen(resource, unseen, ledger, presence)


def worth_waiting_for(
    resource: str, listing: list[Held], find: Callable[[str, str], PodView | None]
) -> list[tuple[str, str]]:
    """Listed pods that our watch has not seen yet and that may be the one; half done ones first."""
    candidates = _pods_that_lack(resource, listing)
    unseen = [pod for pod in candidates if find(*pod) is None]
    return sorted(unseen, key=lambda pod: not _is_half(candidates[pod], resource))


def by_partner(resource: str, half_open: Iterable[Allocation]) -> Admitted | None:
    """Without a list: whoever has just been given the other resource, and not yet this one."""
    others = (each for each in half_open if not each.whole)
    wanted = [each for each in others if each.resource == ids.other(resource)]
    if not wanted:
        return None
    return Admitted(wanted[-1].owner or Owner("", ""), partner=wanted[-1], is_guess=True)


def by_plan(resource: str, size: int, pods: Iterable[PodView], ledger: Ledger) -> Admitted | None:
    """Without a list: the oldest waiting container that was planned with this size."""
    wanted = [
        Admitted(owner, pod, request, is_guess=True)
        for pod in pods
        if pod.plan is not None and pod.request is not None
        for request in pod.request.containers
        if amount_of(request, resource) == size
        and request.name in pod.plan.containers
        and ledger.half(owner := owner_of(pod, request), resource) is None
    ]
    return min(wanted, key=_age, default=None)


def _age(admitted: Admitted) -> tuple[float, str]:
    return (admitted.pod.created_s if admitted.pod else 0.0, str(admitted.owner))


def _pods_that_lack(resource: str, listing: list[Held]) -> dict[tuple[str, str], dict[str, Held]]:
    pods: dict[tuple[str, str], dict[str, Held]] = {
        (held.key.namespace, held.key.pod): {} for held in listing if not held.ids.get(resource)
    }
    for held in listing:
        containers = pods.get((held.key.namespace, held.key.pod))
        if containers is not None:
            containers[held.key.container] = held
    return pods


def _is_half(containers: dict[str, Held], resource: str) -> bool:
    return any(
        held.ids.get(ids.other(resource)) and not held.ids.get(resource)
        for held in containers.values()
    )


def _match(
    pod: PodView, resource: str, size: int, listed: dict[str, Held], ledger: Ledger
) -> Admitted | None:
    for request in _in_order(pod):
        if amount_of(request, resource) != size:
            continue
        owner = owner_of(pod, request)
        held = listed.get(request.name)
        if held is not None:
            if held.ids.get(resource):
                continue
        elif request.role is not Role.INIT or ledger.half(owner, resource) is not None:
            continue
        return Admitted(owner, pod, request, _listed_partner(owner, resource, held, ledger))
    return None


def _in_order(pod: PodView) -> Iterator[ContainerRequest]:
    """As the kubelet takes them: init containers and sidecars first."""
    containers = pod.request.containers if pod.request is not None else ()
    yield from (each for each in containers if each.role is not Role.APP)
    yield from (each for each in containers if each.role is Role.APP)


def _listed_partner(
    owner: Owner, resource: str, held: Held | None, ledger: Ledger
) -> Allocation | None:
    """The other half, as the kubelet lists it; our own entry of an earlier life does not count."""
    if held is None:
        return ledger.half(owner, ids.other(resource))
    listed = held.ids.get(ids.other(resource), frozenset())
    return ledger.get(allocation_name(ids.other(resource), listed))


def _unseen(
    resource: str,
    pods: dict[tuple[str, str], dict[str, Held]],
    ledger: Ledger,
    presence: Presence,
) -> Admitted | None:
    """Nobody can tell us what these pods ask for; one of them must be it."""
    pods = _without_complete(resource, pods, ledger, presence)
    halves = _last_halves(resource, pods, presence)
    chosen = {(held.key.namespace, held.key.pod) for held in halves} or set(pods)
    if len(chosen) != 1:
        return None
    pod = Owner(*chosen.pop())
    if not halves:
        # What it has just been given and no listed container has is its init container's.
        names = set(presence.half_open())
        init = by_partner(resource, (each for each in ledger.of_pod(pod) if each.name in names))
        if init is not None:
            return Admitted(pod, partner=init.partner)
        halves = [
            held for held in pods[pod.namespace, pod.pod].values() if not held.ids.get(resource)
        ]
    if len(halves) != 1:
        return Admitted(pod)
    owner = Owner(pod.namespace, pod.pod, halves[0].key.container)
    return Admitted(owner, partner=_listed_partner(owner, resource, halves[0], ledger))


def _last_halves(
    resource: str,
    pods: dict[tuple[str, str], dict[str, Held]],
    presence: Presence,
) -> list[Held]:
    """Containers that lack only this. A container's calls follow each other at once, so of several
    it is the one that was answered last; the others wait for their start, with whole GPUs."""
    halves = {
        allocation_name(ids.other(resource), other): held
        for containers in pods.values()
        for held in containers.values()
        if not held.ids.get(resource) and (other := held.ids.get(ids.other(resource)))
    }
    last = presence.last_born(halves) if len(halves) > 1 else None
    return [halves[last]] if last is not None else list(halves.values())


def _without_complete(
    resource: str,
    pods: dict[tuple[str, str], dict[str, Held]],
    ledger: Ledger,
    presence: Presence,
) -> dict[tuple[str, str], dict[str, Held]]:
    """Who has started with one resource, or has had it for long, does not wait for the other: it
    has whole GPUs, or its user has forgotten the other."""

    def is_complete(held: Held) -> bool:
        first = next(iter(held.ids.get(ids.other(resource), ())), "")
        return any(each.starts or presence.is_settled(each) for each in ledger.holders(first))

    rest = {
        pod: {name: held for name, held in containers.items() if not is_complete(held)}
        for pod, containers in pods.items()
    }
    return {
        pod: containers
        for pod, containers in rest.items()
        if any(not held.ids.get(resource) for held in containers.values())
    }
