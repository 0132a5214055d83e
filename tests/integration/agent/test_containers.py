"""Containers with exactly what the agent answered: mounts, environment, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.containers import NoContainers, check_containers, start_process
from simcluster.kubelet.runoptions import RunOptions
from tests.agentprocess import AgentProcess
from tests.patience import eventually
from tests.simulated import SimulatedNode, simulated_node

TENANT = Path(__file__).with_name("tenant.py")
MIB = 1 << 20
UNIT_MIB = 256
SUCCESS, NO_MEMORY = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"


class Tenant:
    """A CUDA program in a container, asked one line at a time."""

    def __init__(self, options: RunOptions) -> None:
        self.process = start_process(
            options,
            [sys.executable, str(TENANT)],
            {"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.began = self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xA100-80G") as made:
        yield made


@pytest.fixture
def run() -> Iterator[Callable[[RunOptions], Tenant]]:
    try:
        check_containers()
    except NoContainers as error:
        pytest.skip(str(error))
    if find_spec("cuda.bindings") is None:
        pytest.skip("cuda.bindings is not installed")
    tenants: list[Tenant] = []

    def start(options: RunOptions) -> Tenant:
        tenants.append(Tenant(options))
        return tenants[-1]

    yield start
    for tenant in tenants:
        tenant.end()


def used_mib(node: SimulatedNode) -> int:
    return node.snapshot().devices[0].used_bytes // MIB


def test_two_containers_keep_their_caps_on_one_gpu_while_the_agent_is_killed_and_restarted(
    kubelet: Kubelet,
    node: SimulatedNode,
    make_agent: Callable[..., AgentProcess],
    run: Callable[[RunOptions], Tenant],
):
    agent = make_agent(usage_store="tmpfs").start_and_wait()
    try:
        first_pod = Pod.asking("first", memory=16, compute=30)
        first = run(kubelet.run(first_pod)["main"])
        assert first.began == SUCCESS
        assert first.ask("total") == str(16 * UNIT_MIB)
        assert first.ask("take 2048") == SUCCESS

        agent.kill()
        assert first.ask("take 4096") == NO_MEMORY
        agent.start_and_wait()

        second = run(kubelet.run(Pod.asking("second", memory=32, compute=50))["main"])
        assert second.ask("total") == str(32 * UNIT_MIB)
        assert second.ask("take 4096") == SUCCESS
        assert second.ask("take 4096") == NO_MEMORY
        assert first.ask("take 4096") == NO_MEMORY
        assert first.ask("take 1024") == SUCCESS
        assert 2048 + 1024 + 4096 <= used_mib(node) <= (16 + 32) * UNIT_MIB

        # The same container again after its process has ended: the same cap, a new account.
        first.end()
        agent.kill()
        agent.start_and_wait()
        again = run(kubelet.start_in_time(first_pod))
        assert again.ask("take 3072") == SUCCESS
        assert again.ask("take 2048") == NO_MEMORY
        assert not [line for line in agent.output.splitlines() if "ERROR" in line]
    finally:
        agent.stop()
        clean_up(agent)


def test_a_container_sees_only_its_gpu_and_reports_what_it_uses(
    kubelet: Kubelet, agent: AgentProcess, run: Callable[[RunOptions], Tenant]
):
    tenant = run(kubelet.run(Pod.asking("a", memory=8, compute=10, namespace="team"))["main"])
    assert tenant.ask("gpus") == "1"
    assert tenant.ask("take 512") == SUCCESS
    labels = 'container="main",gpu_uuid="'

    def used_bytes() -> float:
        for line in agent.get("/metrics")[1].splitlines():
            if line.startswith("aliquot_container_memory_used_bytes{") and labels in line:
                return float(line.split()[-1])
        return 0.0

    eventually(lambda: used_bytes() >= 512 * MIB)


def clean_up(agent: AgentProcess) -> None:
    """Tmpfs mounts outlive an agent, as they must; here the node itself goes."""
    for usage in (agent.state / "alloc").glob("*/usage"):
        subprocess.run(["umount", str(usage)], check=False, capture_output=True, timeout=60)
