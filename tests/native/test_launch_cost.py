"""A launch with budget costs next to nothing over no shim."""

import shutil

import pytest

from bench.launch_cost import measure


@pytest.mark.slow
def test_a_launch_costs_under_100_instructions_on_average() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    assert measure()["instructions_over"] < 100
