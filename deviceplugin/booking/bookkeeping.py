"""Keeps the ledger, the journal and the containers' files in step, in an order that a crash at any
point leaves repairable."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from aliquot.protocol.names import MEMORY_RESOURCE
from deviceplugin.booking import reconcile, resize
from deviceplugin.booking.asking import IsGone
from deviceplugin.booking.errors import Refusal, StartDelayed, StartRefused
from deviceplugin.booking.evidence import Evidence
from deviceplugin.booking.journal import Journal, JournalError
from deviceplugin.booking.ledger import Allocation, Ledger, Owner
from deviceplugin.booking.liveness import Life, Living
from deviceplugin.booking.presence import Presence
from deviceplugin.booking.sharing import MIB, POLICIES
from deviceplugin.booking.sources import Held, PodView
from deviceplugin.booking.supply import Supply
from deviceplugin.container.files import ContainerFiles
from shim.limits import LimitsError

__all__ = ["Books"]

_log = logging.getLogger(__name__)


class Books:
    """Not thread-safe: whoever calls holds the allocator's lock."""

    def __init__(self, files: ContainerFiles, journal: Journal, clock: Callable[[], float]) -> None:
        self.files = files
        self.presence = Presence(clock)
        self.ledger = Ledger()
        self._journal = journal
        for allocation in journal.open():
            self.ledger.put(allocation)
        self.library = files.install()

    def gone(
        self, listing: list[Held], find: Callable[[str, str], PodView | None]
    ) -> frozenset[str]:
        """Allocations whose containers have ended, though nobody has told us yet."""
        living = Living.of(listing)

        def uid_of(owner: Owner) -> str:
            pod = find(owner.namespace, owner.pod)
            return pod.uid if pod is not None else ""

        alive, gone = [], []
        for name, each in self.ledger.items():
            # Nearly all are just as listed, and this is asked while a pod's start waits.
            if each.ids in living.exact:
                alive.append(name)
                continue
            life = living.life(each, self.presence.age_s, self.ledger.siblings, uid_of)
            if life is Life.ALIVE:
                alive.append(name)
            elif life is Life.GONE:
                gone.append(name)
        self.presence.listed(alive)
        return frozenset(gone)

    def open_entry(
        self,
        allocation: Allocation,
        others: Collection[Allocation],
        ended: Collection[Allocation],
        is_new: bool,
    ) -> None:
        """Books an allocation and corrects others; those that ended make room. Or a Refusal, and
        nothing is changed. Files come first: a crash leaves a folder that the next start sweeps."""
        outlived = [each for each in ended if each.name != allocation.name]
        try:
            if is_new:
                self.files.create(allocation)
            else:
                self.files.ensure(allocation)
            self._journal.record([allocation, *others], [each.name for each in outlived])
        except (JournalError, LimitsError, OSError) as error:
            if is_new:
                self._remove_files(allocation)
            raise Refusal(f"the allocation cannot be written down: {_text(error)}") from None
        self._forget(ended)
        for each in (allocation, *others):
            self.ledger.put(each)
        if is_new:
            self.presence.born(allocation.name)
        for each in outlived:
            self._remove_files(each)

    def restate(self, changed: Collection[Allocation]) -> None:
        """Records what is newly known about allocations, and lets their limits say so. What fails
        is not known afterwards either, so that whoever tries again does all of it."""
        self._journal.record(changed)
        for each in changed:
            self.files.ensure(each)
            self.ledger.put(each)

    def start(self, allocation: Allocation, partner: Allocation | None) -> None:
        """A container is about to start: its files are complete and its account is new.

        The start is recorded last, so that whoever sees it finds the new account. After a crash
        before that the kubelet asks again, and nothing runs meanwhile."""
        started = msgspec.structs.replace(allocation, fell_from=None)
        self.files.ensure(started)
        for compute, memory in ((allocation, partner), (partner, allocation)):
            if compute is not None and memory is not None and compute.companion:
                self.files.join(compute, memory)
        self.files.refresh_usage(started)
        self._journal.record([started])
        self.ledger.put(started)
        # The kubelet has it in its books; when its list does not, it will have ended.
        self.presence.listed([allocation.name])

    def change_size(self, changes: Collection[tuple[Allocation, Allocation]]) -> None:
        """Caps fall before their ids are given back, and rise after theirs are booked. What is as
        it was, is made sure of."""
        falling = [(old, new) for old, new in changes if new.amount < old.amount]
        try:
            for _, new in falling:
                self.files.ensure(new)
            self._journal.record([new for old, new in changes if new != old])
        except (JournalError, LimitsError, OSError) as error:
            for old, _ in falling:
                self._make_files(old)
            raise Refusal(f"the resize cannot be written down: {_text(error)}") from None
        for _, new in changes:
            self.ledger.put(new)
        try:
            for _, new in changes:
                self.files.ensure(new)
        except (LimitsError, OSError) as error:
            raise Refusal(
                f"the resize is booked, but its limits cannot be written: {_text(error)}. "
                "Ask for it again when that is mended"
            ) from None

    def settle(
        self,
        supply: Supply,
        evidence: Evidence,
        known_before: Mapping[str, Allocation],
        is_gone: IsGone,
    ) -> None:
        """In line with the kubelet, as far as the books are as they were `known_before` its list
        was asked for: it is too old to tell of anything else, even where ids are the same."""

        def counts(name: str) -> bool:
            return self.ledger.get(name) is known_before.get(name)

        def is_over(each: Allocation) -> bool:
            owner, recorded = each.owner, evidence.recorded
            return self.presence.is_over(
                each,
                None if recorded is None else each.name in recorded,
                is_complete=evidence.is_complete,
                is_gone=owner is None or is_gone(owner.namespace, owner.pod, owner.uid),
            )

        found = reconcile.reconcile(self.ledger, supply, evidence, self.presence.age_s)
        self.presence.listed([each for each in found.alive if counts(each)])
        changed = [each for each in found.changed if counts(each.name)]
        ended = [each for each in found.unlisted if counts(each.name) and is_over(each)]
        # Whose ids somebody has got meanwhile has come and gone meanwhile.
        new = [
            each
            for each in found.adopted
            if all(counts(holder.name) for one in each.ids for holder in self.ledger.holders(one))
            and counts(each.name)
        ]
        adopted = self._restored(new, supply)
        for each in adopted:
            _log.warning("%s of %s was not in the journal", each.resource, each.holder())
            self._make_files(each)
        try:
            self._journal.record([*changed, *adopted], [each.name for each in ended])
        except JournalError as error:
            # Who was adopted stays in the books: the kubelet has it in its own.
            _log.error("not reconciled: %s", error)
            return
        self._forget(ended)
        for each in changed:
            self.ledger.put(each)
        for each in ended:
            _log.info("%s of %s is free again", each.resource, each.holder())
            self._remove_files(each)

    def check_units(self, unit_bytes: int) -> None:
        """Ids of another size would mean other bytes than the running containers have."""
        others = [
            each
            for each in self.ledger
            if each.resource == MEMORY_RESOURCE and each.unit_bytes != unit_bytes
        ]
        if not others:
            return
        living = [each for each in others if self.presence.is_listed(each.name)]
        pods = ", ".join(sorted({each.holder() for each in living or others}))
        started = f"were started with {others[0].unit_bytes // MIB} MiB"
        setting = f"the memory unit is set to {unit_bytes // MIB} MiB, but these pods {started}"
        if living:
            raise StartRefused(
                f"{setting} and still run: {pods}; set it back, or drain the node first"
            )
        raise StartDelayed(f"{setting}: {pods}; if the kubelet does not list them soon, they ended")

    def repair_files(self) -> None:
        """After a start, or a reboot: what is missing is made again."""
        for each in self.ledger:
            self._make_files(each)

    def sweep(self, there: Collection[str], recorded: Collection[str]) -> None:
        """Of the folders that were `there` a moment ago, removes those that nobody has any more and
        the kubelet, which has written down the `recorded` ones, cannot bring back."""
        self.files.sweep(set(there).difference(self.ledger.names(), recorded))
        libraries = {each.shim for each in self.ledger}
        # Of containers that we had forgotten, nobody knows which library they were given.
        if "" not in libraries:
            self.files.sweep_libraries(libraries | {self.library})

    def _restored(self, adopted: Iterable[Allocation], supply: Supply) -> tuple[Allocation, ...]:
        """As their folders say they were. All are booked first, so that none grows into another."""
        entries = tuple(adopted)
        for each in entries:
            self.ledger.put(each)
        done = []
        for each in entries:
            limits = self.files.found_limits(each)
            if limits is not None:
                policy = next(name for name, one in POLICIES.items() if one is limits.policy)
                again = msgspec.structs.replace(each, policy=policy, weight=limits.weight)
                again = resize.restored(again, limits, supply, self.ledger)
                self.ledger.put(again)
            else:
                again = each
            done.append(again)
        return tuple(done)

    def _forget(self, ended: Iterable[Allocation]) -> None:
        for each in ended:
            self.ledger.drop(each.name)
            self.presence.forget(each.name)

    def _make_files(self, allocation: Allocation) -> None:
        try:
            self.files.ensure(allocation)
        except (OSError, LimitsError) as error:
            # Its container's next start tries again, and says so in the pod's events.
            _log.error("the files of %s cannot be made: %s", allocation.holder(), error)

    def _remove_files(self, allocation: Allocation) -> None:
        try:
            self.files.set_aside(allocation.name)
        except OSError as error:
            # The next start sweeps it; until then it is only a folder that nobody uses.
            _log.warning("cannot remove the files of %s: %s", allocation.holder(), error)


def _text(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror}; make room on that disk"
    return str(error)
