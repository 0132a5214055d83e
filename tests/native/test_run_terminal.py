"""A command under `aliquot run` meets its terminal and its signals as if started directly."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.native.run_programs import user_environment
from tests.simulated import SimulatedNode, simulated_node

FOLDER = Path(__file__).parent / "terminal"
LISTENER = [sys.executable, str(FOLDER / "listener.py")]
ALIQUOT = [sys.executable, "-m", "aliquot.cli", "run", "--memory", "1Gi", "--"]
DEADLINE_S = 120

DIRECTLY: list[str] = []


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xL4") as node:
        yield node


@pytest.fixture
def env(node: SimulatedNode, tmp_path: Path) -> dict[str, str]:
    return user_environment(node, tmp_path)


class Session:
    """A terminal with a shell in it that runs one command."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._terminal, theirs = pty.openpty()
        self._said, say = os.pipe()
        listen, self._tell = os.pipe()
        # The shell's descriptors are 3 and 4, whatever ours are.
        script = 'exec 3>&"$1" 4<&"$2"; shift 2; exec "$@"'
        shell = [sys.executable, str(FOLDER / "shell.py")]
        self._shell = subprocess.Popen(
            ["bash", "-c", script, "bash", str(say), str(listen), *shell, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env,
            start_new_session=True,
            pass_fds=(say, listen),
        )
        for descriptor in (theirs, say, listen):
            os.close(descriptor)
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        # Once reaped, the shell's pid may be anybody's.
        if self._shell.poll() is None:
            for group in self._groups():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
        self._shell.wait(timeout=DEADLINE_S)
        for descriptor in (self._terminal, self._said, self._tell):
            os.close(descriptor)

    def _groups(self) -> list[int]:
        groups = [self._shell.pid]
        with contextlib.suppress(OSError):
            groups.append(os.tcgetpgrp(self._terminal))
        # A terminal whose session has ended answers 0, and to killpg that is our own group.
        return [group for group in groups if group > 1]

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def resize(self, rows: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, 80, 0, 0))

    def expect(self, text: str) -> str:
        """Waits until the terminal shows the text; answers what was shown up to its line's end."""
        end = time.monotonic() + DEADLINE_S
        while text not in self._shown or "\n" not in self._shown.partition(text)[2]:
            left = end - time.monotonic()
            ready, _, _ = select.select([self._terminal], [], [], max(left, 0))
            assert ready, f"{text!r} never came, only {self._shown!r}"
            self._shown += os.read(self._terminal, 4096).decode().replace("\r", "")
        before, _, after = self._shown.partition(text)
        line, _, self._shown = after.partition("\n")
        return before + text + line

    def shell_says(self) -> str:
        ready, _, _ = select.select([self._said], [], [], DEADLINE_S)
        assert ready, f"the shell says nothing; the terminal shows {self._shown!r}"
        return os.read(self._said, 64).decode().strip()

    def continue_job(self) -> None:
        os.write(self._tell, b"fg\n")


both_ways = pytest.mark.parametrize("prefix", [DIRECTLY, ALIQUOT], ids=["directly", "aliquot"])


@both_ways
def test_ctrl_c_and_ctrl_backslash_arrive_once(prefix: list[str], env: dict[str, str]) -> None:
    with Session([*prefix, *LISTENER], env) as session:
        session.expect("ready")
        session.type("\x03")
        session.expect("got 2")
        session.type("\x1c")
        session.expect("got 3")
        session.type("quit\n")
        assert session.expect("counts").endswith("counts 2=1 3=1")
        assert session.shell_says() == "exited 5"


@both_ways
def test_the_windows_size_is_told_once(prefix: list[str], env: dict[str, str]) -> None:
    with Session([*prefix, *LISTENER], env) as session:
        session.expect("ready")
        session.resize(50)
        session.expect("got 28")
        session.type("\x03")
        session.expect("got 2")
        session.type("quit\n")
        session.expect("28=1")
        assert session.shell_says() == "exited 5"


