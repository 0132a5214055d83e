"""Random pods, restarts and faults, over real sockets: nothing is over-booked, nothing leaks.

The allocator alone is driven much further by tests/unit/agent/test_agent_model.py; here it is the
whole agent in its process, with the order of calls and the restarts of the kubelet's stand-in.
"""

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking.liveness import JUST_ANSWERED_S
from deviceplugin.booking.promises import KEPT_S
from simcluster.kubelet import AdmissionError, Kubelet, Pod, StartError
from simcluster.kubelet.books import UNIT_BYTES, assert_sound, caps_of, gpus_of, shares_of
from simcluster.kubelet.runoptions import RunOptions
from tests.agentprocess import AgentProcess
from tests.simulated import simulated_node

UNITS, GPUS = 320, 2
BOTH = (MEMORY_RESOURCE, COMPUTE_RESOURCE)
START_S = 20.0
"""Far more than a container waits for on a busy machine. Hypothesis plays a failure twice."""

Act = Callable[[str, set[str]], None]
"""Takes a resource and the ids of it that are in flight; it may exchange them."""


@dataclass
class World:
    kubelet: Kubelet
    agent: AgentProcess
    running: dict[str, tuple[Pod, RunOptions]] = field(default_factory=dict)
    """By uid."""
    made: int = 0
    settled_s: float = 0.0
    """When the agent has given up what it kept for a pod that was refused."""

    def admit(self, memory: int, compute: int, act: Act | None = None) -> bool:
        self.made += 1
        pod = Pod.asking(f"pod-{self.made}", memory=memory, compute=compute)

        def watch(resource: str, ids: set[str]) -> None:
            # The kubelet follows the agent's preference. Allocate would refuse the ids of others,
            # and a pod for which there is room would have failed.
            self.assert_free(ids, f"the agent prefers for {pod.name}")
            if act is not None:
                act(resource, ids)

        try:
            with self.kubelet.in_flight(watch):
                self.kubelet.admit(pod)
        except AdmissionError:
            return False
        # Now: a container that shares its ids may never start, and that would not say why.
        for ids in self.kubelet.ids_of(pod).values():
            self.assert_free(ids, f"Allocate gave {pod.name}")
        assert_sound(self.kubelet, *self.pods, pod)
        self.start(pod)
        return True

    def assert_free(self, ids: set[str], what: str) -> None:
        for pod in self.pods:
            for held in self.kubelet.ids_of(pod).values():
                twice = sorted(ids & held)
                if twice:
                    more = f"; so are {len(twice) - 1} more" if len(twice) > 1 else ""
                    raise AssertionError(f"{what} {twice[0]}, which is held by {pod.name}{more}")

    def start(self, pod: Pod) -> None:
        """For the first time, or again."""
        try:
            options = self.kubelet.start_in_time(pod, patience_s=START_S)
        except StartError as error:
            raise AssertionError(
                f"{pod.name}/main did not start within {START_S:g} s: {error}"
            ) from None
        self.running[pod.uid] = (pod, options)

    def end(self, pod: Pod) -> None:
        del self.running[pod.uid]
        self.kubelet.finish(pod)

    @property
    def pods(self) -> list[Pod]:
        return [pod for pod, _ in self.running.values()]

    def forget_all(self, _resource: str, _ids: set[str]) -> None:
        """From now on the kubelet offers what others hold."""
        for pod in self.pods:
            self.kubelet.forget(pod)

    def hand_out_twice(self, resource: str, ids: set[str]) -> None:
        """Whatever the agent preferred."""
        ids.clear()
        ids.add(min(self.kubelet.ids_of(self.pods[0])[resource]))
        self.settled_s = time.monotonic() + max(KEPT_S, JUST_ANSWERED_S)


