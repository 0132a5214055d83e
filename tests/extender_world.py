"""A cluster without sockets: the API server's objects, replicas that hear late, and faults."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from aliquot.kubernetes.errors import ApiError, ApiServerError, UnreachableError
from aliquot.kubernetes.watch import Change, ChangeKind
from aliquot.protocol import assignment, names
from aliquot.protocol.assignment import Assignment, Slice
from scheduler_ext.binding import Binder, Pause
from scheduler_ext.choices import Choices
from scheduler_ext.footprint import Amount, footprint_of, larger
from scheduler_ext.groups import Gate, Ticket
from scheduler_ext.holdings import RefusedError
from scheduler_ext.objects import Node, Pod, request_of
from scheduler_ext.state import ClusterState
from scheduler_ext.tending import Tender
from scheduler_ext.verbs import Verbs
from scheduler_ext.waiting import WaitingPods

__all__ = ["Replica", "World"]

Object = dict[str, Any]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Replica:
    """One extender process."""

    state: ClusterState
    verbs: Verbs
    binder: Binder
    tender: Tender
    events: deque[Change[Any]] = field(default_factory=deque)


@dataclass
class Call:
    """A bind call at its group's barrier."""

    steps: Iterator[Pause]
    replica: Replica
    ticket: Ticket[str]
    gate: Gate


