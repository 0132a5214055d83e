"""The simulated NVML under the sanitizers: random calls of several threads, beside busy tenants."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nativebuild
from tests.native.core_programs import (
    DEADLINE_S,
    Client,
    compile_program,
    need_compiler,
    without_aslr,
)
from tests.simulated import SimulatedNode, simulated_node

# One worker for all of them: what takes the time is building.
pytestmark = pytest.mark.xdist_group("nvml-sanitizers")

STORM = Path(__file__).with_name("nvml_storm.py")
MIB = 1 << 20
HOUR_NS = 3600 * 10**9

# The interpreter itself is not instrumented: its leaks and its allocator are not our concern.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
    "TSAN_OPTIONS": "report_thread_leaks=0",
    "PYTHONMALLOC": "malloc",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("client", tmp_path_factory.mktemp("core"))


@pytest.fixture
def node(program: Path) -> Iterator[SimulatedNode]:
    """A node where two tenants work without an end, so that every look finds something to do."""
    with (
        simulated_node("2xH100-80G,1xL4,1xRTX-4090") as node,
        Client(program, node.env) as first,
        Client(program, node.env) as second,
    ):
        for client in (first, second):
            client.ask("reserve", 0, MIB)
            client.submit(0, 0, HOUR_NS)
        yield node


def runtime(name: str) -> str:
    """A library that is not linked into the interpreter must be loaded before it."""
    found = subprocess.run(
        ["gcc", f"-print-file-name=lib{name}.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not os.path.isabs(found):  # noqa: PTH117 - what the compiler prints when it has none
        pytest.skip(f"gcc has no lib{name}")
    return found


Build = Callable[[str], Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds the library with sanitizers in it, once; answers the folder it is in."""
    need_compiler("gcc")
    artifact = next(a for a in nativebuild.artifacts() if a.name == "libnvidia-ml")
    built: dict[str, Path] = {}

    def build_once(sanitizers: str) -> Path:
        if sanitizers not in built:
            flags = ("-O1", "-g", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=undefined")
            folder = tmp_path_factory.mktemp("sanitized")
            nativebuild.build(artifact, nativebuild.Toolchain(("gcc",), flags), folder)
            built[sanitizers] = (folder / artifact.target).parent
        return built[sanitizers]

    return build_once


def run_sanitized(
    node: SimulatedNode, libraries: Path, preloaded: str, *command: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*without_aslr(), sys.executable, *command],
        env={
            **node.env,
            **OPTIONS,
            "LD_PRELOAD": runtime(preloaded),
            "LD_LIBRARY_PATH": str(libraries),
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.mark.parametrize(
    ("sanitizers", "library"), [("address,undefined", "asan"), ("thread", "tsan")]
)
def test_random_calls_are_clean_under(
    sanitizers: str, library: str, node: SimulatedNode, build: Build
) -> None:
    storm = (str(STORM), "1", "4", "3000")
    done = run_sanitized(node, build(sanitizers), library, *storm)
    assert (done.returncode, done.stderr) == (0, "")
    answers = ast.literal_eval(done.stdout)
    assert answers[0] > 4000, "most calls must get beyond the checks of their arguments"
    assert {0, 2, 3, 6, 7, 25} <= answers.keys()


def test_the_sanitizer_would_notice(node: SimulatedNode, build: Build) -> None:
    script = """
import ctypes
library = ctypes.CDLL("libnvidia-ml.so.1")
library.nvmlInit_v2()
handle = ctypes.c_void_p()
library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
too_small = ctypes.CDLL(None).malloc
too_small.restype = ctypes.c_void_p
library.nvmlDeviceGetMemoryInfo(handle, ctypes.c_void_p(too_small(8)))
"""
    done = run_sanitized(node, build("address,undefined"), "asan", "-c", script)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