def second(first: str, act: Act) -> Act:
    """Acts while ids of the second resource are in flight."""

    def filtered(resource: str, ids: set[str]) -> None:
        if resource != first:
            act(resource, ids)

    return filtered


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._ended = contextlib.ExitStack()
        node = self._ended.enter_context(simulated_node(f"{GPUS}xA100-80G"))
        # Its path leaves room for the names of sockets.
        folder = Path(self._ended.enter_context(tempfile.TemporaryDirectory(prefix="aq-")))
        kubelet = self._ended.enter_context(Kubelet(folder / "kubelet"))
        self.world = World(kubelet, AgentProcess(node, kubelet, folder / "state"))
        self._ended.callback(self.world.agent.stop)
        self.world.agent.start_and_wait()

    @rule(
        memory=st.sampled_from([1, 40, 100, 160, 200, UNITS]),
        compute=st.sampled_from([1, 20, 40, 50, 60, 100]),
    )
    def add(self, memory: int, compute: int) -> None:
        self.world.admit(memory, compute)

    @rule(first=st.sampled_from(BOTH))
    def add_while_the_agent_dies(self, first: str) -> None:
        died = []

        def die(_resource: str, _ids: set[str]) -> None:
            self.world.agent.kill()
            died.append(True)

        with self.world.kubelet.order(first):
            admitted = self.world.admit(1, 1, second(first, die))
        assert not admitted, "nobody was there to give it its second half"
        # On a full node it is refused its first half, and nobody dies.
        if died:
            self.world.agent.start_and_wait()

    @precondition(lambda self: self.world.pods)
    @rule(first=st.sampled_from(BOTH))
    def add_while_the_kubelet_forgets_whom_it_gave_ids(self, first: str) -> None:
        with self.world.kubelet.order(first):
            self.world.admit(100, 20, self.world.forget_all)

    @precondition(lambda self: self.world.pods)
    @rule(first=st.sampled_from(BOTH))
    def add_with_an_id_that_another_holds(self, first: str) -> None:
        twice = second(first, self.world.hand_out_twice)
        with self.world.kubelet.order(first):
            assert not self.world.admit(1, 1, twice), "it has an id of another container"

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.world.end(data.draw(st.sampled_from(self.world.pods)))

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def restart_a_container(self, data: st.DataObject) -> None:
        self.world.start(data.draw(st.sampled_from(self.world.pods)))

    @rule(gently=st.booleans())
    def restart_the_agent(self, gently: bool) -> None:
        if gently:
            self.world.agent.terminate()
            self.world.kubelet.wait_gone()
        else:
            self.world.agent.kill()
        self.world.agent.start_and_wait()

    @rule(crash=st.booleans())
    def restart_the_kubelet(self, crash: bool) -> None:
        kubelet = self.world.kubelet
        if crash:
            kubelet.crash()
            kubelet.start()
        else:
            kubelet.restart()
        self.world.agent.wait_ready()

    @invariant()
    def no_id_has_two_holders(self) -> None:
        assert_sound(self.world.kubelet, *self.world.pods)

    @invariant()
    def limits_are_what_is_held(self) -> None:
        for pod, options in self.world.running.values():
            (gpu,) = gpus_of(self.world.kubelet, pod)
            asked = pod.container("main").limits
            assert caps_of(options) == {gpu: asked[MEMORY_RESOURCE] * UNIT_BYTES}
            assert shares_of(options) == {gpu: asked[COMPUTE_RESOURCE] * 100}

    def teardown(self) -> None:
        with self._ended:
            if sys.exception() is not None:
                # A step has failed; what that has left behind would hide it.
                return
            for pod in self.world.pods:
                self.world.end(pod)
            time.sleep(max(0.0, self.world.settled_s - time.monotonic()))
            # Nothing has leaked if everything can be had, at once.
            for _ in range(GPUS):
                assert self.world.admit(UNITS, 100)


def test_no_fault_makes_the_agent_give_an_id_twice() -> None:
    """Which faults the random sequences meet is a matter of luck."""
    machine = Machine()
    try:
        machine.add(100, 20)
        for first in BOTH:
            for fault in (
                machine.add_with_an_id_that_another_holds,
                machine.add_while_the_kubelet_forgets_whom_it_gave_ids,
                machine.add_while_the_agent_dies,
            ):
                fault(first)
                machine.no_id_has_two_holders()
                machine.limits_are_what_is_held()
        assert len(machine.world.running) == 3, "there was room for all of them"
    finally:
        machine.teardown()


def test_whatever_happens_nothing_is_over_booked_and_nothing_leaks() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=5,
            stateful_step_count=10,
            deadline=None,
            derandomize=True,
            # A shorter way to the same failure would take minutes to find.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
