"""`aliquot run --compute` and `aliquot resize`: shares as people ask for and change them."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shim import limits
from shim.limits import Kind
from tests.simulated import SimulatedNode, simulated_node

ROOT = Path(__file__).parents[2]
ALIQUOT = (sys.executable, "-m", "aliquot.cli")
DEADLINE_S = 120
GIB = 1 << 30


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xA100-80G") as node:
        yield node


@pytest.fixture
def env(node: SimulatedNode, tmp_path: Path) -> dict[str, str]:
    tmp_path.chmod(0o700)
    return {**node.env, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)}


def aliquot(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ALIQUOT, *words], env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )


@contextmanager
def running(env: dict[str, str], *options: str) -> Iterator[dict[str, Any]]:
    """A run that lives until the block ends, as `aliquot ps` describes it."""
    wrapper = subprocess.Popen(
        [*ALIQUOT, "run", "--name", "train", *options, "--", "cat"], env=env, stdin=subprocess.PIPE
    )
    try:
        end = time.monotonic() + DEADLINE_S
        while not (found := described(env)) or not found[0]["commands"]:
            assert wrapper.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        yield found[0]
    finally:
        wrapper.communicate(timeout=DEADLINE_S)


def described(env: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(aliquot(env, "ps", "-o", "json").stdout)
    return found


def test_a_share_without_memory_has_that_part_of_the_memory(env: dict[str, str]) -> None:
    with running(env, "--compute", "25") as run:
        (gpu,) = run["gpus"]
        assert gpu["compute_percent"] == 25
        assert gpu["limit_bytes"] == 20 * GIB
        assert (run["policy"], run["weight"]) == ("burst", 1)


def test_policy_and_weight_are_kept(env: dict[str, str]) -> None:
    options = ("--memory", "1Gi", "--compute", "12.5", "--policy", "best-effort", "--weight", "7")
    with running(env, *options) as run:
        assert run["gpus"][0]["compute_percent"] == 12.5
        assert (run["policy"], run["weight"]) == ("best-effort", 7)


def test_a_run_is_resized_while_it_runs(env: dict[str, str], tmp_path: Path) -> None:
    with running(env, "--memory", "1Gi", "--compute", "30", "--policy", "fixed"):
        done = aliquot(env, "resize", "train", "--memory", "6Gi", "--compute", "50")
        assert done.returncode == 0, done.stderr
        assert "6Gi of memory and 50% of the time of GPU 0" in done.stdout
        (run,) = described(env)
        (gpu,) = run["gpus"]
        assert (gpu["limit_bytes"], gpu["compute_percent"]) == (6 * GIB, 50)
        assert run["policy"] == "fixed"
        # Both halves say the same, so that either one tells the whole share.
        for kind in Kind:
            path = tmp_path / "aliquot" / "train" / kind.name.lower() / "limits"
            (device,) = limits.read(path, kind).devices
            assert (device.limit_bytes, device.share) == (6 * GIB, 5000)


def test_a_size_without_its_unit_does_not_shrink_a_run_to_nothing(env: dict[str, str]) -> None:
    with running(env, "--memory", "1Gi", "--compute", "30"):
        done = aliquot(env, "resize", "train", "--memory", "16")
        assert done.returncode == 2
        assert "16 is less than 1Mi; write the unit as well, like 4Gi or 512Mi" in done.stderr
        assert described(env)[0]["gpus"][0]["limit_bytes"] == GIB


def test_what_is_not_named_stays(env: dict[str, str]) -> None:
    with running(env, "--memory", "1Gi", "--compute", "30"):
        assert aliquot(env, "resize", "train", "--compute", "40").returncode == 0
        assert aliquot(env, "resize", "train", "--memory", "2Gi").returncode == 0
        (gpu,) = described(env)[0]["gpus"]
        assert (gpu["limit_bytes"], gpu["compute_percent"]) == (2 * GIB, 40)


def test_joining_never_changes_a_compute_share(env: dict[str, str]) -> None:
    with running(env, "--compute", "30"):
        done = aliquot(env, "run", "--name", "train", "--compute", "60", "--", "true")
        assert done.returncode == 2
        assert "has 30% of the GPU's time" in done.stderr


class Talker:
    """A program in a run that makes driver calls as it is told; see cuda_server.py."""

    def __init__(self, env: dict[str, str], *options: str) -> None:
        server = Path(__file__).with_name("cuda_server.py")
        command = [sys.executable, "-S", "-E", str(server), "libcuda.so.1"]
        self.process = subprocess.Popen(
            [*ALIQUOT, "run", "--name", "train", *options, "--", *command],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, name: str, *words: Any) -> list[int]:
        """The result, and what was written."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, words]) + "\n")
        self.process.stdin.flush()
        answer: list[int] = json.loads(self.process.stdout.readline())
        return answer


def test_a_running_process_obeys_and_is_told_what_does_not_fit(env: dict[str, str]) -> None:
    talker = Talker(env, "--memory", "2Gi", "--compute", "30")
    try:
        assert talker.call("cuInit", 0) == [0]
        assert talker.call("cuCtxCreate_v2", "out", 0, 0)[0] == 0
        result, first = talker.call("cuMemAlloc_v2", "out", GIB)
        assert result == 0
        shrunk = aliquot(env, "resize", "train", "--memory", "1Gi")
        assert shrunk.returncode == 0, shrunk.stderr
        assert "allocations are refused until it fits" in shrunk.stdout
        assert talker.call("cuMemAlloc_v2", "out", GIB // 4)[0] == 2
        # What is given back makes room below the new cap.
        assert talker.call("cuMemFree_v2", first) == [0]
        assert talker.call("cuMemAlloc_v2", "out", GIB // 4)[0] == 0
        assert talker.call("cuMemAlloc_v2", "out", GIB)[0] == 2
        grown = aliquot(env, "resize", "train", "--memory", "4Gi")
        assert "refused" not in grown.stdout
        assert talker.call("cuMemAlloc_v2", "out", 2 * GIB)[0] == 0
    finally:
        talker.process.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run", "--compute", "0", "--", "true"), "1 to 100 percent"),
        (("run", "--compute", "101", "--", "true"), "1 to 100 percent"),
        (("run", "--compute", "much", "--", "true"), "not a percentage"),
        (("run", "--memory", "1Gi", "--policy", "fixed", "--", "true"), "--compute"),
        (("run", "--compute", "5", "--weight", "0", "--", "true"), "weight"),
        (("resize", "train"), "nothing to change"),
        (("resize", "train", "--compute", "5"), "there is no run train"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(
    env: dict[str, str], words: tuple[str, ...], text: str
) -> None:
    done = aliquot(env, *words)
    assert done.returncode == 2
    assert text in done.stderr
    assert done.stderr.count("\n") == 1
