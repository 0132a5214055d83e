"""A command under `aliquot run` meets its streams, words and exit code as if started directly."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.run_programs import ALIQUOT, DEADLINE_S, ROOT, aliquot, folders, user_environment
from tests.simulated import SimulatedNode, simulated_node


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xL4") as node:
        yield node


@pytest.fixture
def env(node: SimulatedNode, tmp_path: Path) -> dict[str, str]:
    return user_environment(node, tmp_path)


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_commands_exit_code_is_ours(env: dict[str, str], code: int) -> None:
    assert (
        aliquot(env, "run", "--memory", "1Gi", "--", "sh", "-c", f"exit {code}").returncode == code
    )


def test_streams_and_words_reach_the_command_untouched(env: dict[str, str]) -> None:
    script = 'cat; echo "$@"; echo wrong >&2'
    done = aliquot(
        *(env, "run", "--memory", "1Gi", "--", "sh", "-c", script, "sh", "--name", "x y", "--", ""),
        input="line\n",
    )
    assert done.stdout == "line\n--name x y -- \n"
    assert done.stderr == "wrong\n"


def test_an_option_of_the_command_is_not_ours(env: dict[str, str]) -> None:
    done = aliquot(env, "run", "--memory", "1Gi", "echo", "--memory", "--help", "-v")
    assert done.stdout == "--memory --help -v\n"


def test_the_streams_end_is_the_commands_not_ours(env: dict[str, str]) -> None:
    with subprocess.Popen(
        [*ALIQUOT, "run", "--memory", "1Gi", "--", "sh", "-c", "echo hi; exec >&-; read word"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"hi\n"
        assert process.poll() is None
        process.communicate(b"\n", timeout=DEADLINE_S)


def test_inherited_descriptors_are_the_commands(env: dict[str, str]) -> None:
    reading, writing = os.pipe()
    script = f"echo through >/dev/fd/{writing}"
    done = aliquot(env, "run", "--memory", "1Gi", "--", "sh", "-c", script, pass_fds=(writing,))
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"through\n"
    assert done.returncode == 0


def test_nothing_of_ours_is_open_in_the_command(env: dict[str, str]) -> None:
    done = aliquot(env, "run", "--memory", "1Gi", "--", "ls", "/proc/self/fd")
    assert done.stdout.split() == ["0", "1", "2", "3"]  # the last is the listing itself


def test_an_existing_preload_stays_behind_ours(env: dict[str, str]) -> None:
    env["LD_PRELOAD"] = "libm.so.6"
    done = aliquot(env, "run", "--memory", "1Gi", "--", "sh", "-c", "echo $LD_PRELOAD")
    assert done.stdout == f"{ROOT / 'shim' / 'libaliquot.so'}:libm.so.6\n"


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_start_fails_as_in_a_shell(
    env: dict[str, str], program: str, code: int
) -> None:
    done = aliquot(env, "run", "--memory", "1Gi", "--", program)
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert program in done.stderr
    assert folders(env) == []


def test_starting_imports_nothing_heavy(env: dict[str, str]) -> None:
    """Start-up stays short by what is not loaded; the clock of a busy machine proves nothing."""
    script = (
        "import sys, aliquot.cli;"
        "code = aliquot.cli.main(['run', '--memory', 'x', '--', 'true']);"
        "print(code, *({'rich', 'msgspec', 'numpy', 'asyncio', 'uuid', 'ssl'} & set(sys.modules)))"
    )
    # Without site packages' own start-up code, which is not ours.
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], env=env, capture_output=True, text=True
    )
    assert done.stdout == "2\n", done.stderr
