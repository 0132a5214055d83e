"""Unmodified CUDA programs under `aliquot run --memory 1Gi` see 1 GiB and are stopped at it."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.capped import PATIENCE_S, ROOT
from tests.simulated import SimulatedNode, simulated_node

PROGRAMS = Path(__file__).parent / "capped"
STOPPED = "CUDA_ERROR_OUT_OF_MEMORY CUDA_SUCCESS"
"""2 GiB are refused, a little is granted."""


def run_capped(node: SimulatedNode, program: str, tmp_path: Path, **more: str) -> list[str]:
    command = [sys.executable, "-m", "aliquot.cli", "run", "--memory", "1Gi", "--"]
    done = subprocess.run(
        [*command, sys.executable, PROGRAMS / program],
        env={**node.env, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), **more},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def need(package: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def test_cuda_bindings(tmp_path: Path) -> None:
    need("cuda.bindings")
    with simulated_node("2xA100-80G") as node:
        sees, *outcomes = run_capped(node, "with_cuda_bindings.py", tmp_path)
    assert sees == "sees 1024 1024"
    assert [line for line in outcomes if not line.endswith(STOPPED)] == []
    assert len(outcomes) == 12


def test_numba(tmp_path: Path) -> None:
    need("numba_cuda")
    with simulated_node("1xA100-80G") as node:
        sees, *outcomes, still_sees = run_capped(node, "with_numba.py", tmp_path)
    assert sees == still_sees == "sees 1024"
    assert [line for line in outcomes if not line.endswith(STOPPED)] == []
    assert len(outcomes) == 6


def test_tinygrad(tmp_path: Path) -> None:
    need("tinygrad")
    cache = str(tmp_path / "cache.db")
    with simulated_node("1xA100-80G") as node:
        lines = run_capped(node, "with_tinygrad.py", tmp_path, DEV="CUDA", CACHEDB=cache)
    assert lines == [f"allocator {STOPPED}", f"tensor {STOPPED}", "trained"]
