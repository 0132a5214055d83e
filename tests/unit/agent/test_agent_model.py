"""Random pods, restarts and faults against the allocator: nothing is ever over-booked or leaks."""

import contextlib
import itertools
import os
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aliquot.protocol.assignment import Slice
from aliquot.protocol.request import ContainerRequest, Role
from deviceplugin.booking.errors import Refusal, Retry
from deviceplugin.booking.ledger import allocation_name
from deviceplugin.booking.presence import UNRECORDED_S
from deviceplugin.gpus.hardware import Hardware
from shim.limits import WHOLE
from tests.unit.agent.agent_node import COMPUTE, MEMORY, UNIT, Node, Pod, allowed, gpu, uuid

UNITS = 8
GPUS = 3
_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Killed(Exception):  # noqa: N818 - an event
    """The agent's process ended in the middle of a pod's admission."""


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(dir=_FOLDER)
        self.node = Node(Path(self._folder.name), *(gpu(number, UNITS) for number in range(GPUS)))
        self.sizes: dict[tuple[str, str], tuple[int, int]] = {}
        """What each container was resized to, by pod uid and name."""
        self.started: set[str] = set()
        self.doubtful: set[str] = set()
        """Pods that were admitted without a list, or when another could be taken for them: their
        halves may be apart."""
        self.admitted_s: dict[str, float] = {}
        """When this agent's life saw them come, by pod uid."""
        self.number = 0

    @property
    def kubelet(self):
        return self.node.kubelet

    def _pods(self) -> list[Pod]:
        return list(self.kubelet.active.values())

    # What happens.

    @rule(
        memory=st.integers(1, UNITS),
        compute=st.sampled_from([5, 20, 40, 60, 100]),
        kind=st.sampled_from(["plain", "plain", "plain", "whole", "two", "split", "init", "same"]),
        known=st.booleans(),
        plan=st.sampled_from([None, None, 0, 1, 2]),
        fault=st.sampled_from(["", "", "", "", "loses ids", "list fails", "killed"]),
        seed=st.integers(0, 3),
    )
    def add(self, memory, compute, kind, known, plan, fault, seed) -> None:
        pod = self._make(memory, compute, kind, plan)
        if known:
            self.node.pods.views[pod.namespace, pod.name] = pod.view()
        fits = False
        if known and not fault and seed % 2:
            # What nobody can name yet counts as held for a second.
            self.node.clock.now_s += 1.1
            fits = self._fits(pod)
        self.kubelet.random = Random(seed)
        if fault == "loses ids":
            self.kubelet.during_allocate = self.kubelet.listing
        if fault == "killed":
            self.kubelet.between_calls = self._kill
        self.kubelet.list_fails = fault == "list fails"
        is_blind = fault == "list fails" or (kind == "init" and not known)
        if is_blind and (mistakable := self._taken_for_half()):
            self.doubtful |= {pod.uid, *mistakable}
        self.admitted_s[pod.uid] = self.node.clock.now_s
        refusal = ""
        try:
            self.kubelet.add(pod)
        except (Refusal, Killed) as error:
            refusal = str(error) or "killed"
        self.kubelet.during_allocate = self.kubelet.between_calls = lambda: None
        self.kubelet.list_fails = False
        assert not (fits and refusal), refusal
        if fault in ("list fails", "killed"):
            self.doubtful.add(pod.uid)

    def _make(self, memory: int, compute: int, kind: str, plan: int | None) -> Pod:
        self.number += 1
        # A name that comes again, as a StatefulSet's do.
        name = "same-0" if kind == "same" else f"pod-{self.number}"
        if any(pod.name == name for pod in self._pods()):
            name = f"pod-{self.number}"
        self.node.pods.views.pop(("default", name), None)
        main, gpus = ContainerRequest("main", memory, compute), 1
        containers = [main]
        if kind == "whole":
            containers = [ContainerRequest("main", 0, 100 if compute < 60 else 200)]
        elif kind == "two":
            containers = [replace(main, memory_units=2 * memory, compute_percent=2 * compute)]
            gpus = 2
        elif kind == "split":
            containers.append(ContainerRequest("side", 1, 5, Role.SIDECAR))
        elif kind == "init":
            containers.append(ContainerRequest("init", max(1, memory // 2), 30, Role.INIT))
        planned = None
        if plan is not None and kind == "plain":
            planned = {"main": (Slice(uuid(plan), memory, compute),)}
        return Pod(name, tuple(containers), f"uid-{self.number}", gpus=gpus, plan=planned)

    def _fits(self, pod: Pod) -> bool:
        """Whether a pod of one container can surely be given what it asks for."""
        if len(pod.containers) != 1:
            return False
        self.kubelet.listing()
        free = {}
        for resource in (MEMORY, COMPUTE):
            some = {each for each, healthy in self.node.allocator.devices(resource) if healthy}
            free[resource] = Counter(each[2:42] for each in some - self.kubelet.in_use[resource])
        (main,) = pod.containers
        if not main.memory_units:
            held = {
                each[2:42]
                for (_, _, resource), some in self.kubelet.held.items()
                if resource == MEMORY
                for each in some
            }
            empty = [one for one in free[COMPUTE] if free[COMPUTE][one] == 100 and one not in held]
            return len(empty) * 100 >= main.compute_percent
        share = main.compute_percent // pod.gpus, main.memory_units // pod.gpus
        good = [
            one
            for one in free[MEMORY]
            if (free[COMPUTE][one], free[MEMORY][one]) >= share and free[MEMORY][one] >= share[1]
        ]
        return len(good) >= pod.gpus

    def _taken_for_half(self) -> set[str]:
        """A pod with whole GPUs that nobody knows lacks memory by the kubelet's list, as if it were
        being admitted, until it starts or has been there for long. An init container, which is
        not listed itself, or anybody while there is no list, is then taken for it, and both wait
        until one of the pods has ended; an app container only gets a refusal."""
        now_s = self.node.clock.now_s
        return {
            pod.uid
            for pod in self._pods()
            if not any(each.memory_units for each in pod.containers)
            and pod.uid not in self.started
            and (pod.namespace, pod.name) not in self.node.pods.views
            # The agent cannot tell how long it has been there if that was before its start.
            and now_s - self.admitted_s.get(pod.uid, now_s) <= UNRECORDED_S
        }

    def _kill(self) -> None:
        self.admitted_s.clear()
        self.node.restart_agent()
        if self.kubelet.random.random() < 0.5:
            raise Killed

    @precondition(lambda self: self.kubelet.active)
    @rule(data=st.data())
    def start(self, data) -> None:
        """For the first time, or again."""
        self._start(data.draw(st.sampled_from(self._pods())))

    def _start(self, pod: Pod) -> None:
        reason = ""
        try:
            self.kubelet.start(pod)
            self.started.add(pod.uid)
        except Retry as error:
            reason = str(error)
        assert not reason or pod.uid in self.doubtful, reason

    @precondition(lambda self: self.kubelet.active)
    @rule(data=st.data())
    def end(self, data) -> None:
        self._end(data.draw(st.sampled_from(self._pods())))

    def _end(self, pod: Pod) -> None:
        self.kubelet.end(pod)
        self.node.pods.views.pop((pod.namespace, pod.name), None)

    @rule(forget=st.booleans())
    def restart_agent(self, forget) -> None:
        self.admitted_s.clear()
        self.node.restart_agent(forget=forget)

    @rule()
    def restart_kubelet(self) -> None:
        self.node.allocator.kubelet_restarted()
        self.node.seen_checkpoint = self.kubelet.checkpoint()
        self.node.allocator.reconcile(lambda: self.node.seen_checkpoint, list)

    @rule()
    def reconcile(self) -> None:
        self.node.reconcile()

    @precondition(lambda self: self.kubelet.active)
    @rule(
        data=st.data(),
        ends=st.sampled_from(["before", "after"]),
        comes=st.sampled_from(["half", "before", "after"]),
        starts=st.booleans(),
        seed=st.integers(0, 3),
    )
    def reconcile_by_an_old_list(self, data, ends, comes, starts, seed) -> None:
        """A pod ends before or after it is made. One just like it, often with its ids, comes before
        or after that, or has been half admitted when we asked for it."""
        old = data.draw(st.sampled_from(self._pods()))
        self.number += 1
        name = f"pod-{self.number}" if seed % 2 or comes != "after" else old.name
        new = replace(old, name=name, uid=f"uid-{self.number}")

        def come(steps: int = 99) -> None:
            self.node.pods.views[new.namespace, new.name] = new.view()
            with contextlib.suppress(Refusal):
                for _ in itertools.islice(admission, steps):
                    pass

        def before() -> None:
            if ends == "before":
                self._end(old)
            if comes == "before":
                come()

        def after() -> None:
            if ends == "after":
                self._end(old)
            come()
            if starts and new.uid in self.kubelet.active:
                self._start(new)

        self.kubelet.random = Random(seed)
        self.admitted_s[new.uid] = self.node.clock.now_s
        admission = self.kubelet.admit(new)
        if comes == "half":
            come(steps=1)
        self.node.reconcile(before, after)

    @rule(seconds=st.sampled_from([0.3, 2, 20, 100]))
    def wait(self, seconds) -> None:
        self.node.clock.now_s += seconds

    @rule(broken=st.sets(st.integers(0, GPUS - 1), max_size=1))
    def break_gpus(self, broken) -> None:
        self.node.hardware = Hardware(
            tuple(gpu(one, UNITS, "Xid 79" if one in broken else "") for one in range(GPUS))
        )
        self.node.allocator.update_hardware(self.node.hardware)

    @precondition(lambda self: self.kubelet.active)
    @rule(data=st.data(), memory=st.integers(0, UNITS + 1), compute=st.integers(0, 110))
    def resize(self, data, memory, compute) -> None:
        pod = data.draw(st.sampled_from(self._pods()))
        if pod.uid not in self.started or len(pod.containers) > 1:
            return
        try:
            resized = self.node.allocator.resize(pod.view(), "main", memory, compute)
        except Refusal:
            return
        assert (resized.memory_units, resized.compute_percent) == (memory, compute)
        self.sizes[pod.uid, "main"] = (memory, compute)

    # What must hold.

    @invariant()
    def no_id_has_two_holders(self) -> None:
        for resource in (MEMORY, COMPUTE):
            seen: dict[str, str] = {}
            for pod in self._pods():
                for container in pod.containers:
                    for each in self.kubelet.ids(pod, resource, container.name):
                        holder = pod.uid
                        if container.role is not Role.INIT:
                            assert seen.get(each) in (None, f"{pod.uid} init")
                        else:
                            holder += " init"
                        assert seen.get(each, pod.uid).startswith(pod.uid)
                        seen.setdefault(each, holder)
                        seen[each] = holder if container.role is not Role.INIT else seen[each]

    @invariant()
    def no_gpu_is_over_booked(self) -> None:
        """By the bytes and shares that the containers' own files allow."""
        booked: dict[str, Counter[str]] = {MEMORY: Counter(), COMPUTE: Counter()}
        pods_on: dict[str, set[str]] = {}
        whole: dict[str, str] = {}
        for pod in self._pods():
            if pod.uid not in self.started:
                continue
            for resource in (MEMORY, COMPUTE):
                parts = {role: Counter[str]() for role in (False, True)}
                for container in pod.containers:
                    for one, amount in allowed(self.node, pod, container.name, resource).items():
                        pods_on.setdefault(one, set()).add(pod.uid)
                        if amount is None:
                            whole[one] = pod.uid
                            continue
                        is_init = container.role is Role.INIT
                        parts[is_init][one] += amount
                booked[resource] += parts[False] | parts[True]
        assert all(amount <= UNITS * UNIT for amount in booked[MEMORY].values()), booked
        assert all(amount <= WHOLE for amount in booked[COMPUTE].values()), booked
        for one, uid in whole.items():
            assert pods_on[one] == {uid}

    @invariant()
    def limits_equal_what_is_held(self) -> None:
        for pod in self._pods():
            if pod.uid not in self.started:
                continue
            for container in pod.containers:
                memory, compute = self.sizes.get(
                    (pod.uid, container.name), (container.memory_units, container.compute_percent)
                )
                given = allowed(self.node, pod, container.name, MEMORY)
                if memory:
                    assert sum(filter(None, given.values())) == memory * UNIT
                else:
                    assert set(given.values()) == {None}
                assert (
                    sum(allowed(self.node, pod, container.name, COMPUTE).values()) == compute * 100
                )

    @invariant()
    def nobody_is_taken_for_another(self) -> None:
        booked = {
            path.parent.name: held.pod_uid
            for held in self.node.allocator.allocations()
            for path in (held.memory_limits, held.compute_limits)
            if path is not None
        }
        for (uid, _, resource), some in self.kubelet.held.items():
            if uid in self.kubelet.active.keys() - self.doubtful:
                known = booked.get(allocation_name(resource, some), "")
                assert known == uid or not (known or uid in self.started)

    @invariant()
    def folders_are_those_of_allocations(self) -> None:
        found = set()
        for held in self.node.allocator.allocations():
            for path in (held.memory_limits, held.compute_limits):
                if path is not None and path.parent.name != "memory":
                    found.add(path.parent.name)
        there = {each.name for each in (self.node.folder / "state" / "alloc").glob("*")}
        # Beside them only what the kubelet might have wanted back when we last looked.
        recorded = {allocation_name(each.resource, each.ids) for each in self.node.seen_checkpoint}
        assert not found - there
        assert not there - found - recorded

    def teardown(self) -> None:
        try:
            for pod in self._pods():
                self.kubelet.end(pod)
            self.kubelet.listing()
            self.node.clock.now_s += 100
            self.node.reconcile()
            assert self.node.allocator.allocations() == ()
            for folder in ("alloc", "ended"):
                assert not list((self.node.folder / "state" / folder).glob("*"))
            self.node.allocator.update_hardware(
                Hardware(tuple(gpu(one, UNITS) for one in range(GPUS)))
            )
            for resource in (MEMORY, COMPUTE):
                assert all(healthy for _, healthy in self.node.allocator.devices(resource))
        finally:
            self.node.journal.close()
            self._folder.cleanup()


class TestAllocatorModel(Machine.TestCase):
    settings = settings(max_examples=150, stateful_step_count=30)


class LongMachine(Machine):
    """The same for longer."""


@pytest.mark.slow
class TestAllocatorModelForLong(LongMachine.TestCase):
    settings = settings(max_examples=200, stateful_step_count=60)
