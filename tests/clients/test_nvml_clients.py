"""Unmodified monitoring programs on a simulated node: they show what is there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.native.core_programs import Client, compile_program
from tests.native.nvml_observer import DEADLINE_S, await_answer, observing
from tests.simulated import SimulatedNode, simulated_node

GIB = 1 << 30
S = 10**9


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("client", tmp_path_factory.mktemp("core"))


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xA100-80G,1xL4,1xRTX-4090") as node:
        yield node


@pytest.fixture
def tenant(program: Path, node: SimulatedNode) -> Iterator[Client]:
    """A process with 5 GiB and endless work on the first GPU, seen to be busy."""
    with Client(program, node.env) as client, observing(node.env) as observer:
        assert client.greeting == "ready"
        client.ask("reserve", 0, 5 * GIB)
        client.submit(0, 0, 3600 * S)
        await_answer(
            lambda: observer.ask("nvmlDeviceGetUtilizationRates(gpu(0)).gpu"),
            lambda percent: percent == 100,
        )
        yield client


def run(node: SimulatedNode, *command: str) -> str:
    done = subprocess.run(
        command,
        env={**node.env, "TERM": "xterm", "COLUMNS": "120", "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def need_module(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")


def test_nvidia_ml_py_takes_stock(node: SimulatedNode, tenant: Client) -> None:
    """What an agent does at its start, written as people write it."""
    script = """
import json, pynvml
pynvml.nvmlInit()
found = []
for index in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    found.append([
        pynvml.nvmlDeviceGetName(handle),
        memory.total - memory.free == memory.used,
        memory.used >> 30,
        pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        [process.pid for process in processes],
    ])
pynvml.nvmlShutdown()
print(json.dumps(found))
"""
    assert json.loads(run(node, sys.executable, "-c", script)) == [
        ["NVIDIA A100-SXM4-80GB", True, 5, 100, [tenant.pid]],
        ["NVIDIA L4", True, 0, 0, []],
        ["NVIDIA GeForce RTX 4090", True, 0, 0, []],
    ]


@pytest.mark.slow
def test_gpustat_shows_devices_and_processes(node: SimulatedNode, tenant: Client) -> None:
    need_module("gpustat")
    shown = json.loads(run(node, sys.executable, "-m", "gpustat", "--json"))
    first, second, third = shown["gpus"]
    assert first["name"] == "NVIDIA A100-SXM4-80GB"
    assert (first["memory.used"], first["memory.total"]) == (5120, 81920)
    assert first["utilization.gpu"] == 100
    assert first["power.draw"] <= first["enforced.power.limit"] == 400
    assert [(p["pid"], p["gpu_memory_usage"]) for p in first["processes"]] == [(tenant.pid, 5120)]
    assert second["processes"] == []
    assert (first["fan.speed"], third["fan.speed"]) == (None, 30)
    text = run(node, sys.executable, "-m", "gpustat", "--show-all", "--no-color")
    assert "ERR" not in text
    assert text.count("\n") >= 4


@pytest.mark.slow
def test_nvitop_shows_devices_and_processes(node: SimulatedNode, tenant: Client) -> None:
    need_module("nvitop")
    text = run(node, sys.executable, "-m", "nvitop", "--once", "--ascii")
    assert "A100-SXM4-80GB" in text
    assert "5120MiB / 80.00GiB" in text
    assert "GeForce RTX 4090" in text
    assert f"{tenant.pid} C" in text
    script = """
import json
from nvitop import Device
print(json.dumps([
    [device.memory_used(), device.gpu_utilization(), device.mig_mode(), list(device.processes()),
     [process.gpu_sm_utilization() for process in device.processes().values()]]
    for device in Device.all()
]))
"""
    first, second, _ = json.loads(run(node, sys.executable, "-c", script))
    assert first[:4] == [5 * GIB, 100, "Disabled", [tenant.pid]]
    assert second == [0, 0, "N/A", [], []]
