"""kube-scheduler's verbs as decisions over the cluster in memory, without a word of HTTP."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat

import msgspec
import numpy as np
from numpy.typing import NDArray

from aliquot.protocol.assignment import Assignment
from scheduler_ext.choices import Choices
from scheduler_ext.companions import Companions, key_of
from scheduler_ext.footprint import footprint_of
from scheduler_ext.groups import GroupKey, GroupTimes, Ticket
from scheduler_ext.ledger import Entry, Stage
from scheduler_ext.objects import Pod
from scheduler_ext.placement.several import Devices
from scheduler_ext.preemption import victims_needed
from scheduler_ext.reasons import Cause, Reason, reasons_for
from scheduler_ext.records import PodRecord, pod_record
from scheduler_ext.requests import assignment_of
from scheduler_ext.state import ClusterState
from scheduler_ext.waiting import WaitingPods

__all__ = ["BEST_SCORE", "Choice", "Filtered", "RefusedError", "Verbs"]

BEST_SCORE = 10
"""kube-scheduler's largest; only our first choice gets it, because it draws lots between equals."""
# Pods whose body came with a filter call and whose bind, which has none, may follow.
_RECENT_PODS = 20_000


class RefusedError(Exception):
    """A decision that cannot be; the text goes to the pod's event."""


@dataclass(frozen=True, slots=True)
class Filtered:
    passed: list[str]
    failed: dict[str, Reason]


@dataclass(frozen=True, slots=True)
class Choice:
    """A node and GPUs for a pod, and the ledger's entry that keeps them for it."""

    pod: PodRecord
    node: str
    plan: Assignment
    entry: Entry
    ticket: Ticket[str] | None = None
    """For a member of a group: the barrier at which its bind call waits for the others."""


