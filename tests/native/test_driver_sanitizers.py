"""The simulated driver under the sanitizers: every case of the C programs, built with them."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native.core_programs import need_compiler, without_aslr
from tests.native.driver_programs import (
    DEADLINE_S,
    cases,
    compile_program,
    programs,
    sanitized_libraries,
    sanitizer_flags,
)
from tests.simulated import simulated_node

# One worker for all of them: what takes the time is building the library.
pytestmark = [pytest.mark.xdist_group("driver-sanitizers"), pytest.mark.timeout(600)]

OPTIONS = {
    # Objects lie in mapped tables, where the leak checker does not look for pointers.
    "ASAN_OPTIONS": "detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "report_thread_leaks=0",
}

Build = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """A program and the library that it is linked to, both with the sanitizers in them."""
    need_compiler("gcc")

    def build_program(program: str, sanitizers: str) -> Path:
        libraries = sanitized_libraries(sanitizers)
        return compile_program(
            program,
            tmp_path_factory.mktemp("program"),
            f"-Wl,-rpath,{libraries}",
            *sanitizer_flags(sanitizers),
            compiler="gcc",
            libraries=libraries,
        )

    return build_program


def run(program: Path, case: str) -> tuple[int, str]:
    with simulated_node("2xH100-80G") as node:
        # The plain libraries of the node's environment would come before those with sanitizers.
        env = {**node.env, **OPTIONS, "LD_LIBRARY_PATH": ""}
        done = subprocess.run(
            [*without_aslr(), program, case],
            env=env,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize("program", programs())
def test_all_cases_are_clean_under_asan_and_ubsan(program: str, build: Build) -> None:
    built = build(program, "address,undefined")
    for case in cases(program):
        assert (case, *run(built, case)) == (case, 0, "")


THREADED = {
    "allocations": ["threads_share_a_context", "a_forked_child_starts_anew"],
    "contexts": ["threads_create_and_destroy", "other_threads_notice_a_destroyed_context"],
    "storm": ["random_calls_balance"],
}


@pytest.mark.parametrize("program", THREADED)
def test_threads_are_clean_under_tsan(program: str, build: Build) -> None:
    built = build(program, "thread")
    for case in THREADED[program]:
        assert (case, *run(built, case)) == (case, 0, "")
