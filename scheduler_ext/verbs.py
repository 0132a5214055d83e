"""kube-scheduler's verbs as decisions over the cluster in memory, without a word of HTTP."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, repeat

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.choices import Choices
from scheduler_ext.companions import Companions, key_of
from scheduler_ext.disruption import Budgets
from scheduler_ext.footprint import footprint_of
from scheduler_ext.groups import GroupKey, GroupTimes, Ticket
from scheduler_ext.holdings import Choice, Holdings, RefusedError
from scheduler_ext.ledger import Entry
from scheduler_ext.objects import Pod
from scheduler_ext.placement.several import Devices
from scheduler_ext.preemption import Patience, Victims, victims_needed
from scheduler_ext.reasons import Cause, Reason
from scheduler_ext.records import PodRecord, pod_record
from scheduler_ext.requests import assignment_of
from scheduler_ext.sentences import Sentences
from scheduler_ext.state import ClusterState
from scheduler_ext.waiting import WaitingPods, withheld_from

__all__ = ["BEST_SCORE", "Filtered", "Rated", "Verbs"]

BEST_SCORE = 10
"""kube-scheduler's largest; only our first choice gets it, because it draws lots between equals."""
# Pods whose body came with a filter call: bind, which has none, may follow, and so may the watch.
_RECENT_PODS = 20_000


@dataclass(frozen=True, slots=True)
class Filtered:
    passed: list[str]
    failed: dict[str, Reason]