@both_ways
def test_ctrl_z_stops_and_fg_continues(prefix: list[str], env: dict[str, str]) -> None:
    with Session([*prefix, *LISTENER], env) as session:
        session.expect("ready")
        for word in ("one", "two"):
            session.type("\x1a")
            assert session.shell_says().startswith("stopped")
            session.continue_job()
            session.expect("got 18")
            session.type(f"{word}\n")
            session.expect(f"heard {word}")
        session.type("quit\n")
        session.expect("counts 18=2")
        assert session.shell_says() == "exited 5"


def test_the_wrapper_alone_continued_continues_the_command(env: dict[str, str]) -> None:
    with Session([*ALIQUOT, *LISTENER], env) as session:
        wrapper = int(session.expect("ready").split()[-1])
        session.type("\x1a")
        assert session.shell_says().startswith("stopped")
        os.kill(wrapper, signal.SIGCONT)
        session.expect("got 18")


def test_a_stop_at_once_after_a_continue_holds(env: dict[str, str]) -> None:
    with Session([*ALIQUOT, *LISTENER], env) as session:
        session.expect("ready")
        for _ in range(10):
            session.type("\x1a")
            assert session.shell_says().startswith("stopped")
            session.continue_job()
            session.expect("got 18")


@both_ways
def test_the_terminal_is_the_commands_to_read(prefix: list[str], env: dict[str, str]) -> None:
    with Session([*prefix, "sh", "-c", "tty; read line; echo heard $line"], env) as session:
        session.expect("/dev/pts/")
        session.type("hello\n")
        session.expect("heard hello")
        assert session.shell_says() == "exited 0"


def test_a_command_that_ctrl_c_ends_is_told_as_shells_tell_it(env: dict[str, str]) -> None:
    with Session([*ALIQUOT, "sh", "-c", "echo ready; exec cat"], env) as session:
        session.expect("ready")
        session.type("\x03")
        assert session.shell_says() == f"exited {128 + signal.SIGINT}"


# --- signals without a terminal ----------------------------------------------------------------


class Listener:
    """The listener under `aliquot run`, told by pipes."""

    def __init__(self, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [*ALIQUOT, *LISTENER],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        _, pid, parent = self.hear().split()
        self.pid = int(pid)
        assert int(parent) == self.process.pid

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize(
    "number",
    [
        *(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2),
        *(signal.SIGQUIT, signal.SIGRTMIN + 3),
    ],
)
def test_a_signal_for_the_wrapper_reaches_the_command_once(
    env: dict[str, str], number: int
) -> None:
    with Listener(env) as listener:
        listener.process.send_signal(number)
        assert listener.hear() == f"got {int(number)}"
        listener.tell("quit")
        assert listener.hear() == f"counts {int(number)}=1"
        assert listener.process.wait(timeout=DEADLINE_S) == 5


def test_what_the_command_sends_to_its_group_does_not_come_back(env: dict[str, str]) -> None:
    """In a session of its own, because the group is everybody's."""
    with Listener(env | {"PYTHONUNBUFFERED": "1"}) as listener:
        assert os.getpgid(listener.pid) == os.getpgid(listener.process.pid)
    done = subprocess.run(
        [*ALIQUOT, *LISTENER],
        env=env,
        input="signal-group\nquit\n",
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=DEADLINE_S,
    )
    assert done.stdout.splitlines()[-1] == f"counts {int(signal.SIGUSR1)}=1"
    assert done.returncode == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_a_signal_that_ends_the_command_is_in_the_exit_code(
    env: dict[str, str], number: signal.Signals
) -> None:
    done = subprocess.run(
        [*ALIQUOT, "sh", "-c", f"kill -{int(number)} $$"], env=env, timeout=DEADLINE_S
    )
    assert done.returncode == 128 + number


def test_signals_are_blocked_and_ignored_as_they_were(env: dict[str, str]) -> None:
    show = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
    # 32 and 33 are glibc's own; posix_spawn leaves them ignored, and nobody else may use them.
    own = 1 << 31 | 1 << 32
    masks = [
        {
            line.split()[0]: int(line.split()[1], 16) & ~own
            for line in subprocess.run(
                [*prefix, *show], env=env, capture_output=True, text=True, timeout=DEADLINE_S
            ).stdout.splitlines()
        }
        for prefix in (DIRECTLY, ALIQUOT)
    ]
    assert len(masks[0]) == 3
    assert masks[0] == masks[1]
