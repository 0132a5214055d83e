"""An agent on a node without GPUs: ready, known to the kubelet, and there when a GPU comes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from simcluster.kubelet import AdmissionError, Kubelet, Pod
from simgpu.node import LIBRARIES
from tests.agentprocess import AgentProcess
from tests.patience import eventually


@pytest.fixture
def host(short_path: Path) -> Path:
    """What the agent sees of its host: no driver."""
    folder = short_path / "host"
    (folder / "usr/lib64").mkdir(parents=True)
    return folder


@pytest.fixture
def bare(make_agent: Callable[..., AgentProcess], host: Path) -> AgentProcess:
    agent = make_agent(host_dir=str(host))
    agent.environment["LD_LIBRARY_PATH"] = ""
    return agent.start()


def load_driver(host: Path) -> None:
    (host / "usr/lib64/libnvidia-ml.so.1").symlink_to(LIBRARIES / "libnvidia-ml.so.1")


def test_it_is_ready_and_serves_a_gpu_that_comes_later(
    kubelet: Kubelet, bare: AgentProcess, host: Path
):
    eventually(lambda: bare.get("/readyz")[0] == 200)
    said = bare.get("/readyz")[1]
    assert said.startswith("ok: this node has no GPU (libnvidia-ml.so.1 was not found")
    assert "aliquot_node_gpus 0.0\n" in bare.get("/metrics")[1]
    assert "no GPU to hand out: this node has no GPU" in bare.output
    # A kubelet that did not know the resources would start pods that ask for them without any.
    assert {each.resource_name for each in kubelet.registrations} == {
        MEMORY_RESOURCE,
        COMPUTE_RESOURCE,
    }
    kubelet.wait_for(
        lambda: kubelet.manager.healthy == {MEMORY_RESOURCE: set(), COMPUTE_RESOURCE: set()},
        "both resources are known, with nothing",
    )
    with pytest.raises(AdmissionError):
        kubelet.admit(Pod.asking("early", memory=4, compute=5))

    load_driver(host)
    kubelet.wait_ready()
    eventually(lambda: bare.get("/readyz") == (200, "ok\n"))
    assert "aliquot_node_gpus 2.0\n" in bare.get("/metrics")[1]
    kubelet.run(Pod.asking("late", memory=4, compute=5))
    assert len(kubelet.registrations) == 2


def test_a_gpu_on_the_bus_without_a_driver_is_not_ready(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess], host: Path
):
    device = host / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    agent = make_agent(host_dir=str(host))
    agent.environment["LD_LIBRARY_PATH"] = ""
    agent.start()
    eventually(lambda: "0000:3b:00.0 is on the PCI bus" in agent.get("/readyz")[1])
    assert agent.get("/readyz")[0] == 503
    load_driver(host)
    agent.wait_ready()


def test_gpus_that_are_all_left_to_others_leave_it_ready(
    kubelet: Kubelet, make_agent: Callable[..., AgentProcess]
):
    agent = make_agent(gpus_left="0,1").start()
    eventually(lambda: agent.get("/readyz")[0] == 200)
    assert "left to others" in agent.get("/readyz")[1]
