"""Builds and runs the C programs that try the simulated driver, case by case."""

import re
import subprocess
from pathlib import Path

from simgpu.node import LIBRARIES
from tests.simulated import SimulatedNode

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "driver"
DEADLINE_S = 120
"""For what takes milliseconds, on a machine that is busy with something else."""

# What a program shows by printing it, instead of checking it itself.
_ANSWERS = {"list_devices"}


def programs() -> list[str]:
    """The programs: every source but the frame."""
    return sorted(source.stem for source in SOURCES.glob("*.c") if source.stem != "check")


def cases(program: str) -> list[str]:
    """The cases that a program's source declares."""
    declared = re.findall(r"^CASE\((\w+)\)", (SOURCES / f"{program}.c").read_text(), re.MULTILINE)
    return [name for name in declared if name not in _ANSWERS]


def compile_program(
    program: str, folder: Path, *flags: str, compiler: str = "cc", libraries: Path = LIBRARIES
) -> Path:
    """driver/PROGRAM.c with its frame, linked to the driver as an application is."""
    target = folder / program
    subprocess.run(
        [
            *(compiler, "-std=gnu11", "-O1", "-g", "-pthread", *flags),
            *("-Wall", "-Wextra", "-Wconversion", "-Werror"),
            *(f"-I{ROOT / 'shim' / 'abi'}", f"-I{SOURCES}"),
            *(SOURCES / f"{program}.c", SOURCES / "check.c", libraries / "libcuda.so.1"),
            *("-o", target),
        ],
        check=True,
        cwd=ROOT,
    )
    return target


def run_case(program: Path, case: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, case], env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )


def leftovers(node: SimulatedNode) -> list[str]:
    """Files beside the node's that a program has left."""
    return [file.name for file in node.path.parent.iterdir() if file != node.path]
