"""Several programs call the simulated driver at random, some are killed: accounts balance."""

import random
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.native.driver_programs import DEADLINE_S, compile_program, leftovers, run_case
from tests.simulated import SimulatedNode, simulated_node

pytestmark = pytest.mark.xdist_group("storm")

PROGRAMS = 6
MIB = 1 << 20


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("storm", tmp_path_factory.mktemp("driver"))


def start(storm: Path, node: SimulatedNode, seed: int, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [storm, "random_calls_balance"],
        env={**node.env, "SEED": str(seed), "CROWDED": "1", **env},
        stderr=subprocess.PIPE,
        text=True,
    )


def await_use(node: SimulatedNode, program: subprocess.Popen[str], least_bytes: int) -> None:
    """Until the program holds that much."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert program.poll() is None, "it should run until it is killed"
        held = [
            usage.used_bytes
            for process in node.snapshot().processes
            if process.host_pid == program.pid
            for usage in process.usages
        ]
        if max(held, default=0) >= least_bytes:
            return
    pytest.fail(f"the program never held {least_bytes} bytes")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_accounts_balance_after_a_storm(seed: int, storm: Path) -> None:
    chance = random.Random(seed)
    with simulated_node("1xA100-40G") as node, ExitStack() as running:
        numbers = range(seed * PROGRAMS, (seed + 1) * PROGRAMS)
        survivors = [start(storm, node, number) for number in numbers[::2]]
        victims = [start(storm, node, number, FOREVER="1") for number in numbers[1::2]]
        for program in (*survivors, *victims):
            running.callback(program.wait)
            running.callback(program.kill)
        for victim in victims:
            await_use(node, victim, chance.randrange(500) * MIB)  # its context takes 414 of them
            victim.kill()
        for program in (*survivors, *victims):
            _, complaint = program.communicate(timeout=DEADLINE_S)
            assert complaint == ""
        assert [program.returncode for program in survivors] == [0] * len(survivors)
        assert [program.returncode for program in victims] == [-9] * len(victims)
        snapshot = node.snapshot()
        assert snapshot.processes == ()
        assert snapshot.devices[0].used_bytes == 0
        # The next program finds a whole device, and removes the files that killed ones left.
        done = run_case(storm, "random_calls_balance", {**node.env, "SEED": str(seed)})
        assert (done.returncode, done.stderr) == (0, "")
        assert leftovers(node) == []
