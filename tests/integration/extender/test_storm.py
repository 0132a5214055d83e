"""Random scheduling over real HTTP, with faults and restarts: no GPU is over-booked."""

import random

import msgspec
import pytest

from aliquot.protocol import names
from scheduler_ext.footprint import Amount, footprint_of
from scheduler_ext.objects import Pod, request_of
from tests.extender_cluster import FakeScheduler, gpu_node, gpu_pod, plan_of

NODES = ["n0", "n1", "n2"]
PODS = "/api/v1/namespaces/default/pods"
SHAPES = [(16, 10), (40, 30), (80, 50), (150, 20), (0, 100), (0, 200)]


class Storm:
    def __init__(self, server, start, seed: int) -> None:
        self.server = server
        self.start = start
        self.random = random.Random(seed)
        self.made = 0
        self.bound = 0
        for name in NODES:
            server.add(gpu_node(name))
        self.extender = start()
        self.scheduler = FakeScheduler(self.extender.port)

    def step(self) -> None:
        actions = [
            *[self.create] * 4,
            *[self.schedule] * 10,
            *[self.delete] * 3,
            *[self.run] * 2,
            *[self.fail] * 3,
            self.lose_watches,
        ]
        self.random.choice(actions)()
        self.check()

    def pods(self) -> list[dict]:
        return self.server.objects("/api/v1/pods")

    def create(self) -> None:
        self.made += 1
        memory, compute = self.random.choice(SHAPES)
        self.server.add(gpu_pod(f"p{self.made}", memory, compute))

    def schedule(self) -> None:
        pending = [each for each in self.pods() if "nodeName" not in each["spec"]]
        if not pending:
            return
        stored = self.random.choice(pending)
        body = {"Pod": stored, "NodeNames": NODES}
        answer = self.scheduler.verb("filter", body)
        if not answer["Error"] and answer["NodeNames"]:
            chosen = self.random.choice(answer["NodeNames"])
            self.bound += not self.scheduler.bind(stored, chosen)

    def delete(self) -> None:
        if pods := self.pods():
            self.server.remove(f"{PODS}/{self.random.choice(pods)['metadata']['name']}")

    def run(self) -> None:
        for each in self.pods():
            if "nodeName" in each["spec"] and each["status"]["phase"] == "Pending":
                annotations = {names.ACTUAL: each["metadata"]["annotations"][names.PLAN]}
                patch = {"metadata": {"annotations": annotations}, "status": {"phase": "Running"}}
                self.server.merge(f"{PODS}/{each['metadata']['name']}", patch)
                return

    def fail(self) -> None:
        method = self.random.choice(["PATCH", "POST"])
        if self.random.random() < 0.5:
            self.server.lose_answers(method=method, path="pods/p")
        else:
            self.server.fail(500, method=method, path="pods/p")

    def lose_watches(self) -> None:
        self.server.expire_watches()

    def restart(self) -> None:
        self.scheduler.close()
        self.extender.stop()
        self.server.clear_faults()
        self.extender = self.start()
        self.scheduler = FakeScheduler(self.extender.port)

    def check(self) -> None:
        taken: dict[str, Amount] = {}
        for each in self.pods():
            plan = plan_of(each)
            if "nodeName" not in each["spec"] or plan is None:
                continue
            for share in footprint_of(plan, request_of(msgspec.convert(each, Pod))):
                taken[share.uuid] = taken.get(share.uuid, Amount()).plus(share.amount)
        for uuid, amount in taken.items():
            assert amount.memory_units <= 160, f"{uuid}: {amount}"
            assert amount.compute_percent <= 100, f"{uuid}: {amount}"
            assert amount.wholes <= 1, f"{uuid}: {amount}"


def _storm(server, start, seed: int, rounds: int, steps: int) -> None:
    storm = Storm(server, start, seed)
    try:
        for _ in range(rounds):
            for _ in range(steps):
                storm.step()
            storm.restart()
        assert storm.bound > rounds
        for each in storm.pods():
            server.remove(f"{PODS}/{each['metadata']['name']}")
        server.wait_for(storm.extender.state.ledger.is_empty)
    finally:
        storm.scheduler.close()


def test_a_short_storm(server, start):
    _storm(server, start, seed=1, rounds=3, steps=80)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_long_storm(server, start, seed):
    _storm(server, start, seed, rounds=10, steps=200)
