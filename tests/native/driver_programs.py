"""Builds and runs the C programs that try the simulated driver, case by case."""

import re
import subprocess
from pathlib import Path

import nativebuild
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


def sanitizer_flags(sanitizers: str) -> tuple[str, ...]:
    return ("-O1", "-g", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=undefined")


def sanitized_libraries(sanitizers: str) -> Path:
    """The folder with a driver that has the sanitizers in it, built by gcc when it is out of date.

    It stays below build/, because building it takes longer than what is done with it.
    """
    artifact = next(a for a in nativebuild.artifacts() if a.name == "libcuda")
    into = ROOT / "build" / sanitizers.replace(",", "-")
    toolchain = nativebuild.Toolchain(("gcc",), sanitizer_flags(sanitizers))
    nativebuild.build(artifact, toolchain, into)
    return (into / artifact.target).parent


def run_case(program: Path, case: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, case], env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )


def leftovers(node: SimulatedNode) -> list[str]:
    """Files beside the node's that a program has left."""
    return [file.name for file in node.path.parent.iterdir() if file != node.path]
