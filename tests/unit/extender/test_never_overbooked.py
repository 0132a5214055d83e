"""Thousands of random steps, with groups: whatever fails or restarts, no GPU is over-booked, no
group starts in part, nothing leaks."""

import pytest

from aliquot.kubernetes.errors import ApiError, UnreachableError
from aliquot.protocol import names
from tests.extender_cluster import gpu_node, gpu_pod
from tests.extender_world import World

SHAPES = [
    {"memory": 16, "compute": 10},
    {"memory": 40, "compute": 30},
    {"memory": 80, "compute": 50},
    {"memory": 150, "compute": 20},
    {"memory": 0, "compute": 100},
    {"memory": 0, "compute": 200},
    {"memory": 80, "compute": 60, "annotations": {"aliquot.dev/gpus": "2"}},
    {"memory": 16, "compute": 90, "annotations": {"aliquot.dev/placement": "spread"}},
    {"memory": 32, "compute": 20, "annotations": {"aliquot.dev/gpu-uuid": "GPU-n1-0,GPU-n2-1"}},
]


class DoubtfulWorld(World):
    """Its API server may also say that it failed after it has done what was asked."""

    def _maybe_lose(self) -> None:
        try:
            super()._maybe_lose()
        except UnreachableError:
            if self.random.random() < 0.5:
                raise ApiError(504, "Timeout", "it did not complete in time") from None
            raise


class Storm:
    """One random step after the other."""

    def __init__(self, seed: int) -> None:
        nodes = [gpu_node(f"n{number}", linked=True) for number in range(4)]
        self.world = DoubtfulWorld(nodes, seed)
        self.world.faults = 0.07
        self.random = self.world.random
        self.made = 0
        self.bound = 0
        self.groups = 0
        self.members_bound = 0
        self.in_flight: list[tuple[str, str]] = []

    def step(self) -> None:
        actions = [
            *[self.create] * 4,
            self.create_group,
            *[self.schedule] * 8,
            *[self.schedule_group] * 6,
            *[self.bind] * 8,
            *[self.bind_all] * 2,
            *[self.delete] * 3,
            *[self.give] * 3,
            *[self.run] * 2,
            *[self.hear] * 8,
            *[self.tend] * 2,
            self.finish,
            self.terminate,
            self.wait,
            self.restart,
            self.fail_over,
            self.lose_agent,
        ]
        self.random.choice(actions)()
        self.world.check_gpus()
        self.world.check_groups()

    def create(self) -> None:
        shape = self.random.choice(SHAPES)
        self.made += 1
        annotations = dict(shape.get("annotations", {}))
        pod = gpu_pod(f"p{self.made}", **{**shape, "annotations": annotations})
        self.world.add_pod(pod)

    def create_group(self) -> None:
        """Members come one after the other, and not all of them may be heard of at once."""
        self.groups += 1
        size = self.random.randint(2, 4)
        memory, compute = self.random.choice([(40, 30), (80, 50), (0, 100)])
        for number in range(size):
            annotations = {names.GROUP: f"g{self.groups}", names.GROUP_SIZE: str(size)}
            name = f"g{self.groups}-{number}"
            self.world.add_pod(gpu_pod(name, memory, compute, annotations=annotations))

    def schedule(self) -> None:
        """kube-scheduler decides about one pod at a time, but binds many at once."""
        if pending := self.pending():
            self.decide(self.random.choice(pending))

    def schedule_group(self) -> None:
        """One member after the other, as when they are woken; their bind calls come later."""
        self.world.deliver(self.world.leader)
        groups = {name.partition("-")[0] for name in self.pending() if name.startswith("g")}
        if groups:
            group = self.random.choice(sorted(groups))
            for name in self.pending():
                if name.startswith(f"{group}-"):
                    self.decide(name)

    def pending(self) -> list[str]:
        busy = {name for name, _ in self.in_flight} | self.world.calls.keys()
        return [
            name
            for name, pod in self.world.pods.items()
            if not pod["spec"].get("nodeName") and name not in busy
        ]

    def decide(self, name: str) -> None:
        chosen = self.world.schedule(name)
        if chosen:
            self.in_flight.append((name, chosen))

    def bind(self) -> None:
        if self.in_flight:
            self.random.shuffle(self.in_flight)
            self.bound += self.world.bind(*self.in_flight.pop())
        self.members_bound += self.world.go_on()

    def bind_all(self) -> None:
        while self.in_flight:
            self.bind()
        # Those that came first wait for the last plan.
        self.members_bound += self.world.go_on()

    def delete(self) -> None:
        if self.world.pods:
            self.world.delete_pod(self.random.choice(sorted(self.world.pods)))

    def give(self) -> None:
        for number in range(2):
            self.world.deliver(number)
        started = [
            name
            for name, pod in self.world.pods.items()
            if pod["spec"].get("nodeName") and not self.world.assignments(pod)[1]
        ]
        if started:
            self.world.give(self.random.choice(started), self.random.random() < 0.3)
            for number in range(2):
                self.world.deliver(number)

    def run(self) -> None:
        for name, pod in self.world.pods.items():
            if self.world.assignments(pod)[1] and pod["status"]["phase"] == "Pending":
                pod["status"] = {"phase": "Running"}
                self.world.change_pod(name)
                return

    def finish(self) -> None:
        for name, pod in self.world.pods.items():
            if pod["status"]["phase"] == "Running":
                pod["status"] = {"phase": "Succeeded"}
                self.world.change_pod(name)
                return

    def terminate(self) -> None:
        for name, pod in self.world.pods.items():
            if "deletionTimestamp" not in pod["metadata"]:
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self.world.change_pod(name)
                return

    def hear(self) -> None:
        self.world.deliver(self.random.randrange(2), self.random.randrange(1, 6))

    def tend(self) -> None:
        self.world.replicas[self.random.randrange(2)].tender.tend()

    def wait(self) -> None:
        self.world.pass_time(self.random.uniform(0, 20))

    def restart(self) -> None:
        """Calls under way end with the process; a bind that was sent may still happen."""
        number = self.random.randrange(2)
        if number == self.world.leader:
            self.in_flight.clear()
        self.world.restart(number)

    def fail_over(self) -> None:
        """The lease has run out in between, and with it all that the former leader had sent."""
        self.in_flight.clear()
        self.world.pass_time(60.0)
        self.world.leader = 1 - self.world.leader
        self.world.deliver(self.world.leader)

    def lose_agent(self) -> None:
        name = f"n{self.random.randrange(4)}"
        self.world.change_node(gpu_node(name, linked=True, agent=self.random.random() < 0.8))


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))]
)
def test_no_step_overbooks_or_splits_a_group_and_nothing_leaks(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(2000):
        storm.step()
    assert storm.bound > 15
    assert storm.members_bound > 5
    world = storm.world
    world.calm_down()
    # What every replica has booked is what a process would book that has only read the objects.
    fresh = world.start()
    world.pass_time(100.0)
    fresh.verbs.expire()
    for replica in world.replicas:
        assert replica.state.ledger._gpus == fresh.state.ledger._gpus
        assert replica.state.ledger._hosts == fresh.state.ledger._hosts
        assert replica.state.ledger.totals == fresh.state.ledger.totals
    for name in list(world.pods):
        world.delete_pod(name)
    world.calm_down()
    for replica in world.replicas:
        verbs = replica.verbs
        assert replica.state.ledger.is_empty()
        assert verbs.holdings.is_empty()
        assert not len(verbs.waiting)
        assert verbs.companions.is_empty()
        free = replica.state.cluster.compute_free_milli[replica.state.cluster.present]
        assert (free == 1000).all()
