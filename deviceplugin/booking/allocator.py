"""The agent's heart: which ids there are, who has them, and what each container is given.

Everything here answers from memory, except the journal and the small files of an allocation. The
gRPC rim calls it from any thread; what it needs to ask (the kubelet's list, a pod) it asks through
callables, so nothing in here knows a socket.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from aliquot.protocol.assignment import Assignment
from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking import completion, ids, overview, preference, resize
from deviceplugin.booking.admission import Answered, admit
from deviceplugin.booking.asking import IsGone, Listing, PodSource, ask
from deviceplugin.booking.bookkeeping import Books
from deviceplugin.booking.description import described
from deviceplugin.booking.errors import Refusal, Retry, StartRefused, Unsettled
from deviceplugin.booking.evidence import gathered
from deviceplugin.booking.identity import (
    Admitted,
    by_listing,
    by_partner,
    by_plan,
    worth_waiting_for,
)
from deviceplugin.booking.journal import Journal, JournalError
from deviceplugin.booking.ledger import Allocation, Owner, allocation_name
from deviceplugin.booking.overview import ContainerAllocation
from deviceplugin.booking.promises import Promises
from deviceplugin.booking.resize import Resized
from deviceplugin.booking.sharing import Sharing
from deviceplugin.booking.sources import Held, Holder, PodView
from deviceplugin.booking.supply import Supply, held_by_others
from deviceplugin.container.files import ContainerFiles
from deviceplugin.container.grant import Grant
from deviceplugin.gpus.hardware import Hardware
from shim.limits import LimitsError

__all__ = [
    "Allocator",
    "ContainerAllocation",
    "Listing",
    "PodSource",
    "Refusal",
    "Resized",
    "Retry",
    "StartRefused",
]

POD_WAIT_S = 0.25
"""Our watch of pods can lag behind the kubelet's."""

_log = logging.getLogger(__name__)