@dataclass(frozen=True, slots=True)
class Rated:
    """One entry for each node that was offered; the row is -1 where we know none."""

    rows: NDArray[np.int64]
    scores: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Considered:
    """What filter found, for the prioritize call that follows at once."""

    uid: str
    names: list[str]
    rows: NDArray[np.int64]
    cost: NDArray[np.float64]
    best: int
    """The place of the first choice among them."""
    version: int
    """Of its row; the others may have changed since, but not this one."""


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
        self.budgets = Budgets()
        self.patience = Patience(state, clock)
        self.holdings = Holdings(state, self._ended, clock, settle_s=settle_s)
        self.companions = Companions(state, self.holdings.release, group_times, clock)
        self._assume_s = assume_s
        self._clock = clock
        self._sentences = Sentences(state.cluster, state.unit_mib)
        self._considered: _Considered | None = None
        self._last: tuple[Pod, PodRecord | None] = (Pod(), None)
        self._recent: OrderedDict[str, PodRecord] = OrderedDict()
        state.on_new_pod = self._meet
        state.on_gone_pod = self._part

    def filter(self, pod: Pod, names: Sequence[str]) -> Filtered:
        with self.state.lock:
            record = self._record(pod)
            if record is None:
                return Filtered(list(names), {})
            self._begin(record)
            if record.demand is None:
                reason = Reason(Cause.REQUEST, record.refusal)
                return Filtered([], dict.fromkeys(names, reason))
            offered = rows = self._rows(names)
            if (key := key_of(record)) is not None:
                result = self._filter_member(record, key, names, rows)
                if result is not None:
                    return result
            cost = self._costs(record, rows)
            passed, failed = list(names), dict[str, Reason]()
            fits = np.isfinite(cost)
            if not fits.all():
                passed = list(compress(names, fits.tolist()))
                failed = self._reasons(record, names, rows, np.flatnonzero(~fits))
                rows, cost = rows[fits], cost[fits]
            if passed:
                self.waiting.remove(record.uid)
                best = _best(cost, rows)
                version = int(self.state.cluster.version[rows[best]])
                self._considered = _Considered(record.uid, passed, rows, cost, best, version)
            else:
                withheld = withheld_from(self.state.cluster, offered)
                self.waiting.add(record, self._clock(), withheld)
            if len(passed) == 1:
                # kube-scheduler asks for no scores when there is no choice.
                self._assume(record, passed[0])
        return Filtered(passed, failed)

    def prioritize(self, pod: Pod, names: Sequence[str]) -> list[int]:
        """A score for each node; the first choice, and no other, has the best one."""
        scores: list[int] = self.rate(pod, names).scores.tolist()
        return scores

    def rate(self, pod: Pod, names: Sequence[str]) -> Rated:
        """The same with the nodes' rows, which are true as long as the state's lock is held."""
        with self.state.lock:
            record = self._record(pod)
            if record is None or record.demand is None or not names:
                return Rated(self._rows(names), np.zeros(len(names), dtype=np.int64))
            self._begin(record)
            if self.companions.holds(record):
                held = self.holdings.assumed(record.uid)
                kept = [BEST_SCORE if held and name == held.node else 0 for name in names]
                return Rated(self._rows(names), np.array(kept, dtype=np.int64))
            rows, cost, best = self._considered_anew(record, names)
            if not math.isfinite(cost[best]):
                return Rated(rows, np.zeros(len(names), dtype=np.int64))
            self._assume(record, names[best])
            scores = _scaled(cost)
            scores[best] = BEST_SCORE
            return Rated(rows, scores)

    def choose(self, record: PodRecord, node: str) -> Choice:
        """The bind decision: GPUs that are the pod's from now on, until its bind call ends."""
        with self.state.lock:
            self.holdings.check_idle(record)
            ticket = self._ticket(record, node)
            choice = self.holdings.assumed(record.uid)
            if choice is None or choice.node != node:
                self.holdings.let_go(record.uid)
                choice = self._choice(record, node, math.inf)
            return self.holdings.decide(replace(choice, ticket=ticket))

    def preempt(self, pod: Pod, victims: Mapping[str, Sequence[str]]) -> dict[str, Victims]:
        """Nodes on which the pod fits without these pods, and maybe some more; all by uid."""
        record = pod_record(pod)
        if record is None:
            return {node: Victims(list(uids)) for node, uids in victims.items()}
        if record.demand is None:
            return {}
        with self.state.lock:
            self._begin(record)
            if self.patience.lasts(record, pod.status.nominated_node_name, victims.keys()):
                self.waiting.keep(record, self._clock())
                return {}
            found = {
                node: victims_needed(self.state, self.budgets, record, node, uids)
                for node, uids in victims.items()
            }
        return {node: each for node, each in found.items() if each is not None}

    def known(self, uid: str, namespace: str, name: str) -> PodRecord | None:
        """The pod that a bind call names."""
        with self.state.lock:
            record = self._recent.get(uid) or self.state.pods.get(uid)
        return record if record and (record.namespace, record.name) == (namespace, name) else None

    def asked(self, uid: str) -> bool:
        """Whether kube-scheduler has asked us about the pod."""
        return uid in self._recent

    def expire(self) -> list[PodRecord]:
        """Takes back what has run out; answers the pods to ask the API server about."""
        with self.state.lock:
            self.companions.expire()
            return self.holdings.expire()

    def _record(self, pod: Pod) -> PodRecord | None:
        """Read once for filter and for the prioritize call that follows."""
        if self._last[0] != pod:
            self._last = (pod, pod_record(pod))
        return self._last[1]

    def _begin(self, record: PodRecord) -> None:
        """kube-scheduler starts over with this pod: what was chosen before is void."""
        self.holdings.check_idle(record)
        if record.uid not in self.state.pods and record.uid not in self._recent:
            self._meet(record)
        self._recent[record.uid] = record
        self._recent.move_to_end(record.uid)
        if len(self._recent) > _RECENT_PODS:
            self._recent.popitem(last=False)
        if not self.companions.holds(record):
            self.holdings.let_go(record.uid)

    def _ticket(self, record: PodRecord, node: str) -> Ticket[str] | None:
        """None for a pod that starts alone, or whose group has started."""
        key = key_of(record)
        if key is None:
            return None
        if self.companions.holds(record):
            choice = self.holdings.assumed(record.uid)
            if choice is None or choice.node != node:
                self.companions.withdraw(record)
                raise RefusedError(f"{record.title}: its group holds room on another node")
            ticket = self.companions.arrive(record, key)
            if ticket is not None:
                return ticket
        elif self.companions.has_started(record, key):
            return None
        raise RefusedError(f"{record.title}: the room held for group {key.name} was given back")

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
        self.waiting.add(record, self._clock(), withheld_from(self.state.cluster, rows))
        return Filtered([], dict.fromkeys(names, reason))

    def _place_all(
        self, pods: Sequence[PodRecord], rows: NDArray[np.int64]
    ) -> dict[str, str] | None:
        """Room for all of these at once, held from now on; None, and nothing held, without."""
        offered = rows[rows >= 0]
        largest_first = sorted(pods, key=_size, reverse=True)
        places: dict[str, str] = {}
        for pod in largest_first:
            self.holdings.let_go(pod.uid)
            cost = self._costs(pod, offered) if pod.demand is not None else np.zeros(0)
            if not len(cost) or not np.isfinite(cost.min()):
                for uid in places:
                    self.holdings.let_go(uid)
                return None
            node = self.state.cluster.names[int(offered[_best(cost, offered)])]
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

    def _ended(self, record: PodRecord, bound: bool) -> bool:
        if bound:
            self.waiting.remove(record.uid)
            self.patience.end(record.uid)
        return self.companions.settle(record, bound=bound)

    def _assume(self, record: PodRecord, node: str, for_s: float | None = None) -> None:
        expires_s = self._clock() + (self._assume_s if for_s is None else for_s)
        self.holdings.assume(self._choice(record, node, expires_s))

    def _choice(self, record: PodRecord, node: str, expires_s: float) -> Choice:
        demand, request = record.demand, record.request
        if demand is None or request is None:
            raise RefusedError(record.refusal)
        row = self.state.cluster.row_of.get(node)
        if row is None:
            raise RefusedError(f"{node}: {self.state.refusal(node)}")
        devices = self.choices.devices(demand, row)
        if devices is None:
            reason = self._sentences.of(demand, np.array([row]))[0]
            raise RefusedError(f"{node}: {reason.text}")
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

    def _considered_anew(
        self, record: PodRecord, names: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
        """The rows of these nodes, what the pod costs there, and the place of the cheapest: as
        filter found it if that is still true of the cheapest."""
        before, self._considered = self._considered, None
        if before is not None and before.uid == record.uid and before.names == names:
            row = before.rows[before.best]
            if self.state.cluster.version[row] == before.version:
                return before.rows, before.cost, before.best
        rows = self._rows(names)
        cost = self._costs(record, rows)
        return rows, cost, _best(cost, rows)

    def _reasons(
        self,
        record: PodRecord,
        names: Sequence[str],
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
    ) -> dict[str, Reason]:
        assert record.demand is not None
        there = places[rows[places] >= 0]
        reasons = self._sentences.of(record.demand, rows[there])
        failed = dict(zip(map(names.__getitem__, there.tolist()), reasons, strict=True))
        for place in places[rows[places] < 0].tolist():
            failed[names[place]] = Reason(Cause.AGENT, self.state.refusal(names[place]))
        return failed


def _best(cost: NDArray[np.float64], rows: NDArray[np.int64]) -> int:
    """The place of the cheapest; of equals the first row, in whatever order nodes are offered."""
    equals = np.flatnonzero(cost == cost.min())
    return int(equals[rows[equals].argmin()])


def _scaled(cost: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 to 9, the cheapest 9, in even steps of cost; 0 where it is infinite."""
    low, high = cost.min(), cost.max()
    if high == math.inf:
        high = cost[np.isfinite(cost)].max()
        cost = np.minimum(cost, high)
    share = (high - cost) / max(high - low, 1e-9)
    scores: NDArray[np.int64] = np.floor(share * (BEST_SCORE - 1)).astype(np.int64)
    return scores


def _size(pod: PodRecord) -> tuple[int, int, int]:
    requests = pod.demand.requests if pod.demand else ()
    return (
        sum(request.gpus for request in requests),
        sum(request.gpus * request.compute_milli for request in requests),
        sum(request.gpus * (request.gpu_memory_units or 0) for request in requests),
    )
