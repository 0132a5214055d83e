"""Unmodified CUDA programs on a simulated GPU: they find what they need, and run."""

from pathlib import Path

import pytest

from simgpu.names import TABLE
from tests.clients.client_programs import need, need_library, run_program
from tests.simulated import simulated_node

MS = 10**6


def symbols_found(**env: str) -> dict[str, list[str]]:
    need("cuda.bindings")
    with simulated_node("1xA100-80G") as node:
        lines = run_program("bindings_lookup", node, **env).splitlines()
    return {name: found for name, *found in (line.split() for line in lines)}


def test_cuda_bindings_finds_every_function() -> None:
    found = symbols_found()
    assert len(found) > 500
    assert {name: symbols for name, symbols in found.items() if name not in symbols} == {}


def test_cuda_bindings_finds_the_twins_for_per_thread_streams() -> None:
    exported = TABLE.read_text()
    found = symbols_found(CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM="1")
    twins = {
        name: twin
        for name in found
        for twin in (f"{name}_ptds", f"{name}_ptsz")
        if f" {twin}," in exported
    }
    assert len(twins) > 80
    assert {name for name in found if twins.get(name, name) not in found[name]} == set()


def test_cuda_bindings_works_and_its_events_agree_with_the_accounts() -> None:
    need("cuda.bindings", "numpy")
    with simulated_node("1xA100-80G") as node:
        measured_ms = float(run_program("bindings_work", node))
        device = node.snapshot().devices[0]
    assert measured_ms == pytest.approx(20)
    assert device.busy_ns == (30 + 20 + 10) * MS
    assert device.launches == 21
    assert device.used_bytes == 0


@pytest.mark.parametrize("gpus", ["1xA100-80G,1xH100-80G", "1xH100-80G,1xA100-80G"])
def test_code_of_nvidias_compiler_is_read(gpus: str) -> None:
    """On the first GPU, and not on the second, which is of another generation."""
    need("cuda.bindings", "numpy")
    need_library("libnvrtc.so")
    with simulated_node(gpus) as node:
        assert run_program("bindings_cubin", node, CUDA_DEVICE_ORDER="PCI_BUS_ID") == "read\n"


def test_numba_compiles_and_launches() -> None:
    need("numba", "numba_cuda")
    need_library("libnvrtc.so")
    need_library("libnvvm.so")
    with simulated_node("2xA100-80G") as node:
        assert run_program("numba_kernel", node) == "ran\n"
        device = node.snapshot().devices[0]
    assert device.launches == 5
    assert device.busy_ns > 0
    assert device.used_bytes == 0


def test_tinygrad_trains_with_graphs(tmp_path: Path) -> None:
    need("tinygrad", "numpy")
    with simulated_node("1xA100-80G") as node:
        printed = run_program(
            "tinygrad_training", node, DEV="CUDA", DEBUG="2", XDG_CACHE_HOME=str(tmp_path)
        )
        device = node.snapshot().devices[0]
    assert printed.endswith("trained\n")
    assert "batched" in printed, "the jitted steps ran as graphs"
    assert device.launches > 100
    assert device.busy_ns > 0
    assert device.used_bytes == 0


@pytest.mark.slow
def test_cuda_core_compiles_launches_and_builds_graphs() -> None:
    need("cuda.core", "numpy")
    need_library("libnvrtc.so")
    with simulated_node("1xA100-80G") as node:
        assert run_program("core_work", node) == "ran\n"
        device = node.snapshot().devices[0]
    assert device.launches == 3 + 2 * 4
    assert device.used_bytes == 0
