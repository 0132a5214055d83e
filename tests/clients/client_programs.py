"""Runs the client programs in programs/ as a user would, on a simulated node."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.simulated import SimulatedNode

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
DEADLINE_S = 170
"""For what takes seconds, on a machine that is busy with something else."""


def need(*modules: str) -> None:
    """Skips the test where a client, or a library that it loads, is not installed."""
    for module in modules:
        try:
            missing = find_spec(module) is None
        except ModuleNotFoundError:
            missing = True
        if missing:
            pytest.skip(f"{module} is not installed")


def need_library(name: str) -> None:
    """Skips the test where no wheel has brought one of CUDA's compilers."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if list(Path(folder).glob(f"*/lib/{name}*")):
            return
    pytest.skip(f"{name} is not installed")


def run_program(name: str, node: SimulatedNode, **env: str) -> str:
    """What programs/NAME.py prints; that it fails is our failure."""
    done = subprocess.run(
        [sys.executable, PROGRAMS / f"{name}.py"],
        env={**node.env, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
