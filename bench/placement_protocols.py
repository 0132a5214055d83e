"""The two protocols: pods that only come until the cluster is full, and pods that come and go."""

import heapq
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from bench.placement_files import Event, Pod
from scheduler_ext.placement import Cluster, Decision, Placer

FILL_DEMAND = 1.3
CHURN_LOAD = 1.1
CHURN_LIFE_TIMES = 6
CHURN_MEASURED_FROM = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """`decisions` has one entry per arrival, None where the pod fitted nowhere."""

    decisions: dict[str, Decision | None]
    allocated_percent: float  # at the end
    mean_allocated_percent: float  # over the measured time, or all of it
    decide_ms: float  # mean per arrival

    @property
    def placed(self) -> int:
        return sum(decision is not None for decision in self.decisions.values())


def fill_arrivals(pods: list[Pod], capacity_milli: int, seed: int) -> list[Event]:
    """All pods in random order, then random ones again, until the demand would pass 130 %."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(pods)).tolist()
    events: list[Event] = []
    demand = 0
    while True:
        index = order[len(events)] if len(events) < len(pods) else int(rng.integers(len(pods)))
        demand += pods[index].gpu_milli
        if demand > FILL_DEMAND * capacity_milli:
            return events
        events.append(Event(0.0, str(len(events)), True, pods[index]))


def churn_events(
    pods: list[Pod], capacity_milli: int, seed: int, load: float = CHURN_LOAD
) -> list[Event]:
    """Poisson arrivals at 110 % offered load; one mean life time is one unit of time."""
    rng = np.random.default_rng(seed)
    rate = load * capacity_milli / np.mean([pod.gpu_milli for pod in pods])
    count = int(rng.poisson(rate * CHURN_LIFE_TIMES))
    starts = np.sort(rng.uniform(0, CHURN_LIFE_TIMES, count)).tolist()
    ends = rng.exponential(size=count).tolist()
    chosen = rng.integers(len(pods), size=count).tolist()
    events: list[Event] = []
    leaving: list[tuple[float, int]] = []
    for seq, start in enumerate(starts):
        while leaving and leaving[0][0] <= start:
            end, gone = heapq.heappop(leaving)
            events.append(Event(end, str(gone), False, pods[chosen[gone]]))
        events.append(Event(start, str(seq), True, pods[chosen[seq]]))
        heapq.heappush(leaving, (start + ends[seq], seq))
    while leaving and leaving[0][0] <= CHURN_LIFE_TIMES:
        end, gone = heapq.heappop(leaving)
        events.append(Event(end, str(gone), False, pods[chosen[gone]]))
    return events


def replay(
    placer: Placer, events: list[Event], measured: tuple[float, float] | None = None
) -> Outcome:
    """Lets a policy decide about every arrival, one at a time, without knowing what comes."""
    cluster = placer.cluster
    decisions: dict[str, Decision | None] = {}
    since, until = measured or (0.0, events[-1].time if events else 0.0)
    allocated = area = seconds = 0.0
    last = since
    for event in events:
        now = min(max(event.time, since), until)
        area += allocated * (now - last)
        last = now
        request = event.pod.request
        if event.arrives:
            begin = perf_counter()
            placer.observe(request)
            decision = placer.decide(request)
            seconds += perf_counter() - begin
            decisions[event.seq] = decision
            if decision:
                cluster.take(decision.row, decision.devices, request)
                allocated += event.pod.gpu_milli
        else:
            decision = decisions[event.seq]
            if decision:
                cluster.give(decision.row, decision.devices, request)
                allocated -= event.pod.gpu_milli
    area += allocated * (until - last)
    percent = 100 / capacity_milli(cluster)
    return Outcome(
        decisions,
        allocated * percent,
        (area / (until - since) if until > since else allocated) * percent,
        1000 * seconds / max(len(decisions), 1),
    )


def capacity_milli(cluster: Cluster) -> int:
    return 1000 * int((cluster.model >= 0).sum())
