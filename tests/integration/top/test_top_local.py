"""`aliquot top` on a machine without agent and cluster: the runs of `aliquot run`, as they are."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bench.top_worker
from aliquot.protocol import view
from aliquot.protocol.view import ClusterView, SliceView
from tests.patience import PATIENCE_S, eventually
from tests.simulated import simulated_node

ROOT = Path(__file__).parents[3]
GIB, MIB = 1 << 30, 1 << 20
MEMORY_MIB = 1024
# Whatever listens on the agent's port of the machine that runs the tests is none of ours.
TOP = """
import sys
from aliquot.cli import main
from aliquot.top import source
source.AGENT = "http://127.0.0.1:9"
sys.exit(main(["top", *sys.argv[1:]]))
"""

Top = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., None]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    with simulated_node("2xA100-80G") as node:
        tmp_path.chmod(0o700)
        kept = {name: text for name, text in node.env.items() if not name.startswith("KUBE")}
        yield {
            **kept,
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": str(tmp_path),
            "HOME": str(tmp_path),
            "COLUMNS": "100",
        }


@pytest.fixture
def top(environment: dict[str, str]) -> Top:
    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", TOP, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
        )

    return ask


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(name: str, *caps: str) -> None:
        command = ["run", f"--name={name}", *caps, "--", sys.executable]
        worker = [bench.top_worker.__file__, str(MEMORY_MIB), "20", "0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "aliquot.cli", *command, *worker],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"

    yield run
    for process in started:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(PATIENCE_S)


def runs(top: Top, *words: str) -> dict[str, tuple[int, SliceView]]:
    """By name, with the number of the GPU."""
    done = top("-o", "json", *words)
    assert done.returncode == 0, done.stderr
    told = view.decode(done.stdout.encode(), ClusterView)
    return {
        each.pod: (gpu.index, each)
        for node in told.nodes
        for gpu in node.gpus
        for each in gpu.slices
    }


def test_runs_are_shown_with_what_they_hold_and_do(top: Top, start: Start) -> None:
    start("train", "--memory=4Gi", "--compute=30", "--gpu=0")
    start("other", "--memory=2Gi", "--compute=20", "--policy=fixed", "--gpu=1")

    def working() -> dict[str, tuple[int, SliceView]] | None:
        found = runs(top)
        busy = [each.compute_used_percent or 0 for _, each in found.values()]
        return found if len(found) == 2 and min(busy) > 1 else None

    found = eventually(working)
    gpu, train = found["train"]
    assert (gpu, train.namespace, train.policy) == (0, "", "burst")
    assert (train.memory_limit_bytes, train.compute_percent) == (4 * GIB, 30.0)
    assert MEMORY_MIB * MIB <= (train.memory_used_bytes or 0) <= 4 * GIB
    assert "top_worker.py" in train.container
    assert found["other"][0] == 1
    assert list(runs(top, "--gpu", "1")) == ["other"]

    shown = top().stdout
    assert [line for line in shown.splitlines() if line.startswith("GPU 1 A100")]
    assert [line for line in shown.splitlines() if line.startswith("  train ") and "/4Gi" in line]
    assert ": 2 GPUs, 2 runs" in shown


def test_without_runs_the_gpus_are_shown(top: Top) -> None:
    done = top()
    assert done.returncode == 0, done.stderr
    assert ": 2 GPUs, 0 containers" in done.stdout
