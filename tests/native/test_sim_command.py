"""`aliquot sim` as a user types it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simgpu.node import LIBRARIES, Node
from tests.native.core_programs import DEADLINE_S, Client, compile_program
from tests.simulated import SimulatedNode, simulated_node

SIM = (sys.executable, "-m", "aliquot.cli", "sim")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("client", tmp_path_factory.mktemp("core"))


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("2xA100-80G") as node:
        yield node


def sim(*words: object, env: dict[str, str] | None = None, code: int = 0) -> str:
    """What the command prints, or says on standard error if it is to fail."""
    done = subprocess.run(
        [*SIM, *map(str, words)],
        env=env or dict(os.environ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


# --- run -----------------------------------------------------------------------------------------


def test_run_gives_a_command_gpus_of_its_own(program: Path) -> None:
    show = f'[ "${{LD_LIBRARY_PATH%%:*}}" = "{LIBRARIES}" ] && echo "$ALIQUOT_SIM_STATE" && "$0"'
    path, greeting = sim("run", "--gpus", "2xL4", "--", "sh", "-c", show, program).split()
    assert greeting == "ready"
    assert not Path(path).exists(), "the node goes with the command"


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -TERM $$", 143), ("true", 0)])
def test_run_passes_on_the_exit_code(script: str, code: int) -> None:
    assert sim("run", "--", "sh", "-c", script, code=code) == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_run_passes_on_signals(number: signal.Signals) -> None:
    script = (
        f"trap 'echo caught; exit 3' {number.name[3:]}; echo ready; while :; do sleep 0.1; done"
    )
    with subprocess.Popen(
        [*SIM, "run", "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(number)
        assert running.communicate(timeout=DEADLINE_S) == ("caught\n", None)
        assert running.returncode == 3


def test_a_signal_before_the_command_runs_is_not_lost() -> None:
    script = (
        "import os, signal, sys\nfrom simgpu.child import relayed_signals\n"
        "with relayed_signals() as relay:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    sys.exit(relay.run(['sleep', '600'], os.environ))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=DEADLINE_S)
    assert done.returncode == 128 + signal.SIGTERM


def test_run_is_no_victim_of_ctrl_c() -> None:
    """The terminal sends it to the command as well, whose answer counts."""
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen(
        [*SIM, "run", "--", "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        os.killpg(running.pid, signal.SIGINT)
        assert running.communicate(timeout=DEADLINE_S)[0] == "caught\n"
        assert running.returncode == 5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run"], "no command to run; write it after --"),
        (["run", "--", "no-such-program"], "no command `no-such-program`"),
        (["run", "--gpus", "2xZ9", "--", "true"], "no GPU model `Z9`"),
        (["fault", "first", "lost"], "write gpu0"),
        (["status", "--state", "/nonexistent"], "/nonexistent cannot be opened"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words: list[str], says: str) -> None:
    said = sim(*words, code=2)
    assert says in said
    assert said.count("\n") == 1


# --- env -----------------------------------------------------------------------------------------


def test_env_is_for_a_shell(program: Path, tmp_path: Path) -> None:
    """The path has a space in it, which a shell would split."""
    path = tmp_path / "a node"
    script = 'eval "$("$@")" && echo "$LD_LIBRARY_PATH" && exec "$CLIENT"'
    shown = subprocess.run(
        ["sh", "-c", script, "sh", *SIM, "env", "--gpus", "3xL4", "--state", path],
        env={**os.environ, "LD_LIBRARY_PATH": "/mine", "CLIENT": str(program)},
        cwd=ROOT,
        input="",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert shown.stdout == f"{LIBRARIES}:/mine\nready\n", shown.stderr
    with Node.open(path) as node:
        assert node.gpus == 3


def test_env_keeps_a_node_that_is_there(node: SimulatedNode) -> None:
    node.inject(0, "xid=13")
    assert str(node.path) in sim("env", "--state", node.path)
    with Node.open(node.path) as again:
        assert again.snapshot().devices[0].xid_count == 1


def test_env_does_not_take_a_node_from_under_its_users(node: SimulatedNode, program: Path) -> None:
    with Client(program, node.env) as client:
        client.ask("reserve", 0, 1)
        said = sim("env", "--gpus", "1xL4", "--state", node.path, code=2)
        assert f"in use by {client.pid}" in said
    sim("env", "--gpus", "1xL4", "--state", node.path)


# --- status and fault ----------------------------------------------------------------------------


def test_status_shows_what_is_there(node: SimulatedNode, program: Path) -> None:
    with Client(program, node.env) as client:
        client.ask("reserve", 1, 512 << 20)
        client.ask("launch", 1)
        client.ask("wait", 1, client.submit(1, 0, 12_345_678))
        table = sim("status", env=node.env)
        status = json.loads(sim("status", "-o", "json", env=node.env))
    rows = [line.split() for line in table.splitlines()]
    assert ["gpu0", "NVIDIA", "A100-SXM4-80GB", "0", "MiB", "/", "81920", "MiB"] in [
        row[:8] for row in rows
    ]
    mine = ["gpu1", "512", "MiB", "0.012345678", "s", "0.000000000", "s", "1", str(program)[-63:]]
    assert [str(client.pid), *mine] in rows
    assert status["devices"][1]["busy_ns"] == 12_345_678
    (process,) = status["processes"]
    assert process["host_pid"] == client.pid
    assert process["usages"][1]["used_bytes"] == 512 << 20
    assert sum(d["busy_ns"] + d["idle_ns"] for d in status["devices"]) > 0


def test_fault_breaks_a_gpu_and_clear_mends_it(node: SimulatedNode) -> None:
    sim("fault", "gpu1", "xid=79", env=node.env)
    assert [device.lost for device in node.snapshot().devices] == [False, True]
    assert "lost" in sim("status", env=node.env)
    sim("fault", "1", "clear", "xid=63", "--state", node.path)
    assert [device.last_xid for device in node.snapshot().devices] == [None, 63]
    assert "no gpu2" in sim("fault", "gpu2", "lost", env=node.env, code=2)


def test_models_lists_what_can_be_asked_for() -> None:
    listed = sim("models")
    assert "A100-80G" in listed
    assert "NVIDIA H100 80GB HBM3" in listed
