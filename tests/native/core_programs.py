"""Builds the C programs that exercise the simulator's core, and talks to its client."""

import contextlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.simulated import SimulatedNode

ROOT = Path(__file__).parents[2]
CORE = ROOT / "simgpu" / "src" / "core"
PROGRAMS = Path(__file__).parent / "sim_core"
DEADLINE_S = 120
"""For what takes milliseconds, on a machine that is busy with something else."""


def compile_program(name: str, folder: Path, *flags: str, compiler: str = "cc") -> Path:
    """sim_core/NAME.c with the core in it; with `-DTEST_CLOCK` on a clock that the test moves."""
    clock = PROGRAMS / "test_clock.c" if "-DTEST_CLOCK" in flags else CORE / "clock.c"
    core = [source for source in sorted(CORE.glob("*.c")) if source.name != "clock.c"]
    program = folder / name
    subprocess.run(
        [
            *(compiler, "-std=gnu11", "-O1", "-g", "-pthread", *flags),
            *("-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{CORE}", f"-I{PROGRAMS}"),
            *(PROGRAMS / f"{name}.c", *core, clock, "-o", program),
        ],
        check=True,
        cwd=ROOT,
    )
    return program


def need_compiler(compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")


def run_program(
    program: Path, node: SimulatedNode, *arguments: str, prefix: Sequence[str] = (), **env: str
) -> str:
    """What the program prints; a check that failed in it fails the test with its text."""
    done = subprocess.run(
        [*prefix, program, *arguments],
        env={**node.env, **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"{program.name} {' '.join(arguments)}\n{done.stderr}"
    return done.stdout


class Client:
    """A process of the node that does as it is told."""

    def __init__(self, program: Path, env: dict[str, str], *prefix: str) -> None:
        self._process = subprocess.Popen(
            [*prefix, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )
        assert self._process.stdout is not None
        self.greeting = self._process.stdout.readline().rstrip("\n")

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, *words: object) -> str:
        """Sends one line and waits for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the client ended with {self._process.wait()} on {words}"
        return answer.rstrip("\n")

    def ask(self, *words: object) -> int:
        return int(self.say(*words))

    def submit(self, device: int, not_before: int, duration_ns: int) -> int:
        return self.ask("submit", device, not_before, duration_ns)

    def kill(self) -> None:
        """SIGKILL, and gone for good when this returns."""
        self._process.kill()
        self._process.wait(timeout=DEADLINE_S)
        self._close_pipes()

    def leave(self) -> int:
        """Ends as a program ends by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(timeout=DEADLINE_S)
        self._close_pipes()
        return code

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # What a dead reader left unread must not hide why it died.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(timeout=DEADLINE_S)
        self._close_pipes()


def is_permitted(*command: str) -> bool:
    """Whether a command that needs privileges works here."""
    try:
        return subprocess.run(command, capture_output=True, timeout=DEADLINE_S).returncode == 0
    except FileNotFoundError:
        return False


def without_aslr() -> tuple[str, ...]:
    """Older TSan runtimes do not start where the kernel spreads mappings widely."""
    command = ("setarch", "-R")
    return command if is_permitted(*command, "true") else ()
