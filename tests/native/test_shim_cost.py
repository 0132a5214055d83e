"""What the shim may cost, in instructions: they do not depend on how busy the machine is."""

import shutil
from collections.abc import Iterator

import pytest

from bench import shim as bench


@pytest.fixture(autouse=True)
def valgrind() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")


@pytest.fixture
def stage() -> Iterator[bench.Stage]:
    with bench.staged(bench.INFO_CAP) as stage:
        yield stage


@pytest.mark.parametrize(("call", "most"), [("alloc", 250), ("info", 60)])
def test_a_call_costs_few_instructions(stage: bench.Stage, call: str, most: int) -> None:
    assert bench.instructions_over(stage, call) <= most
