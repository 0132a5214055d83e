"""Threads that share streams, events and graphs, under the thread sanitizer."""

from pathlib import Path

import pytest

from tests.native.core_programs import need_compiler
from tests.native.driver_programs import (
    cases,
    compile_program,
    sanitized_libraries,
    sanitizer_flags,
)
from tests.native.test_driver_sanitizers import run

# The worker that builds the driver with sanitizers for others builds it for these.
pytestmark = [pytest.mark.xdist_group("driver-sanitizers"), pytest.mark.timeout(600)]


def test_threads_are_clean_under_tsan(tmp_path: Path) -> None:
    need_compiler("gcc")
    libraries = sanitized_libraries("thread")
    built = compile_program(
        "threads",
        tmp_path,
        f"-Wl,-rpath,{libraries}",
        *sanitizer_flags("thread"),
        compiler="gcc",
        libraries=libraries,
    )
    for case in cases("threads"):
        assert (case, *run(built, case)) == (case, 0, "")
