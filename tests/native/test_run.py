"""`aliquot run` and `aliquot ps`: shares of a GPU on one machine, from start to clearing away."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.run import registry
from tests.native.account_programs import Client, compile_program
from tests.native.run_programs import ALIQUOT, DEADLINE_S, aliquot, folders, user_environment
from tests.simulated import SimulatedNode, simulated_node

# One worker compiles the programs, and uses them.
pytestmark = pytest.mark.xdist_group("run")

GIB = 1 << 30


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    with simulated_node("2xA100-80G,1xL4") as node:
        yield node


@pytest.fixture
def env(node: SimulatedNode, tmp_path: Path) -> dict[str, str]:
    return user_environment(node, tmp_path)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A process that books in the account of its run as the shim does."""
    return compile_program("client", tmp_path_factory.mktemp("account"))


def runs(env: dict[str, str]) -> list[dict[str, Any]]:
    done = aliquot(env, "ps", "-o", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def await_that(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


# --- the share ---------------------------------------------------------------------------------


def start_client(program: Path, env: dict[str, str], *options: object) -> Client:
    return Client(program, env, *ALIQUOT, "run", *map(str, options), "--")


def test_a_run_has_its_cap_on_every_gpu(program: Path, env: dict[str, str]) -> None:
    with start_client(program, env, "--memory", "4Gi") as client:
        assert client.ask("devices") == 3
        assert [client.ask("limit", device) for device in range(3)] == [4 * GIB] * 3
        assert not client.reserve(4 * GIB + 1)
        assert client.reserve(4 * GIB)
        client.leave()


def test_a_percentage_is_of_each_gpu(
    program: Path, env: dict[str, str], node: SimulatedNode
) -> None:
    memory = [device.memory_bytes for device in node.snapshot().devices]
    with start_client(program, env, "--memory", "25%") as client:
        assert [client.ask("limit", device) for device in range(3)] == [
            each * 25 // 100 for each in memory
        ]
        client.leave()


def test_gpus_are_chosen_by_number_or_uuid(
    program: Path, env: dict[str, str], node: SimulatedNode
) -> None:
    uuids = [device.uuid for device in node.snapshot().devices]
    wanted = ("--gpu", "2", "--gpu", uuids[1].upper().replace("GPU", "gpu"), "--gpu", "2")
    with start_client(program, env, "--memory", "1Gi", *wanted) as client:
        hexes = [uuid[4:].replace("-", "") for uuid in uuids]
        assert [client.ask("find", each) for each in hexes] == [-1, 0, 1]
        client.leave()


def test_runs_have_accounts_of_their_own(program: Path, env: dict[str, str]) -> None:
    with (
        start_client(program, env, "--memory", "1Gi", "--name", "one") as first,
        start_client(program, env, "--memory", "2Gi", "--name", "two") as second,
    ):
        assert first.reserve(GIB)
        assert second.reserve(2 * GIB)
        used = {run["id"]: run["gpus"][0]["used_bytes"] for run in runs(env)}
        assert used == {"one": GIB, "two": 2 * GIB}
        first.leave()
        second.leave()


@pytest.mark.parametrize("again", [(), ("--memory", "1Gi"), ("--memory", "1024Mi"), ("--gpu", "0")])
def test_a_second_run_of_the_same_name_joins_the_share(
    program: Path, env: dict[str, str], again: tuple[str, ...]
) -> None:
    name = ("--name", "shared")
    with start_client(program, env, "--memory", "1Gi", "--gpu", "0", *name) as first:
        assert first.reserve(GIB - 1)
        with start_client(program, env, *again, *name) as second:
            assert not second.reserve(2)
            assert second.reserve(1)
            (run,) = runs(env)
            assert len(run["commands"]) == 2
            assert run["gpus"][0]["used_bytes"] == GIB
            first.leave()
            assert second.reserve(GIB - 1)
            assert folders(env) == ["shared"]
            second.leave()
    assert folders(env) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--memory", "2Gi"), "the run shared has 1Gi of GPU 0, not 2Gi"),
        (("--gpu", "1"), "the run shared has GPU 0"),
        (("--memory", "1Gi", "--gpu", "1"), "the run shared has GPU 0"),
    ],
)
def test_joining_never_changes_a_share(
    program: Path, env: dict[str, str], options: tuple[str, ...], text: str
) -> None:
    name = ("--name", "shared")
    with start_client(program, env, "--memory", "1Gi", "--gpu", "0", *name) as first:
        assert first.reserve(1)
        done = aliquot(env, "run", *options, *name, "--", "true")
        assert done.returncode == 2
        assert text in done.stderr
        assert done.stderr.count("\n") == 1
        first.leave()