class World:
    """Stands for the API server, the nodes' agents and the clock; a test is everybody else."""

    def __init__(self, nodes: list[Object], seed: int = 1, replicas: int = 2) -> None:
        self.random = random.Random(seed)
        self.clock = Clock()
        self.nodes: dict[str, Object] = {each["metadata"]["name"]: each for each in nodes}
        self.pods: dict[str, Object] = {}
        self.woken: set[str] = set()
        self.failed: set[str] = set()
        self.faults = 0.0
        """How likely a request of a binder fails in one way or another."""
        self.late: list[tuple[float, str, Object]] = []
        """Binds whose answer was lost, and which happen later."""
        self.calls: dict[str, Call] = {}
        """Bind calls that wait for others of their group, by pod."""
        self.spoiled: set[str] = set()
        """Groups that may be in parts: a pod of theirs went, or its binding was refused."""
        self.version = 1
        self.leader = 0
        self.replicas = [self.start() for _ in range(replicas)]

    # The replicas.

    def start(self) -> Replica:
        """A process that has just read everything, and nothing else."""
        state = ClusterState(clock=self.clock)
        verbs = Verbs(
            state,
            Choices(state.cluster, "fragmentation"),
            WaitingPods(),
            assume_s=15.0,
            settle_s=60.0,
            clock=self.clock,
        )
        client: Any = self
        made: list[Replica] = []

        def leads() -> bool:
            return bool(made) and made[0] in self.replicas[self.leader : self.leader + 1]

        binder = Binder(client, verbs, leads, again_s=0.0)
        tender = Tender(client, verbs, binder, leads, clock=self.clock)
        replica = Replica(state, verbs, binder, tender)
        made.append(replica)
        state.replace_nodes([msgspec.convert(each, Node) for each in self.nodes.values()])
        state.replace_pods([msgspec.convert(each, Pod) for each in self.pods.values()])
        return replica

    def restart(self, number: int) -> None:
        """Calls under way end with the process."""
        for name, call in list(self.calls.items()):
            if call.replica is self.replicas[number]:
                del self.calls[name]
                self._spoil(name)
        self.replicas[number] = self.start()

    def go_on(self) -> int:
        """Bind calls whose wait is over; answers how many have bound their pod."""
        bound = 0
        for name, call in list(self.calls.items()):
            if call.replica.verbs.companions.look(call.ticket) is not call.gate:
                del self.calls[name]
                bound += self._follow(name, call.steps, call.replica)
        return bound

    def deliver(self, number: int, most: int = 1_000_000) -> None:
        replica = self.replicas[number]
        while replica.events and most:
            most -= 1
            change = replica.events.popleft()
            if isinstance(change.object, Node):
                replica.state.change_node(change)
            else:
                replica.state.change_pod(change)

    def pass_time(self, seconds: float) -> None:
        self.clock.now_s += seconds
        for late in list(self.late):
            if late[0] <= self.clock.now_s:
                self.late.remove(late)
                self._bind(*late[1:])

    def calm_down(self) -> None:
        """No more faults; everything is told, everything runs out that can."""
        self.faults = 0.0
        for _ in range(4):
            self.pass_time(70.0)
            self.go_on()
            for number, replica in enumerate(self.replicas):
                self.deliver(number)
                replica.tender.tend()
                self.deliver(number)

    # What others do.

    def add_pod(self, pod: Object) -> Object:
        self.pods[pod["metadata"]["name"]] = pod
        return self._tell(ChangeKind.ADDED, pod)

    def delete_pod(self, name: str) -> None:
        self._spoil(name)
        self._tell(ChangeKind.DELETED, self.pods.pop(name))

    def change_pod(self, name: str) -> None:
        self._tell(ChangeKind.MODIFIED, self.pods[name])

    def change_node(self, node: Object) -> None:
        self.nodes[node["metadata"]["name"]] = node
        self._tell(ChangeKind.MODIFIED, node)

    def schedule(self, name: str) -> str | None:
        """As kube-scheduler does; the node, or None when that failed in any way."""
        verbs = self.replicas[self.leader].verbs
        if name in self.failed:
            # kube-scheduler notes a failed bind in the pod's status before it tries again.
            self.failed.discard(name)
            self.change_pod(name)
        pod = msgspec.convert(self.pods[name], Pod)
        try:
            passed = verbs.filter(pod, sorted(self.nodes)).passed
            if not passed:
                return None
            scores = verbs.prioritize(pod, passed) if len(passed) > 1 else [10]
            if self.random.random() < 0.1:
                # Some other plugin held it up, or preferred another node.
                chosen = self.random.choice(passed)
            else:
                chosen = passed[scores.index(10)]
        except RefusedError:
            return None
        return chosen

    def bind(self, name: str, node: str) -> bool:
        """Whether the pod is bound; false as well while its call waits for others."""
        metadata = self.pods[name]["metadata"] if name in self.pods else {"uid": "gone"}
        replica = self.replicas[self.leader]
        steps = replica.binder.steps("default", name, metadata["uid"], node)
        return self._follow(name, steps, replica)

    def _follow(self, name: str, steps: Iterator[Pause], replica: Replica) -> bool:
        try:
            pause = next(steps, None)
        except RefusedError:
            if name in self.pods:
                self.failed.add(name)
            return False
        if pause is not None:
            self.calls[name] = Call(steps, replica, *pause)
        return pause is None

    # The API server's side of the binder, as ApiClient has it.

    def get(self, path: str, _: type) -> Pod:
        self._maybe_fail()
        return msgspec.convert(self._found(path), Pod)

    def patch(self, path: str, body: Object) -> Any:
        self._maybe_fail()
        pod = self._found(path)
        wanted = body["metadata"]
        self._check(pod, wanted)
        for name, text in wanted["annotations"].items():
            pod["metadata"]["annotations"].pop(name, None)
            if text is not None:
                pod["metadata"]["annotations"][name] = text
        if names.RETRY in wanted["annotations"]:
            self.woken.add(pod["metadata"]["name"])
        self._tell(ChangeKind.MODIFIED, pod)
        self._maybe_lose()
        return msgspec.convert(pod, Pod).metadata

    def create(self, path: str, body: Object) -> None:
        try:
            self._create(path, body)
        except ApiServerError:
            self._spoil(body["metadata"]["name"])
            raise

    def _create(self, path: str, body: Object) -> None:
        self._maybe_fail()
        if self.faults and self.random.random() < self.faults / 2:
            self.late.append((self.clock.now_s + self.random.uniform(0, 50), path, body))
            raise UnreachableError("the answer was lost")
        self._bind(path, body, loudly=True)
        self._maybe_lose()

    # What must hold.

    def check_gpus(self) -> None:
        """By the objects alone: nobody's GPU is promised or given twice."""
        taken: dict[str, Amount] = {}
        for pod in self.pods.values():
            if not pod["spec"].get("nodeName") or pod["status"]["phase"] == "Succeeded":
                continue
            plan, actual = self.assignments(pod)
            request = request_of(msgspec.convert(pod, Pod))
            booked = footprint_of(actual or plan or Assignment({}), request)
            if plan and pod["status"]["phase"] != "Running":
                booked = larger(booked, footprint_of(plan, request))
            for share in booked:
                taken[share.uuid] = taken.get(share.uuid, Amount()).plus(share.amount)
        for uuid, amount in taken.items():
            assert amount.wholes in (0, 1), f"{uuid} is promised as a whole to several"
            assert amount.compute_percent <= 100, f"{uuid}: {amount}"
            assert amount.memory_units <= 160, f"{uuid}: {amount}"
            assert not amount.wholes or amount.memory_units == 0, f"{uuid}: {amount}"

    def check_groups(self) -> None:
        """All of a group are bound or none, as soon as nobody is at it."""
        members: dict[str, list[Object]] = {}
        for pod in self.pods.values():
            if group := _group(pod):
                members.setdefault(group, []).append(pod)
        busy = {_group(self.pods[name]) for name in self.calls if name in self.pods}
        for group in members.keys() - busy - self.spoiled:
            pods = members[group]
            bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
            assert bound in (0, len(pods)), f"{bound} of {len(pods)} pods of {group} are bound"

    def assignments(self, pod: Object) -> tuple[Assignment | None, Assignment | None]:
        annotations = pod["metadata"]["annotations"]
        plan, actual = annotations.get(names.PLAN), annotations.get(names.ACTUAL)
        return (
            assignment.decode(plan) if plan else None,
            assignment.decode(actual) if actual else None,
        )

    def give(self, name: str, elsewhere: bool) -> None:
        """The node's agent starts the pod, on the planned GPU or, with room there, another."""
        pod = self.pods[name]
        plan, _ = self.assignments(pod)
        if plan is None:
            return
        given = plan
        [slices] = plan.containers.values()
        if elsewhere and len(slices) == 1:
            state = self.replicas[self.leader].state
            row = state.cluster.row_of.get(pod["spec"]["nodeName"])
            for device, uuid in enumerate(state.cluster.uuids[row] if row is not None else ()):
                memory = int(state.cluster.gpu_memory_free[row, device])
                compute = int(state.cluster.compute_free_milli[row, device]) // 10
                part = slices[0]
                whole = not part.memory_units
                if memory >= (160 if whole else part.memory_units) and (
                    compute >= part.compute_percent
                ):
                    moved = Slice(uuid, part.memory_units, part.compute_percent)
                    given = Assignment({"main": (moved,)})
        pod["metadata"]["annotations"][names.ACTUAL] = assignment.encode(given)
        self.change_pod(name)

    def _bind(self, path: str, body: Object, loudly: bool = False) -> None:
        try:
            pod = self._found(path.removesuffix("/binding"))
            self._check(pod, body["metadata"])
            if pod["spec"].get("nodeName"):
                raise ApiError(409, "Conflict", "it is bound already")
        except ApiError:
            if loudly:
                raise
            return
        pod["spec"]["nodeName"] = body["target"]["name"]
        self._tell(ChangeKind.MODIFIED, pod)

    def _spoil(self, name: str) -> None:
        if name in self.pods and (group := _group(self.pods[name])):
            self.spoiled.add(group)

    def _found(self, path: str) -> Object:
        name = path.rsplit("/", 1)[-1]
        if name not in self.pods:
            raise ApiError(404, "NotFound", f"there is no pod {name}")
        return self.pods[name]

    def _check(self, pod: Object, wanted: Object) -> None:
        for key in ("uid", "resourceVersion"):
            if key in wanted and wanted[key] != pod["metadata"][key]:
                raise ApiError(409, "Conflict", f"the {key} is another")

    def _maybe_fail(self) -> None:
        if self.random.random() < self.faults:
            if self.random.random() < 0.5:
                raise ApiError(500, "InternalError", "not now")
            raise UnreachableError("nobody answered")

    def _maybe_lose(self) -> None:
        if self.random.random() < self.faults:
            raise UnreachableError("the answer was lost")

    def _tell(self, kind: ChangeKind, each: Object) -> Object:
        self.version += 1
        each["metadata"]["resourceVersion"] = str(self.version)
        made = msgspec.convert(each, Pod if "containers" in each["spec"] else Node)
        for replica in self.replicas:
            replica.events.append(Change(kind, made))
        return each


def _group(pod: Object) -> str:
    text: str = pod["metadata"]["annotations"].get(names.GROUP, "")
    return text
