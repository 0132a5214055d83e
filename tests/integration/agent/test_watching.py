"""The whole agent watching: GPUs of other plugins, and tenants that leave the shim out."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aliquot.protocol import names
from aliquot.protocol.names import MEMORY_RESOURCE
from aliquot.protocol.resize import Amounts, ResizeRequest, encode
from simcluster.apiserver import ApiServer
from simcluster.apiserver import node as node_manifest
from simcluster.kubelet import Kubelet, Pod
from simcluster.kubelet.books import UNIT_BYTES, caps_of
from simcluster.kubelet.containers import NoContainers, check_containers, start_process
from simcluster.kubelet.runoptions import RunOptions
from tests.agentprocess import AgentProcess
from tests.clusterpods import NODE, bound, kubeconfig, pod_path
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


@pytest.mark.serial
def test_a_breach_is_told_within_five_seconds(
    kubelet: Kubelet,
    agent: AgentProcess,
    run: Callable[[RunOptions], subprocess.Popen[str]],
) -> None:
    """By the clock of the whole agent, from the moment in which the driver has given the memory."""
    pod = Pod.asking("hostile", memory=16, compute=10)
    hostile = run(without_preload(kubelet.run(pod)["main"]))
    begun_s = time.time()
    told_after_s("without the shim", agent, begun_s)
    assert take(hostile, 8192) == "CUDA_SUCCESS"
    taken_s = time.time()
    assert told_after_s("without the shim", agent, begun_s) <= 5
    assert told_after_s("its cap is 4Gi", agent, taken_s) <= 5


def told_after_s(text: str, agent: AgentProcess, since_s: float) -> float:
    def line() -> str:
        return next((each for each in agent.output.splitlines() if text in each), "")

    stamp = eventually(line).split()[0]
    return datetime.fromisoformat(stamp).timestamp() - since_s


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        started.add(node_manifest(NODE))
        yield started


@pytest.fixture
def evicting(
    make_agent: Callable[..., AgentProcess], server: ApiServer, short_path: Path
) -> AgentProcess:
    agent = make_agent(api_server="auto", breach="evict", log_level="debug")
    agent.environment["KUBECONFIG"] = kubeconfig(server, short_path / "kubeconfig")
    return agent.start_and_wait()


def test_a_pod_that_is_shrunk_below_what_it_holds_is_not_evicted(
    kubelet: Kubelet,
    server: ApiServer,
    evicting: AgentProcess,
    run: Callable[[RunOptions], subprocess.Popen[str]],
) -> None:
    """Neither by the agent that has shrunk it, nor by the next one; others are, meanwhile."""

    def start(name: str) -> tuple[Pod, RunOptions]:
        pod = Pod.asking(name, memory=16, compute=10)
        server.add(bound(pod))
        eventually(lambda: f"({pod.uid}) is of this node" in evicting.output)
        return pod, kubelet.run(pod)["main"]

    def is_evicted(pod: Pod) -> bool:
        found = server.get(pod_path(pod))
        return found is None or "deletionTimestamp" in found["metadata"]

    def see_another_one_evicted(name: str) -> None:
        pod, options = start(name)
        hostile = run(without_preload(options))
        assert take(hostile, 8192) == "CUDA_SUCCESS"
        server.wait_for(lambda: is_evicted(pod))
        hostile.kill()

    pod, options = start("shrinks")
    tenant = run(options)
    assert take(tenant, 3072) == "CUDA_SUCCESS"
    wish = encode(ResizeRequest("1", {"main": Amounts(memory_units=4)}))
    server.merge(pod_path(pod), {"metadata": {"annotations": {names.RESIZE: wish}}})
    server.wait_for(lambda: set(caps_of(options).values()) == {4 * UNIT_BYTES})
    assert take(tenant, 64) == "CUDA_ERROR_OUT_OF_MEMORY"
    see_another_one_evicted("first")
    evicting.kill()
    evicting.start_and_wait()
    see_another_one_evicted("second")
    assert not is_evicted(pod)
    told = metrics(evicting)["aliquot_breaches_total"]
    assert told
    assert not any("shrinks" in each for each in told)