# --- what cannot be asked for ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--memory", "4Gq", "--", "true"), "'4Gq' is not a size"),
        (("--memory", "-1Gi", "--", "true"), ""),
        (("--memory", "1000Gi", "--", "true"), "more than GPU 0 has: 80Gi"),
        (("--memory", "60Gi", "--", "true"), "more than GPU 2 has"),
        (("--memory", "0", "--", "true"), "none at all"),
        (("--memory", "16", "--", "true"), "less than 1Mi; write the unit as well, like 4Gi"),
        (("--memory", "101%", "--", "true"), "more than the whole GPU"),
        (("--memory", "1Gi", "--gpu", "9", "--", "true"), "there is no GPU 9"),
        (("--memory", "1Gi", "--gpu", "GPU-1", "--", "true"), "there is no GPU GPU-1"),
        (("--memory", "1Gi"), "no command"),
        (("--memory", "1Gi", "--"), "no command"),
        (("--", "true"), "--memory"),
        (("--name", "nobody", "--", "true"), "there is no run nobody"),
        (("--name", "../x", "--memory", "1Gi", "--", "true"), "no name for a run"),
        (("--name", "", "--memory", "1Gi", "--", "true"), "no name for a run"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line_and_exit_code_2(
    env: dict[str, str], options: tuple[str, ...], text: str
) -> None:
    done = aliquot(env, "run", *options)
    assert done.returncode == 2
    assert text in done.stderr
    if text:  # argparse takes -1Gi for an option, and says so in its own way
        assert done.stderr.count("\n") == 1
    assert folders(env) == []


def test_no_driver_is_one_line_and_exit_code_2(env: dict[str, str], tmp_path: Path) -> None:
    """A file that is no library stands before whatever driver this machine may have."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    env["LD_LIBRARY_PATH"] = str(tmp_path)
    done = aliquot(env, "run", "--memory", "1Gi", "--", "true")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no NVIDIA driver" in done.stderr


def test_a_run_is_not_divided_again(env: dict[str, str]) -> None:
    inner = (*ALIQUOT, "run", "--memory", "1Gi", "--", "true")
    done = aliquot(env, "run", "--memory", "2Gi", "--name", "outer", "--", *inner)
    assert done.returncode == 2
    assert done.stderr == "aliquot: already inside the run outer, which cannot be divided again\n"


def make_link(folder: Path) -> None:
    (folder / "elsewhere").mkdir(mode=0o700)
    (folder / "aliquot").symlink_to("elsewhere")


def make_open(folder: Path) -> None:
    (folder / "aliquot").mkdir()
    (folder / "aliquot").chmod(0o755)


@pytest.mark.parametrize("prepare", [make_link, make_open])
def test_a_folder_that_others_could_have_prepared_is_refused(
    env: dict[str, str], tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    prepare(tmp_path)
    done = aliquot(env, "run", "--memory", "1Gi", "--", "true")
    assert done.returncode == 2
    assert "not a folder of yours alone" in done.stderr


# --- listing and clearing away -----------------------------------------------------------------


def test_ps_lists_what_runs_where(program: Path, env: dict[str, str], node: SimulatedNode) -> None:
    with start_client(program, env, "--memory", "4Gi", "--gpu", "1", "--name", "train") as client:
        assert client.reserve(3 * GIB // 2)
        client.release(GIB // 2)
        assert not client.reserve(4 * GIB)
        (run,) = runs(env)
        (command,) = run["commands"]
        assert run["gpus"] == [
            {
                "index": 1,
                "uuid": node.snapshot().devices[1].uuid,
                "limit_bytes": 4 * GIB,
                "used_bytes": GIB,
                "peak_bytes": 3 * GIB // 2,
                "refused": 1,
                "compute_percent": 100.0,
                "busy_ns": 0,
                "throttled_ns": 0,
                "launches": 0,
            }
        ]
        assert command["command"] == [str(program)]
        assert run["processes"] == [{"pid": command["pid"], "used_bytes": [GIB]}]
        table = aliquot(env, "ps").stdout.splitlines()
        assert table[0].split() == ["RUN", "PID", "GPU", "LIMIT", "USED", "COMPUTE", "COMMAND"]
        share = ["1", "4Gi", "1Gi", "100%"]
        assert table[1].split() == ["train", str(command["pid"]), *share, str(program)]
        client.leave()
    assert aliquot(env, "ps").stdout.splitlines() == [
        "RUN  PID  GPU  LIMIT  USED  COMPUTE  COMMAND"
    ]
    assert folders(env) == []


def test_a_command_of_many_lines_is_one_line_in_the_table(env: dict[str, str]) -> None:
    inside = (*ALIQUOT, "ps")
    script = f"unset ALIQUOT_RUN LD_PRELOAD\n\t{' '.join(inside)}\n"
    done = aliquot(env, "run", "--memory", "1Gi", "--gpu", "0", "--", "sh", "-c", script)
    assert len(done.stdout.splitlines()) == 2
    assert "sh -c 'unset ALIQUOT_RUN" in done.stdout


def test_a_process_that_becomes_another_program_is_never_missed(tmp_path: Path) -> None:
    """It has no environment for a moment, and its run must not be removed in that one."""
    program = tmp_path / "again"
    program.write_text('#!/bin/sh\nexec "$0"\n')
    program.chmod(0o755)
    again = subprocess.Popen([program], env={registry.RUN_VARIABLE: "/a/run"})
    try:
        await_that(lambda: "/a/run" in registry._folders_in_environments(), "it never starts")
        assert all("/a/run" in registry._folders_in_environments() for _ in range(30))
    finally:
        again.kill()
        again.wait()


def test_what_outlives_its_command_keeps_its_run(env: dict[str, str]) -> None:
    """A child in the background, which has not touched the GPU yet, must find its limits later."""
    script = "sleep 1000 >/dev/null 2>&1 & echo $!"
    done = aliquot(env, "run", "--memory", "1Gi", "--name", "left", "--", "sh", "-c", script)
    heir = int(done.stdout)
    try:
        (run,) = runs(env)
        assert (run["id"], run["commands"]) == ("left", [])
        assert "(ended)" in aliquot(env, "ps").stdout
    finally:
        os.kill(heir, signal.SIGKILL)
    await_that(lambda: runs(env) == [], "the run is still listed")
    assert folders(env) == []


def test_a_killed_wrapper_leaves_the_command_its_run(program: Path, env: dict[str, str]) -> None:
    with start_client(program, env, "--memory", "1Gi", "--name", "orphan") as client:
        assert client.reserve(GIB)
        ((command,),) = [run["commands"] for run in runs(env)]
        os.kill(client.pid, signal.SIGKILL)
        await_that(lambda: runs(env)[0]["commands"] == [], "the wrapper does not die")
        assert client.reserve(0)
        assert runs(env)[0]["gpus"][0]["used_bytes"] == GIB
        client.leave()
        await_that(lambda: not Path(f"/proc/{command['pid']}").exists(), "the command does not end")
    await_that(lambda: runs(env) == [], "the run is still listed")
    assert folders(env) == []


def test_eight_runs_start_and_end_at_once(env: dict[str, str]) -> None:
    """All of the same name: whoever comes first makes the share, the last one clears it away."""
    started = [
        subprocess.Popen(
            [*ALIQUOT, "run", "--memory", "1Gi", "--name", "many", "--", "true"],
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    said = [process.communicate(timeout=DEADLINE_S)[1] for process in started]
    assert said == [""] * 8
    assert [process.returncode for process in started] == [0] * 8
    assert folders(env) == []