class Verbs:
    """Every method takes the state's lock: one decision at a time, each a few milliseconds."""

    def __init__(
        self,
        state: ClusterState,
        choices: Choices,
        waiting: WaitingPods,
        *,
        assume_s: float = 15.0,
        settle_s: float = 60.0,
        group_times: GroupTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`assume_s`: from our choice to kube-scheduler's bind; `settle_s`: from bind to the moment
        in which the API server is asked what became of it."""
        self.state = state
        self.choices = choices
        self.waiting = waiting
        self._assume_s = assume_s
        self._settle_s = settle_s
        self._clock = clock
        self._assumed: dict[str, Choice] = {}
        self._binding: set[str] = set()
        self._doubtful: set[str] = set()
        self._decided: dict[str, PodRecord] = {}
        self._recent: OrderedDict[str, PodRecord] = OrderedDict()
        self.companions = Companions(state, self._let_go, group_times, clock)
        state.on_new_pod = self._meet
        state.on_gone_pod = self._part

    def filter(self, pod: Pod, names: Sequence[str]) -> Filtered:
        record = pod_record(pod)
        if record is None:
            return Filtered(list(names), {})
        with self.state.lock:
            self._begin(record)
            if record.demand is None:
                reason = Reason(Cause.REQUEST, record.refusal)
                return Filtered([], dict.fromkeys(names, reason))
            rows = self._rows(names)
            if (key := key_of(record)) is not None:
                result = self._filter_member(record, key, names, rows)
                if result is not None:
                    return result
            cost = self._costs(record, rows)
            fits = np.isfinite(cost)
            passed = list(compress(names, fits.tolist()))
            failed = self._reasons(record, names, rows, np.flatnonzero(~fits))
            if passed:
                self.waiting.remove(record.uid)
            else:
                self.waiting.add(record, self._clock())
            if len(passed) == 1:
                # kube-scheduler asks for no scores when there is no choice.
                self._assume(record, passed[0])
        return Filtered(passed, failed)

    def prioritize(self, pod: Pod, names: Sequence[str]) -> list[int]:
        """A score for each node; the first choice, and no other, has the best one."""
        record = pod_record(pod)
        if record is None or record.demand is None or not names:
            return [0] * len(names)
        with self.state.lock:
            self._begin(record)
            if self.companions.holds(record):
                held = self._assumed[record.uid].node
                return [BEST_SCORE if name == held else 0 for name in names]
            cost = self._costs(record, self._rows(names))
            fits = np.isfinite(cost)
            if not fits.any():
                return [0] * len(names)
            best = int(cost.argmin())
            self._assume(record, names[best])
        scores: list[int] = _scaled(cost, fits).tolist()
        scores[best] = BEST_SCORE
        return scores

    def choose(self, uid: str, record: PodRecord, node: str) -> Choice:
        """The bind decision: GPUs that are the pod's from now on, until `settle` or `give_back`."""
        with self.state.lock:
            ledger = self.state.ledger
            self._check_idle(record)
            choice, ticket = self._assumed.get(uid), None
            if (key := key_of(record)) is not None and self.companions.holds(record):
                if choice is None or choice.node != node:
                    self.companions.withdraw(record)
                    raise RefusedError(f"{record.title}: its group holds room on another node")
                ticket = self.companions.arrive(record, key)
            if choice is None or choice.node != node or ledger.entry(uid) is not choice.entry:
                self._let_go(uid)
                choice = self._choice(record, node, math.inf)
            expires_s = self._clock() + self._settle_s
            entry = msgspec.structs.replace(choice.entry, stage=Stage.PLANNED, expires_s=expires_s)
            ledger.hold(uid, entry)
            self.state.refresh()
            self._binding.add(uid)
            self._decided[uid] = record
            self._assumed.pop(uid, None)
            return Choice(record, node, choice.plan, entry, ticket)

    def settle(self, uid: str) -> None:
        """The pod is bound: what was chosen stays until the watch tells."""
        with self.state.lock:
            self._end_binding(uid, bound=True)
            self.waiting.remove(uid)
            self._recent.pop(uid, None)

    def doubt(self, uid: str) -> None:
        """The pod may be bound: what was chosen stays until somebody has found out."""
        with self.state.lock:
            self._end_binding(uid, bound=True)
            self._doubtful.add(uid)

    def give_back(self, uid: str) -> None:
        """The pod is certainly not bound, or gone."""
        with self.state.lock:
            self._end_binding(uid, bound=False)
            self._let_go(uid)

    def keep(self, uid: str) -> None:
        """The pod is bound, only the watch is late: it is given more time."""
        with self.state.lock:
            self.settle(uid)
            entry = self.state.ledger.entry(uid)
            if entry is not None and not entry.bound:
                expires_s = self._clock() + self._settle_s
                later = msgspec.structs.replace(entry, expires_s=expires_s)
                self.state.ledger.hold(uid, later)
                self.state.refresh()

    def preempt(self, pod: Pod, victims: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Nodes on which the pod fits without these pods, and maybe some more; all by uid."""
        record = pod_record(pod)
        if record is None:
            return {node: list(uids) for node, uids in victims.items()}
        if record.demand is None:
            return {}
        with self.state.lock:
            self._begin(record)
            found = {
                node: victims_needed(self.state, record, node, uids)
                for node, uids in victims.items()
            }
        return {node: uids for node, uids in found.items() if uids is not None}

    def known(self, uid: str, namespace: str, name: str) -> PodRecord | None:
        """The pod that a bind call names."""
        with self.state.lock:
            record = self._recent.get(uid) or self.state.pods.get(uid)
        return record if record and (record.namespace, record.name) == (namespace, name) else None

    def expire(self) -> list[PodRecord]:
        """Takes back choices that nobody came for; answers the pods to ask the API server about."""
        with self.state.lock:
            ledger = self.state.ledger
            self.companions.expire()
            for uid in ledger.overdue(self._clock()):
                entry = ledger.entry(uid)
                if entry is not None and entry.stage is Stage.ASSUMED:
                    self._let_go(uid)
            for uid, choice in list(self._assumed.items()):
                if ledger.entry(uid) is not choice.entry:
                    del self._assumed[uid]
            overdue = set(ledger.overdue(self._clock())) - self._binding
            for uid in self._decided.keys() - self._binding:
                entry = ledger.entry(uid)
                if entry is None or entry.bound:
                    del self._decided[uid]
                    self._doubtful.discard(uid)
            return [self._decided[uid] for uid in overdue & self._decided.keys()]

    def _end_binding(self, uid: str, *, bound: bool) -> None:
        self._binding.discard(uid)
        self._doubtful.discard(uid)
        if uid in self._decided:
            self.companions.settle(self._decided[uid], bound=bound)

    def _check_idle(self, record: PodRecord) -> None:
        if record.uid in self._binding:
            raise RefusedError(f"{record.title} is being bound at this moment")
        if record.uid in self._doubtful:
            raise RefusedError(f"whether {record.title} is bound already is being found out")
        entry = self.state.ledger.entry(record.uid)
        if entry is not None and entry.stage is not Stage.ASSUMED:
            raise RefusedError(f"{record.title} is bound already")

    def _begin(self, record: PodRecord) -> None:
        """kube-scheduler starts over with this pod: what was chosen before is void."""
        self._check_idle(record)
        if record.uid not in self.state.pods and record.uid not in self._recent:
            self._meet(record)
        self._recent[record.uid] = record
        self._recent.move_to_end(record.uid)
        if len(self._recent) > _RECENT_PODS:
            self._recent.popitem(last=False)
        if not self.companions.holds(record):
            self._let_go(record.uid)

    def _filter_member(
        self,
        record: PodRecord,
        key: GroupKey,
        names: Sequence[str],
        rows: NDArray[np.int64],
    ) -> Filtered | None:
        """None when the pod may run wherever it fits: its group has started."""

        def place_all(uids: Sequence[str]) -> dict[str, str] | None:
            pods = [self.state.pods.get(uid, record) for uid in uids]
            return self._place_all(pods, rows)

        verdict = self.companions.consider(record, key, place_all)
        if verdict.place is None and not verdict.reason:
            return None
        reason = Reason(Cause.GROUP, verdict.reason)
        if verdict.place is not None:
            if verdict.place in names:
                self.waiting.remove(record.uid)
                other = Reason(Cause.GROUP, f"group {key.name}: room is held on {verdict.place}")
                failed = {name: other for name in names if name != verdict.place}
                return Filtered([verdict.place], failed)
            self.companions.withdraw(record)
            reason = Reason(
                Cause.GROUP,
                f"group {key.name}: room was held on {verdict.place}, which this pod cannot use",
            )
        self.waiting.add(record, self._clock())
        return Filtered([], dict.fromkeys(names, reason))

    def _place_all(
        self, pods: Sequence[PodRecord], rows: NDArray[np.int64]
    ) -> dict[str, str] | None:
        """Room for all of these at once, held from now on; None, and nothing held, without."""
        offered = rows[rows >= 0]
        largest_first = sorted(pods, key=_size, reverse=True)
        places: dict[str, str] = {}
        for pod in largest_first:
            self._let_go(pod.uid)
            cost = self._costs(pod, offered) if pod.demand is not None else np.zeros(0)
            if not len(cost) or not np.isfinite(cost.min()):
                for uid in places:
                    self._let_go(uid)
                return None
            node = self.state.cluster.names[int(offered[cost.argmin()])]
            assert node is not None
            self._assume(pod, node, math.inf)
            places[pod.uid] = node
        return places

    def _meet(self, record: PodRecord) -> None:
        if record.demand is not None and record.uid not in self._recent:
            self.choices.observe(record.demand)

    def _part(self, record: PodRecord) -> None:
        self.companions.withdraw(record)
        self.waiting.remove(record.uid)
        self._recent.pop(record.uid, None)

    def _assume(self, record: PodRecord, node: str, for_s: float | None = None) -> None:
        expires_s = self._clock() + (self._assume_s if for_s is None else for_s)
        choice = self._choice(record, node, expires_s)
        self.state.ledger.hold(record.uid, choice.entry)
        self.state.refresh()
        self._assumed[record.uid] = choice

    def _let_go(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        self.state.ledger.let_go(uid)
        self.state.refresh()

    def _choice(self, record: PodRecord, node: str, expires_s: float) -> Choice:
        demand, request = record.demand, record.request
        if demand is None or request is None:
            raise RefusedError(record.refusal)
        row = self.state.cluster.row_of.get(node)
        if row is None:
            raise RefusedError(f"{node}: {self.state.refusal(node)}")
        devices = self.choices.devices(demand, row)
        if devices is None:
            cluster = self.state.cluster
            reasons = reasons_for(cluster, np.array([row]), demand, self.state.unit_mib)
            raise RefusedError(f"{node}: {reasons[0].text}")
        plan = assignment_of(request, demand, self._uuids(row, devices), self.state.unit_mib)
        first = demand.parts[0].request
        entry = Entry(
            node,
            footprint_of(plan, request),
            cpu_milli=first.cpu_milli,
            memory_mib=first.memory_mib,
            expires_s=expires_s,
        )
        return Choice(record, node, plan, entry)

    def _uuids(self, row: int, devices: Devices) -> tuple[tuple[str, ...], ...]:
        uuids = self.state.cluster.uuids[row]
        return tuple(tuple(uuids[device] for device in part) for part in devices)

    def _rows(self, names: Sequence[str]) -> NDArray[np.int64]:
        row_of = self.state.cluster.row_of
        return np.fromiter(map(row_of.get, names, repeat(-1)), np.int64, len(names))

    def _costs(self, record: PodRecord, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        assert record.demand is not None
        order = self.choices.scores(record.demand).order()
        # One entry more, for nodes that are not there: row -1 finds it.
        costs: NDArray[np.float64] = np.append(order, np.inf)[rows]
        return costs

    def _reasons(
        self,
        record: PodRecord,
        names: Sequence[str],
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
    ) -> dict[str, Reason]:
        assert record.demand is not None
        there = places[rows[places] >= 0]
        reasons = reasons_for(self.state.cluster, rows[there], record.demand, self.state.unit_mib)
        failed = {names[place]: reason for place, reason in zip(there, reasons, strict=True)}
        for place in places[rows[places] < 0]:
            failed[names[place]] = Reason(Cause.AGENT, self.state.refusal(names[place]))
        return failed


def _scaled(cost: NDArray[np.float64], fits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """0 to 9, the cheapest 9, in even steps of cost."""
    low, high = cost[fits].min(), cost[fits].max()
    share = (high - np.where(fits, cost, high)) / max(high - low, 1e-9)
    scores: NDArray[np.int64] = np.floor(share * (BEST_SCORE - 1)).astype(np.int64)
    return scores


def _size(pod: PodRecord) -> tuple[int, int, int]:
    requests = pod.demand.requests if pod.demand else ()
    return (
        sum(request.gpus for request in requests),
        sum(request.gpus * request.compute_milli for request in requests),
        sum(request.gpus * (request.gpu_memory_units or 0) for request in requests),
    )
