"""The whole agent watching: GPUs of other plugins, and tenants that leave the shim out."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aliquot.protocol.names import MEMORY_RESOURCE
from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.containers import NoContainers, check_containers, start_process
from simcluster.kubelet.runoptions import RunOptions
from tests.agentprocess import AgentProcess
from tests.patience import PATIENCE_S, eventually
from tests.simulated import SimulatedNode

TENANT = Path(__file__).with_name("tenant.py")
NVIDIA = "nvidia.com/gpu"


def metrics(agent: AgentProcess) -> dict[str, dict[str, float]]:
    """Values by name and label values; what Prometheus could not read fails here."""
    status, page = agent.get("/metrics")
    assert status == 200
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = ",".join(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def healthy_gpus(kubelet: Kubelet) -> set[str]:
    ids = kubelet.manager.healthy.get(MEMORY_RESOURCE, set())
    return {each.split("-", 1)[1].rpartition("-")[0] for each in ids}


def test_beside_another_plugin_only_gpus_listed_as_ours_are_handed_out(
    kubelet: Kubelet, node: SimulatedNode, make_agent: Callable[..., AgentProcess]
) -> None:
    first, second = (device.uuid for device in node.snapshot().devices)
    kubelet.manager.add_other(NVIDIA, {f"{first}::0", f"{first}::1", second})
    agent = make_agent(gpus=second)
    agent.start_and_wait()
    assert healthy_gpus(kubelet) == {second}
    eventually(lambda: "another device plugin advertises the same GPUs" in agent.output)
    eventually(lambda: metrics(agent).get("aliquot_gpu_advertised_elsewhere"))
    assert metrics(agent)["aliquot_gpu_advertised_elsewhere"] == {f"{second},{NVIDIA}": 1}


def test_beside_another_plugin_nothing_is_handed_out_that_is_not_listed(
    kubelet: Kubelet, node: SimulatedNode, make_agent: Callable[..., AgentProcess]
) -> None:
    first, second = (device.uuid for device in node.snapshot().devices)
    kubelet.manager.add_other(NVIDIA, {first})
    agent = make_agent().start()
    kubelet.wait_for(lambda: healthy_gpus(kubelet) == {second}, "the other GPU is withheld")
    eventually(lambda: metrics(agent)["aliquot_gpu_usable"] == {first: 0, second: 1})


@pytest.fixture
def run() -> Iterator[Callable[[RunOptions], subprocess.Popen[str]]]:
    try:
        check_containers()
    except NoContainers as error:
        pytest.skip(str(error))
    if find_spec("cuda.bindings") is None:
        pytest.skip("cuda.bindings is not installed")
    started: list[subprocess.Popen[str]] = []

    def start(options: RunOptions) -> subprocess.Popen[str]:
        process = start_process(
            options,
            [sys.executable, str(TENANT)],
            {"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "CUDA_SUCCESS\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def take(process: subprocess.Popen[str], mib: int) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    print(f"take {mib}", file=process.stdin, flush=True)
    return process.stdout.readline().strip()


def without_preload(options: RunOptions) -> RunOptions:
    """As if the image were linked statically, or had its own loader."""
    mounts = tuple(each for each in options.mounts if each.container != "/etc/ld.so.preload")
    return replace(options, mounts=mounts)


def test_a_container_that_takes_memory_past_the_shim_is_reported(
    kubelet: Kubelet,
    agent: AgentProcess,
    run: Callable[[RunOptions], subprocess.Popen[str]],
) -> None:
    honest = run(kubelet.run(Pod.asking("honest", memory=16, compute=10))["main"])
    assert take(honest, 2048) == "CUDA_SUCCESS"
    hostile = run(
        without_preload(kubelet.run(Pod.asking("hostile", memory=16, compute=10))["main"])
    )
    assert take(hostile, 8192) == "CUDA_SUCCESS"

    def kinds() -> set[str]:
        found = metrics(agent).get("aliquot_breaches_total", {})
        return {re.sub(r"^main,([a-z-]+),default,hostile$", r"\1", each) for each in found}

    eventually(lambda: kinds() == {"over-cap", "not-booked", "shim-missing"})
    missing = metrics(agent)["aliquot_container_shim_missing_processes"]
    assert missing == {"main,default,hostile": 1}
    assert "default/hostile/main has 8." in agent.output
    assert "its cap is 4Gi" in agent.output
    hostile.kill()
    eventually(lambda: metrics(agent).get("aliquot_container_shim_missing_processes", {}) == {})
    assert kinds() == {"over-cap", "not-booked", "shim-missing"}, "counted once, and kept"