class Allocator:
    """Thread-safe. Construct, `update_hardware`, `reconcile`, then serve."""

    def __init__(
        self,
        sharing: Sharing,
        files: ContainerFiles,
        journal: Journal,
        clock: Callable[[], float],
    ) -> None:
        """Reads the journal and installs the shim. `clock` is monotonic seconds."""
        self._lock = threading.RLock()
        self._supply = Supply(sharing)
        self._clock = clock
        self._books = Books(files, journal, clock)
        self._promises = Promises(clock)
        self._callbacks: list[Callable[[], None]] = []
        self._is_reconciled = self._is_settled = False
        """As far as that goes at a start; and by a list of the kubelet's."""
        self._looking = threading.Lock()
        self._overview = overview.Overview(files)
        self._seen: tuple[int, tuple[ContainerAllocation, ...]] = (-1, ())
        """The last overview, as of so many changes of the ledger."""

    def update_hardware(self, hardware: Hardware) -> None:
        """Takes a new picture of the GPUs; call it whenever `inventory` sees a change.

        A ValueError says that the memory unit is too small for this node.
        """
        sharing = self._supply.sharing
        ids.check_message(
            [gpu.memory_bytes for gpu in hardware.gpus],
            sharing.kept_back_bytes,
            sharing.unit_bytes,
        )
        with self._changing():
            self._supply = replace(self._supply, hardware=hardware)
            self._books.files.access.prepare(hardware)

    def devices(self, resource: str) -> tuple[tuple[str, bool], ...]:
        """Every id of the resource and whether it is healthy."""
        with self._lock:
            return self._books.ledger.devices(self._supply, resource)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Has `callback` called, from any thread and without the lock, when `devices` changed."""
        self._callbacks.append(callback)

    def kubelet_restarted(self) -> None:
        """Call it before registering with a new kubelet: it lists its pods only little by little,
        and whoever is not listed yet is not gone."""
        with self._lock:
            self._books.presence.kubelet_restarted()

    def preferred(
        self,
        resource: str,
        available: Collection[str],
        must_include: Collection[str],
        size: int,
        listing: Listing,
        pods: PodSource,
    ) -> list[str]:
        """Decides the GPU: exactly `size` ids, or a Refusal.

        Calls `listing` once, and `pods.wait` for 250 ms at most.
        """
        listed = ask(listing)
        admitted = self._identify(resource, size, listed, pods)
        with self._changing():
            gone = frozenset[str]()
            if listed is not None:
                self._notice_others(listed)
                gone = self._books.gone(listed, pods.find)
            siblings = preference.siblings(admitted, self._books.ledger, gone)
            question = preference.Question(
                resource,
                size,
                available,
                must_include,
                admitted,
                gone,
                self._promises.reserved(admitted),
                next((each.gpus for each in siblings), ()),
                frozenset(each.name for each in siblings if each.owner and each.owner.init),
            )
            chosen = preference.choose(question, self._supply, self._books.ledger)
            answered = Answered(
                frozenset(chosen), self._clock(), admitted, frozenset(must_include), gone
            )
            self._promises.make(resource, answered)
            return chosen

    def allocate(self, resource: str, some: Collection[str]) -> Grant:
        """Books the ids, writes the container's files and answers; or a Refusal, nothing done."""
        with self._changing():
            wanted = frozenset(some)
            answered = self._promises.take(resource, wanted)
            decided = admit(resource, some, self._supply, self._books.ledger, answered)
            allocation, partner = decided.allocation, None
            admitted = answered.admitted if answered is not None else None
            half = admitted.partner if admitted is not None else None
            if admitted is not None and admitted.is_guess:
                admitted = None
            if not decided.is_repeated:
                allocation = msgspec.structs.replace(allocation, shim=self._books.library)
            if admitted is not None:
                allocation = msgspec.structs.replace(allocation, owner=admitted.owner)
                partner = self._named_partner(admitted)
            self._books.open_entry(
                self._described(allocation, admitted.pod if admitted is not None else None),
                [partner] if partner is not None else [],
                decided.ended,
                is_new=not decided.is_repeated,
            )
            self._books.presence.opened(allocation.name, half.name if half is not None else None)
            return self._grant(allocation, admitted)

    def prestart(
        self,
        resource: str,
        some: Collection[str],
        checkpoint: list[Holder] | None,
        listing: Listing,
        pods: PodSource,
    ) -> Owner | None:
        """Verifies both halves and completes the files; or a Retry with what to do. Whose they are.

        `checkpoint` need have only who holds these ids; it is None when it could not be read, and
        `listing` is called only when needed.
        """
        ledger, wanted = self._books.ledger, frozenset(some)
        with self._lock:
            allocation = completion.known(resource, wanted, self._supply, ledger)
        found = completion.complete(allocation, checkpoint, None)
        listed = None
        if found is None or found.owner is None or not found.other_ids:
            listed = ask(listing)
            found = completion.complete(allocation, checkpoint, listed) or found
        if found is None:
            raise Retry("the kubelet's records do not tell yet whose these ids are")
        with self._changing():
            gone = self._books.gone(listed, pods.find) if listed is not None else frozenset[str]()
            # Once more: it may have been resized while we asked.
            allocation = completion.known(resource, wanted, self._supply, ledger)
            owner = found.owner or allocation.owner
            others = ledger.neighbours(allocation, owner, gone)
            completion.check_ids(allocation, others)
            completion.check_halves(allocation, found.other_ids, self._supply, others)
            started = msgspec.structs.replace(
                allocation,
                owner=owner,
                whole=not found.other_ids,
                companion=allocation.companion or not found.other_ids,
                starts=allocation.starts + 1,
            )
            pod = pods.find(owner.namespace, owner.pod) if owner is not None else None
            partner = ledger.get(allocation_name(ids.other(resource), found.other_ids))
            try:
                self._books.start(self._described(started, pod), partner)
            except (JournalError, OSError, LimitsError) as error:
                raise Retry(f"its files cannot be written: {error}") from None
        return owner

    def learn(self, pod: PodView) -> None:
        """Takes the policy and weight of a pod that the watch has just seen or seen change."""
        owner = Owner(pod.namespace, pod.name, uid=pod.uid)
        with self._changing():
            known = [
                (each, self._described(each, pod)) for each in self._books.ledger.of_pod(owner)
            ]
            changed = [new for old, new in known if new != old]
            try:
                self._books.restate(changed)
            except (JournalError, OSError, LimitsError) as error:
                _log.error("the policy of %s is not written down yet: %s", owner, error)

    def reconcile(
        self,
        checkpoint: Callable[[], list[Holder] | None],
        listing: Listing,
        term: Callable[[], int | None] = lambda: 0,
        is_gone: IsGone = lambda *_: True,
    ) -> None:
        """Frees what the kubelet no longer has and adopts what we did not know.

        Before serving, again and again as long as it raises StartDelayed, which is a StartRefused;
        then every minute or so, and when a pod has ended. What it asks, `gathered` explains.
        """
        with self._lock:
            before = dict(self._books.ledger.items())
        evidence = gathered(checkpoint, listing, term)
        there = self._books.files.names()
        # All of it was made without the lock: whoever is about to start need not wait for it.
        with self._changing():
            if evidence is not None:
                if evidence.is_complete:
                    self._notice_others(evidence.listing)
                self._books.settle(self._supply, evidence, before, is_gone)
                self._is_settled = True
            if not self._is_reconciled:
                self._books.check_units(self._supply.sharing.unit_bytes)
                self._books.repair_files()
                self._is_reconciled = True
            if evidence is not None and evidence.recorded is not None:
                self._books.sweep(there, evidence.ever_recorded)

    def allocations(self) -> tuple[ContainerAllocation, ...]:
        """What containers hold now: for metrics, the arbiter and the watch over tenants.

        They ask several times a second, so it is made only after changes, and not under the lock.
        """
        with self._looking:
            with self._lock:
                changes = self._books.ledger.changes
                pods = self._books.ledger.pods() if changes != self._seen[0] else {}
            if changes != self._seen[0]:
                self._seen = changes, self._overview.containers(pods)
            return self._seen[1]

    def actual_of(self, pod: PodView) -> Assignment | None:
        """What `aliquot.dev/actual` of a pod should say; None when nothing is known of it (yet)."""
        with self._lock:
            if not self._is_reconciled:
                return None
            return overview.actual_of(pod, self._books.ledger, self._supply)

    def resize(
        self,
        pod: PodView,
        container: str,
        memory_units: int | None = None,
        compute_percent: int | None = None,
    ) -> Resized:
        """Changes totals of a running container; None leaves one as it is. Or a Refusal, which is
        final; so it is Unsettled before `reconcile` has had a list of the kubelet's."""
        with self._changing():
            if not self._is_settled:
                raise Unsettled("who has what is not known yet")
            halves = resize.halves(self._books.ledger, pod, container)
            wanted = {MEMORY_RESOURCE: memory_units, COMPUTE_RESOURCE: compute_percent}
            reserved = self._promises.reserved()
            changes = []
            for resource, total in wanted.items():
                if total is None:
                    continue
                half = halves[resource]
                new = resize.resized(half, total, self._supply, self._books.ledger, reserved)
                halves[resource] = new
                changes.append((half, new))
            self._books.change_size(changes)
            return Resized(
                halves[MEMORY_RESOURCE].amount,
                halves[COMPUTE_RESOURCE].amount,
                any(new != old for old, new in changes),
            )

    def units_of(self, uuid: str) -> int:
        """How many memory units of a GPU are advertised: for the node's inventory."""
        with self._lock:
            return self._supply.count(MEMORY_RESOURCE, uuid)

    def same_ids(self, resource: str, some: frozenset[str]) -> frozenset[str]:
        """These ids as the ledger has them: one copy takes megabytes less than two."""
        entry = self._books.ledger.get(allocation_name(resource, some))
        return entry.ids if entry is not None else some

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Under the lock; afterwards tells whoever advertises ids if those changed."""
        changed = False
        try:
            with self._lock:
                before = self._books.ledger.shape(self._supply)
                try:
                    yield
                finally:
                    changed = self._books.ledger.shape(self._supply) != before
        finally:
            if changed:
                for callback in self._callbacks:
                    callback()

    def _identify(
        self, resource: str, size: int, listed: list[Held] | None, pods: PodSource
    ) -> Admitted | None:
        """Not under the lock as a whole: it may wait for our watch."""
        ledger, presence = self._books.ledger, self._books.presence
        with self._lock:
            if listed is None:
                half_open = map(ledger.get, presence.half_open())
                return by_partner(resource, filter(None, half_open)) or by_plan(
                    resource, size, pods.waiting(), ledger
                )
            admitted = by_listing(resource, size, listed, ledger, pods.find, presence)
        if admitted is not None and (admitted.request is not None or admitted.pod is not None):
            return admitted
        until_s = self._clock() + POD_WAIT_S
        for namespace, name in worth_waiting_for(resource, listed, pods.find):
            left_s = until_s - self._clock()
            if left_s <= 0 or pods.wait(namespace, name, left_s) is None:
                continue
            with self._lock:
                admitted = by_listing(resource, size, listed, ledger, pods.find, presence)
            if admitted is not None and admitted.request is not None:
                break
        return admitted

    def _notice_others(self, listed: list[Held]) -> None:
        foreign = held_by_others(listed, self._supply.hardware)
        if foreign != self._supply.foreign:
            _log.warning("GPUs in the hands of other plugins: %s", foreign or "none any more")
            self._supply = replace(self._supply, foreign=foreign)

    def _named_partner(self, admitted: Admitted) -> Allocation | None:
        """The first half, whose owner only the second call has told; None if that is known."""
        if admitted.partner is None or not admitted.owner.container:
            return None
        partner = self._books.ledger.get(admitted.partner.name)
        if partner is None or partner.owner == admitted.owner:
            return None
        return msgspec.structs.replace(partner, owner=admitted.owner)

    def _grant(self, allocation: Allocation, admitted: Admitted | None) -> Grant:
        pod = admitted.pod if admitted is not None else None
        shim_off = (
            pod is not None
            and pod.request is not None
            and pod.request.shim_off
            and pod.namespace in self._supply.sharing.shim_off_namespaces
        )
        files = self._books.files
        gpus = [self._supply.gpu(uuid) for uuid in allocation.gpus]
        access = files.access.grant(tuple(gpu for gpu in gpus if gpu is not None))
        return replace(access, mounts=(*access.mounts, *files.mounts(allocation, shim_off)))

    def _described(self, allocation: Allocation, pod: PodView | None) -> Allocation:
        return described(allocation, pod, self._supply.sharing.default_policy)
