"""Random pods, restarts and faults, over real sockets: nothing is over-booked, nothing leaks.

The allocator alone is driven much further by tests/unit/agent/test_agent_model.py; here it is the
whole agent in its process, with the order of calls and the restarts of the kubelet's stand-in.
"""

import contextlib
import tempfile
from collections.abc import Iterator
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
from simcluster.kubelet import AdmissionError, Kubelet, Pod
from simcluster.kubelet.books import UNIT_BYTES, assert_sound, caps_of, gpus_of, shares_of
from simcluster.kubelet.runoptions import RunOptions
from tests.agentprocess import AgentProcess
from tests.simulated import simulated_node

UNITS, GPUS = 320, 2


@dataclass
class World:
    kubelet: Kubelet
    agent: AgentProcess
    running: dict[str, tuple[Pod, RunOptions]] = field(default_factory=dict)
    """By uid."""
    made: int = 0

    def admit(self, memory: int, compute: int) -> bool:
        self.made += 1
        pod = Pod.asking(f"pod-{self.made}", memory=memory, compute=compute)
        try:
            self.kubelet.admit(pod)
        except AdmissionError:
            return False
        self.start(pod)
        return True

    def start(self, pod: Pod) -> None:
        """For the first time, or again."""
        self.running[pod.uid] = (pod, self.kubelet.start_in_time(pod))

    def end(self, pod: Pod) -> None:
        del self.running[pod.uid]
        self.kubelet.finish(pod)

    @property
    def pods(self) -> list[Pod]:
        return [pod for pod, _ in self.running.values()]

    @contextlib.contextmanager
    def fault(self, name: str, first: str) -> Iterator[None]:
        """What happens while ids of the second resource are in flight."""

        def act(resource: str, _ids: set[str]) -> None:
            if resource == first:
                return
            if name == "kill":
                self.agent.kill()
            else:
                self.kubelet.forget(self.pods[0])

        with self.kubelet.order(first), self.kubelet.in_flight(act):
            yield


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

    @rule(first=st.sampled_from([MEMORY_RESOURCE, COMPUTE_RESOURCE]))
    def add_while_the_agent_dies(self, first: str) -> None:
        with self.world.fault("kill", first):
            assert not self.world.admit(1, 1), "nobody was there to give it its second resource"
        self.world.agent.start_and_wait()

    @precondition(lambda self: self.world.pods)
    @rule(first=st.sampled_from([MEMORY_RESOURCE, COMPUTE_RESOURCE]))
    def add_while_the_kubelet_forgets_whom_it_gave_ids(self, first: str) -> None:
        with self.world.fault("forget", first):
            self.world.admit(100, 20)

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
            for pod in self.world.pods:
                self.world.end(pod)
            # Nothing has leaked if everything can be had, at once.
            for _ in range(GPUS):
                assert self.world.admit(UNITS, 100)


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
