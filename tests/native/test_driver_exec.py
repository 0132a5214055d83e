"""Streams, events, captures, modules, launches and graphs of the simulated driver, to the us."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.core_programs import need_compiler, without_aslr
from tests.native.driver_programs import DEADLINE_S, ROOT
from tests.native.exec_programs import exec_cases, exec_program
from tests.simulated import SimulatedNode, simulated_node

# One worker for all of them: what takes the time is building the program.
pytestmark = [pytest.mark.xdist_group("driver-exec"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def program() -> Path:
    need_compiler("gcc")
    return exec_program()


def losing_script(node: SimulatedNode, folder: Path) -> Path:
    """What a case calls to let the first GPU fall off the bus."""
    script = folder / "lose"
    script.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from simgpu.node import Node\n"
        f"Node.open(Path({str(node.path)!r})).inject(0, 'lost')\n"
    )
    script.chmod(stat.S_IRWXU)
    return script


def run(program: Path, case: str, folder: Path) -> tuple[int, str]:
    with simulated_node("2xH100-80G") as node:
        done = subprocess.run(
            [*without_aslr(), program, case],
            env={
                **node.env,
                "ALIQUOT_TEST_LOSE": str(losing_script(node, folder)),
                # Objects lie in mapped tables, where the leak checker does not look for pointers.
                "ASAN_OPTIONS": "detect_leaks=0",
                "UBSAN_OPTIONS": "print_stacktrace=1",
                "LD_LIBRARY_PATH": "",
            },
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert node.snapshot().processes == (), "what the program held is free again"
    return done.returncode, done.stderr


@pytest.mark.parametrize(("source", "case"), exec_cases())
def test_driver(source: str, case: str, program: Path, tmp_path: Path) -> None:
    assert run(program, case, tmp_path) == (0, "")
