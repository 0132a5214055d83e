"""An account for the length of a test, and the C programs that book in it."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from shim import limits as limits_file
from shim import usage as usage_file
from shim.limits import DeviceLimits, Kind, Limits

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "shim"
PROGRAMS = Path(__file__).parent / "account"
SOURCES = (
    *("account", "account_files", "forks", "ledger", "limits", "liveness"),
    *("say", "sigbus", "slots", "usage"),
)
CODE = 65521
"""Words of the usage file say 65521 v + 1."""

HEADER_BYTES = 64
COUNTERS_BYTES = 64

DEADLINE_S = 120
"""For what takes milliseconds, on a machine that is busy with something else."""

CAP = 1_000_003
"""A prime, so that nothing comes out even by accident."""

GIB = 1 << 30
NO_CAP_SHOWN = (1 << 64) - 1


def compile_program(name: str, folder: Path, *flags: str, compiler: str = "cc") -> Path:
    """account/NAME.c with the account's sources in it."""
    program = folder / name
    subprocess.run(
        [
            *(compiler, "-std=gnu11", "-O1", "-g", "-pthread", *flags),
            *("-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{SHIM / 'include'}"),
            *(PROGRAMS / f"{name}.c", *(SHIM / "src" / f"{source}.c" for source in SOURCES)),
            *("-o", program),
        ],
        check=True,
        cwd=ROOT,
    )
    return program


def gpu_uuid(number: int) -> str:
    return f"GPU-{number:08x}-1111-2222-3333-444444444444"


def some_limits(*caps: int | None) -> Limits:
    """Limits for as many GPUs as there are caps."""
    return Limits(tuple(DeviceLimits(gpu_uuid(i), cap) for i, cap in enumerate(caps)))


@dataclass(frozen=True, slots=True)
class Account:
    """The four files of a run."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, *caps: int | None) -> Self:
        account = cls(folder)
        for kind in Kind:
            account.limits(kind).parent.mkdir(parents=True)
            limits_file.create(account.limits(kind), kind, some_limits(*caps))
            usage_file.create(account.usage(kind), kind, len(caps))
        return account

    def limits(self, kind: Kind = Kind.MEMORY) -> Path:
        return self.folder / kind.name.lower() / "limits"

    def usage(self, kind: Kind = Kind.MEMORY) -> Path:
        return self.folder / kind.name.lower() / "usage"

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "ALIQUOT_RUN": str(self.folder)}

    def resize(self, *caps: int | None) -> None:
        limits_file.update(self.limits(), some_limits(*caps))

    def read(self) -> usage_file.Usage:
        return usage_file.read(self.usage(), Kind.MEMORY)


class Client:
    """A process of the account that does as it is told."""

    def __init__(
        self, program: Path, env: dict[str, str], *prefix: str, cwd: Path | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [*prefix, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            text=True,
            cwd=cwd,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def say(self, *words: object) -> str:
        """Sends one line and waits for its answer."""
        self.order(*words)
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, f"the client ended with {self._process.wait()} on {words}"
        return answer.rstrip("\n")

    def ask(self, *words: object) -> int:
        return int(self.say(*words))

    def reserve(self, bytes_: int, device: int = 0) -> bool:
        return self.ask("reserve", device, bytes_) == 1

    def release(self, bytes_: int, device: int = 0) -> None:
        self.ask("release", device, bytes_)

    def used(self, device: int = 0) -> int:
        return self.ask("used", device)

    def kill(self) -> None:
        """SIGKILL, and gone for good when this returns."""
        self._process.kill()
        self.leave()

    def leave(self) -> str:
        """Ends as a program ends by itself; answers what it said on standard error."""
        _, said = self._process.communicate(timeout=DEADLINE_S)
        return said

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.communicate(timeout=DEADLINE_S)


def run_program(program: Path, account: Account, *arguments: object, **env: str) -> str:
    """What the program prints; a check that failed in it fails the test with its text."""
    done = subprocess.run(
        [program, *map(str, arguments)],
        env={**account.env, **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    text = f"{program.name} {' '.join(map(str, arguments))}: {done.returncode}\n{done.stderr}"
    assert done.returncode == 0, text
    return done.stdout


def write_at(path: Path, offset: int, data: bytes) -> None:
    """Writes into the file as it lies, as damage does."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, data, offset)
    finally:
        os.close(descriptor)


def owner_at(slot: int) -> int:
    return HEADER_BYTES + COUNTERS_BYTES + 8 * slot


def word_at(slot: int) -> int:
    return HEADER_BYTES + COUNTERS_BYTES + 8 * 1024 + 8 * slot
