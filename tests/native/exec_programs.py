"""Builds the programs that try streams, events, modules and graphs, on a clock of their own.

They contain the driver's sources instead of linking to the library, because its clock cannot be
replaced from outside; so all of them are one program, built with the sanitizers in it.
"""

import os
import re
import subprocess
from pathlib import Path

import nativebuild
from tests.native.driver_programs import ROOT, sanitizer_flags

SOURCES = Path(__file__).parent / "driver_exec"
SANITIZERS = "address,undefined"

_DRIVER = "simgpu/src/driver"
_CORE = "simgpu/src/core"
_TESTS = "tests/native/driver_exec"
_FRAME = "tests/native/driver"


def exec_cases() -> list[tuple[str, str]]:
    """Every case with the source that declares it."""
    return [
        (source.stem, case)
        for source in sorted(SOURCES.glob("*.c"))
        for case in re.findall(r"^CASE\((\w+)\)", source.read_text(), re.MULTILINE)
    ]


def exec_program() -> Path:
    """The program, built when it is out of date; it stays below build/, as that takes a while."""
    core = [path.name for path in (ROOT / _CORE).glob("*.c") if path.name != "clock.c"]
    library = nativebuild.Library(
        name="driver-exec",
        target="driver-exec/libdriver_exec.so",
        sources=(
            f"{_DRIVER}/*.c",
            *(f"{_CORE}/{name}" for name in sorted(core)),
            f"{_TESTS}/*.c",
            f"{_FRAME}/check.c",
        ),
        includes=(_CORE, _DRIVER, "shim/abi", _TESTS, _FRAME),
        flags=("-fvisibility=default", "-pthread"),
    )
    flags = sanitizer_flags(SANITIZERS)
    into = ROOT / "build" / SANITIZERS.replace(",", "-")
    was_stale = nativebuild.build(library, nativebuild.Toolchain(("gcc",), flags), into)
    built = into / library.target
    program = built.with_name("driver_exec")
    if was_stale or not program.exists():
        # Renamed into place: another run of the tests may be executing it just now.
        fresh = program.with_name(f".driver_exec.{os.getpid()}")
        subprocess.run(
            ["gcc", *flags, "-Wl,-rpath,$ORIGIN", built, "-o", fresh], check=True, cwd=ROOT
        )
        fresh.replace(program)
    return program
