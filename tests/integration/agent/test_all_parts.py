"""Everything that the agent consists of runs once it is ready, and what that means for users."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from shim import limits
from simcluster.apiserver import ApiServer
from simcluster.apiserver import node as node_manifest
from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.containers import NoContainers, check_containers, start_process
from simcluster.kubelet.runoptions import RunOptions
from simgpu.kernels import TEST_PTX
from tests.agentprocess import AgentProcess
from tests.clusterpods import NODE, bound, kubeconfig
from tests.patience import PATIENCE_S, eventually
from tests.simulated import SimulatedNode

HURRIED = """
import sys
from aliquot import cli
from deviceplugin import agent
agent.ROUND_S = 0.2
sys.exit(cli.main())
"""
"""An agent that looks at others each moment, not each minute."""

BUSY = f"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), {TEST_PTX.encode()!r}) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"aliquot_spin") == 0
duration_ns = ctypes.c_uint64(5 * 10**6)
parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(duration_ns), ctypes.c_void_p))
ones = [ctypes.c_uint(1)] * 6
print("ready", flush=True)
while True:
    assert cuda.cuLaunchKernel(kernel, *ones, ctypes.c_uint(0), None, parameters, None) == 0
    assert cuda.cuCtxSynchronize() == 0
"""
SHARE = 3000
"""30 percent, as limits count it."""


def granted(options: RunOptions) -> int:
    path = Path(options.mounted("/etc/aliquot/compute/limits"))
    return limits.read(path, limits.Kind.COMPUTE).devices[0].grant


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        started.add(node_manifest(NODE))
        yield started


def test_idle_compute_is_lent_to_a_container_that_has_work(
    kubelet: Kubelet,
    server: ApiServer,
    make_agent: Callable[..., AgentProcess],
    short_path: Path,
) -> None:
    try:
        check_containers()
    except NoContainers as error:
        pytest.skip(str(error))
    # Whether a pod may borrow stands on the pod.
    agent = make_agent(api_server="auto", log_level="debug")
    agent.environment["KUBECONFIG"] = kubeconfig(server, short_path / "kubeconfig")
    agent.start_and_wait()
    pod = Pod.asking("busy", memory=4, compute=30)
    server.add(bound(pod, compute_policy="burst"))
    eventually(lambda: f"({pod.uid}) is of this node" in agent.output)
    (options,) = kubelet.run(pod).values()
    process = start_process(
        options,
        [sys.executable, "-c", BUSY],
        {"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        eventually(lambda: granted(options) > SHARE)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_another_plugin_that_comes_later_is_noticed(
    kubelet: Kubelet, node: SimulatedNode, make_agent: Callable[..., AgentProcess]
) -> None:
    agent = make_agent()
    agent.program = ["-c", HURRIED]
    agent.start_and_wait()
    kubelet.manager.add_other("nvidia.com/gpu", {node.snapshot().devices[0].uuid})
    eventually(lambda: "another device plugin advertises the same GPUs" in agent.output)


def test_a_second_after_the_agents_death_nothing_of_it_is_allocatable(
    kubelet: Kubelet, agent: AgentProcess
) -> None:
    killed_s = time.monotonic()
    agent.kill()
    took_s = time.monotonic() - killed_s
    assert not any(map(kubelet.allocatable, (MEMORY_RESOURCE, COMPUTE_RESOURCE)))
    assert took_s < 1.0
