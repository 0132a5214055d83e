"""The runs of this user: one folder each, with the limits, the account, and who takes part."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aliquot.arbitration import Member
from aliquot.run.gpus import Gpu
from shim import limits, usage
from shim.limits import WHOLE, DeviceLimits, Kind, Limits, Policy

__all__ = [
    "RUN_VARIABLE",
    "WHOLE_GPU",
    "Command",
    "Compute",
    "Membership",
    "Run",
    "create",
    "living_runs",
    "locked",
    "members",
]

RUN_VARIABLE = "ALIQUOT_RUN"
"""Tells the shim the folder of its run."""

READS, READ_AGAIN_S = 10, 0.005
"""How often an environment is read that seems to be empty."""


@dataclass(frozen=True, slots=True)
class Compute:
    """How much of each GPU's time a run may use."""

    share: int
    """In hundredths of a percent."""
    policy: Policy
    weight: int = 1


WHOLE_GPU = Compute(WHOLE, Policy.FIXED)


@dataclass(frozen=True, slots=True)
class Command:
    """A command that takes part in a run."""

    pid: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A share of one or more GPUs; its folder's name is its id."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    def file(self, kind: Kind, name: str) -> Path:
        return self.folder / kind.name.lower() / name

    def gpu_indices(self) -> dict[str, int]:
        """NVML's number of each GPU, by uuid."""
        return dict(json.loads((self.folder / "gpus.json").read_text()))

    def limits(self, kind: Kind = Kind.MEMORY) -> Limits:
        return limits.read(self.file(kind, "limits"), kind)

    def usage(self, kind: Kind = Kind.MEMORY) -> usage.Usage:
        return usage.read(self.file(kind, "usage"), kind)

    def change(self, changed: Limits) -> None:
        """Publishes new limits in both halves; running processes see them at once."""
        for kind in Kind:
            limits.update(self.file(kind, "limits"), changed)

    def commands(self) -> list[Command]:
        """The commands whose `aliquot run` is still there."""
        found = []
        for path in sorted(self.folder.glob("commands/*")):
            if not _is_locked(path):
                continue
            try:
                record = json.loads(path.read_text())
            except (OSError, ValueError):
                continue  # just being started, or just ended
            found.append(Command(record["pid"], tuple(record["command"])))
        return found

    def has_members(self) -> bool:
        """Whether anything of the run lives: a wrapper, a process with its account, or an heir."""
        return (
            any(_is_locked(path) for path in self.folder.glob("commands/*"))
            or self._has_account_holders()
            or str(self.folder) in _folders_in_environments()
        )

    def _has_account_holders(self) -> bool:
        try:
            return any(not process.is_gone() for process in self.usage().processes if process.pid)
        except (OSError, usage.UsageError):
            return False  # never finished, or taken apart: nobody can be using it


class Membership:
    """A wrapper's place in a run, held by a lock that ends with the wrapper, however it ends."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._path = run.folder / "commands" / str(os.getpid())
        self._file = self._path.open("wb")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def announce(self, pid: int, command: Sequence[str]) -> None:
        self._file.write(json.dumps({"pid": pid, "command": list(command)}).encode())
        self._file.flush()

    def leave(self) -> None:
        """Clears the run away if nothing of it is left; else whoever looks later does."""
        with locked(self.run.folder.parent):
            self._path.unlink(missing_ok=True)
            self._file.close()
            if not self.run.has_members():
                shutil.rmtree(self.run.folder, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One at a time makes, joins or clears away runs. A killed owner's lock ends with it."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def create(
    folder: Path, name: str | None, caps: Sequence[tuple[Gpu, int]], compute: Compute = WHOLE_GPU
) -> Run:
    """A new run with a cap in bytes for each GPU. The caller holds the folder's lock."""
    run = Run(folder / (name or f"run-{os.urandom(3).hex()}"))
    run.folder.mkdir(mode=0o700)
    (run.folder / "commands").mkdir()
    (run.folder / "gpus.json").write_text(json.dumps({gpu.uuid: gpu.index for gpu, _ in caps}))
    granted = Limits(
        tuple(DeviceLimits(gpu.uuid, cap, compute.share) for gpu, cap in caps),
        compute.policy,
        compute.weight,
    )
    for kind in Kind:
        run.file(kind, "limits").parent.mkdir()
        usage.create(run.file(kind, "usage"), kind, len(caps), mode=0o600)
        limits.create(run.file(kind, "limits"), kind, granted, mode=0o600)
    return run


def living_runs(folder: Path) -> list[Run]:
    """All runs in which something lives; the remains of others are cleared away.

    The caller holds the folder's lock: a run that is just being made has no members yet.
    """
    found = []
    for entry in sorted(folder.iterdir()):
        if not entry.is_dir():
            continue
        run = Run(entry)
        if run.has_members():
            found.append(run)
        else:
            shutil.rmtree(entry, ignore_errors=True)
    return found


def members(folder: Path) -> list[Member]:
    """All runs, as the arbiter sees them; one that is being made or cleared away is left out."""
    found = []
    for entry in os.scandir(folder):
        try:
            if not entry.is_dir():
                continue
            status = entry.stat()
            gpus = _gpus_of(Path(entry.path), status.st_ino, status.st_ctime_ns)
        except (OSError, ValueError):
            continue
        found.append(Member.of_run(entry.name, Path(entry.path), gpus))
    return found


@lru_cache(maxsize=256)
def _gpus_of(folder: Path, inode: int, changed_ns: int) -> tuple[str, ...]:
    """Read once per run, because the arbiter asks several times a second."""
    return tuple(Run(folder).gpu_indices())


def _is_locked(path: Path) -> bool:
    """Whether a living wrapper holds this file."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def _folders_in_environments() -> set[str]:
    """The runs that any of our processes was started in: children outlive the command."""
    prefix = f"{RUN_VARIABLE}=".encode()
    found = set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        variables = _environment(Path(entry.path)).split(b"\0")
        found |= {os.fsdecode(v[len(prefix) :]) for v in variables if v.startswith(prefix)}
    return found


def _environment(process: Path) -> bytes:
    """Empty for another user's process, and for one that is already gone."""
    for _ in range(READS):
        try:
            if content := (process / "environ").read_bytes():
                return content
            # Who is just becoming another program has none for a moment. The kernel's own never
            # have one, nor a program.
            (process / "exe").readlink()
        except OSError:
            break
        time.sleep(READ_AGAIN_S)
    return b""
