"""GPUs that break, recover, or belong to somebody else as well."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from simcluster.kubelet import AdmissionError, Container, Kubelet, Pod
from simcluster.kubelet.books import gpus_of
from tests.agentprocess import AgentProcess
from tests.patience import eventually
from tests.simulated import SimulatedNode

UNITS = 320
NVIDIA = "nvidia.com/gpu"


def healthy_gpus(kubelet: Kubelet, resource: str = MEMORY_RESOURCE) -> set[str]:
    ids = kubelet.manager.healthy.get(resource, set())
    return {each.split("-", 1)[1].rpartition("-")[0] for each in ids}


def test_a_gpu_turning_unhealthy_and_recovering(
    kubelet: Kubelet, agent: AgentProcess, node: SimulatedNode
):
    lost, kept = (device.uuid for device in node.snapshot().devices)
    node.inject(0, "lost")
    kubelet.wait_for(lambda: healthy_gpus(kubelet) == {kept}, "only the other GPU is healthy")
    pod = Pod.asking("a", memory=16, compute=10)
    kubelet.run(pod)
    assert gpus_of(kubelet, pod) == {kept}
    node.inject(0, "clear")
    kubelet.wait_for(
        lambda: healthy_gpus(kubelet) == healthy_gpus(kubelet, COMPUTE_RESOURCE) == {lost, kept},
        "both GPUs are healthy",
    )


def test_an_agent_starts_beside_a_gpu_that_hangs(
    kubelet: Kubelet, node: SimulatedNode, make_agent: Callable[..., AgentProcess]
):
    well, _ = (device.uuid for device in node.snapshot().devices)
    node.inject(1, "nvml-slow=3600s")
    agent = make_agent().start_and_wait()
    assert healthy_gpus(kubelet) == {well}
    assert agent.get("/livez") == (200, "ok\n")
    kubelet.run(Pod.asking("a", memory=16, compute=10))
    node.inject(0, "lost")
    kubelet.wait_for(lambda: healthy_gpus(kubelet) == set(), "the other one is watched")
    assert agent.terminate() == 0


def test_a_gpu_that_nvidias_plugin_has_handed_out_is_withdrawn_until_it_is_free(
    kubelet: Kubelet, agent: AgentProcess, node: SimulatedNode
):
    first, second = (device.uuid for device in node.snapshot().devices)
    kubelet.manager.add_other(NVIDIA, {first})
    theirs = Pod("theirs", (Container("main", {NVIDIA: 1}),))
    kubelet.admit(theirs)
    ours = Pod.asking("ours", memory=16, compute=10)
    kubelet.run(ours)
    assert gpus_of(kubelet, ours) == {second}
    large = Pod.asking("large", memory=UNITS, compute=10)
    # Without an API server nobody knows the second resource's size when the first one comes.
    with kubelet.order(MEMORY_RESOURCE):
        with pytest.raises(AdmissionError):
            kubelet.admit(large)
        kubelet.finish(theirs)
        # The next pod makes the agent look, and the kubelet hears of it.
        kubelet.run(Pod.asking("small", memory=1, compute=1))
        kubelet.wait_for(lambda: first in healthy_gpus(kubelet), "the GPU is ours again")
        kubelet.run(large)
    assert gpus_of(kubelet, large) == {first}


def test_gpus_left_to_others_are_never_advertised(
    kubelet: Kubelet, node: SimulatedNode, make_agent: Callable[..., AgentProcess]
):
    make_agent(gpus_left="0").start_and_wait()
    assert healthy_gpus(kubelet) == {node.snapshot().devices[1].uuid}
    assert kubelet.allocatable(MEMORY_RESOURCE) == UNITS


def test_a_cdi_file_that_cannot_be_written_is_why_the_agent_is_not_ready(
    kubelet: Kubelet, node: SimulatedNode, make_agent: Callable[..., AgentProcess], tmp_path: Path
):
    """Everything else goes on: the kubelet hears of GPUs that fail."""
    driver = tmp_path / "usr/lib64"
    driver.mkdir(parents=True)
    (driver / "libcuda.so.610.43.02").touch()
    (tmp_path / "var/run").mkdir(parents=True)
    folder = tmp_path / "var/run/cdi"
    folder.touch()  # as good as a full disk
    agent = make_agent(gpu_access="cdi", host_dir=str(tmp_path)).start()
    kubelet.wait_ready()
    eventually(lambda: f"{folder / 'aliquot.dev-gpu.json'}, by which" in agent.get("/readyz")[1])
    assert agent.get("/readyz")[0] == 503
    lost, kept = (device.uuid for device in node.snapshot().devices)
    node.inject(0, "lost")
    kubelet.wait_for(lambda: healthy_gpus(kubelet) == {kept}, "the lost GPU is withdrawn")
    folder.unlink()
    eventually(lambda: agent.get("/readyz") == (200, "ok\n"))
    assert lost in (folder / "aliquot.dev-gpu.json").read_text()


def test_memory_kept_back_and_compute_over_committed(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess]
):
    make_agent(memory_kept_back="1Gi", compute_percent="150").start_and_wait()
    assert kubelet.allocatable(MEMORY_RESOURCE) == 2 * (UNITS - 4)
    assert kubelet.allocatable(COMPUTE_RESOURCE) == 300
