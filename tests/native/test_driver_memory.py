"""Memory, copies, contexts and devices of the simulated driver, as a C program sees them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native.driver_programs import cases, compile_program, leftovers, programs, run_case
from tests.simulated import simulated_node

Compile = Callable[[str], Path]

# Each program is built once, by the worker that runs all of its cases.
CASES = [
    pytest.param(program, case, id=f"{program}-{case}", marks=pytest.mark.xdist_group(program))
    for program in programs()
    for case in cases(program)
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    folder = tmp_path_factory.mktemp("driver")
    built: dict[str, Path] = {}

    def compile_once(program: str) -> Path:
        if program not in built:
            built[program] = compile_program(program, folder)
        return built[program]

    return compile_once


@pytest.mark.parametrize(("program", "case"), CASES)
def test_driver(program: str, case: str, compiled: Compile) -> None:
    with simulated_node("2xH100-80G") as node:
        done = run_case(compiled(program), case, node.env)
        assert (done.returncode, done.stderr) == (0, "")
        assert node.snapshot().processes == (), "what the program held is free again"
        assert leftovers(node) == []


@pytest.mark.xdist_group("copies")
def test_a_wrong_answer_fails_its_case(compiled: Compile) -> None:
    """On one GPU too small for them, the checks of a case must not hold."""
    with simulated_node("1xT4") as node:
        done = run_case(
            compiled("copies"), "large_memory_costs_nothing_until_it_is_written", node.env
        )
    assert done.returncode == 1
    assert "CUDA_ERROR_OUT_OF_MEMORY instead of CUDA_SUCCESS" in done.stderr
