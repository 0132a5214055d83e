"""The namespaces that hold a whole cluster: ending the first process in them ends everything.

`python -m tests.e2e.sandbox NAME OPTIONS` is a Python inside of a sandbox, from its making to the
removal of what it leaves; pytest's workers are started so.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.places import CHECKOUT, cache

__all__ = [
    "CGROUPS",
    "ENDS_WITH_US",
    "Sandbox",
    "hierarchies",
    "locked",
    "make_group",
    "remove_group",
    "take_signals_as_exit",
]

CGROUPS = Path("/sys/fs/cgroup")
GROUP_PATIENCE_S = 20.0
HIGHEST_WEIGHT = 10_000
"""That both versions of control groups take."""
ENDS_WITH_US = ("setpriv", "--pdeathsig=KILL", "--")
"""Before a command whose starter may be killed."""
INSIDE = "ALIQUOT_E2E"
"""In the environment of what runs in a sandbox: the sandbox's name."""


class Sandbox:
    """Has the same files and groups whoever uses it, and so one user at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = cache() / "running" / name
        """Disks, logs and certificates of the cluster inside."""
        self.group = f"aliquot-e2e-{name}"

    @classmethod
    def around_us(cls) -> "Sandbox":
        return cls(os.environ[INSIDE])

    @contextlib.contextmanager
    def used(self) -> Iterator[int]:
        """Empty, and nobody else's. Gives the lock's descriptor: what runs inside inherits it, so
        that a cluster whose starter was killed keeps the lock until the last of it is gone."""
        lock = Path(f"/run/{self.group}.lock")
        with locked(lock, f"the test cluster {self.name} to end") as descriptor:
            self.clean_up()
            yield descriptor

    def start(
        self, command: Sequence[str], lock: int, *, outlives_us: bool = False, **options: Any
    ) -> "subprocess.Popen[bytes]":
        """Runs a command as the first process of new namespaces, which end with it or with us."""
        make_group(self.group)
        started: subprocess.Popen[bytes] = subprocess.Popen(
            [
                *(() if outlives_us else ENDS_WITH_US),
                *("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork"),
                *("--kill-child", "--mount-proc", "--propagation=private", "--"),
                *("sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command),
            ],
            cwd=CHECKOUT,
            env={
                **os.environ,
                INSIDE: self.name,
                "PYTHONUNBUFFERED": "1",
                # kubectl and helm would note in the user's home what these servers can do.
                "KUBECACHEDIR": str(self.folder / "kubectl"),
            },
            pass_fds=(lock,),
            **options,
        )
        return started

    @contextlib.contextmanager
    def preferred(self) -> Iterator[None]:
        """Its pods run before everything else that wants a processor, other clusters included."""
        weights = [
            file
            for name in ("cpu.shares", "cpu.weight")
            for controller in hierarchies()
            if (file := controller / self.group / name).exists()
        ]
        before = [file.read_text() for file in weights]
        for file in weights:
            file.write_text(str(HIGHEST_WEIGHT))
        try:
            yield
        finally:
            for file, weight in zip(weights, before, strict=True):
                file.write_text(weight)

    def clean_up(self) -> None:
        """What outlives the namespaces: control groups and files. Only logs are kept."""
        remove_group(self.group)
        if (self.folder / "logs").exists():
            kept = cache() / "logs" / self.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self.folder / "logs", kept)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path, awaited: str) -> Iterator[int]:
    """One process at a time; says what it waits for."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"e2e: waiting for {awaited}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def take_signals_as_exit() -> None:
    """So that whoever is told to end takes away what it has made, and does so without a word."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))


def make_group(name: str) -> None:
    """In every hierarchy, as kubelets want it."""
    for controller in hierarchies():
        group = controller / name
        group.mkdir(exist_ok=True)
        # A new group of v1 has no processors, and nothing in it could run.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (group / file).exists() and not (group / file).read_text().strip():
                (group / file).write_text((group.parent / file).read_text())


def hierarchies() -> list[Path]:
    """Of cgroup v1 one per controller, of v2 a single one."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and (path / "tasks").exists()]


def remove_group(name: str) -> None:
    """With all groups below it; those who were in them have been killed, and may still be dying."""
    folders = [
        Path(folder)
        # Where both versions are mounted, runtimes make groups in the second one as well.
        for controller in (*hierarchies(), CGROUPS / "unified")
        for folder, _, _ in os.walk(controller / name, topdown=False)
    ]
    deadline = time.monotonic() + GROUP_PATIENCE_S
    for folder in folders:
        while True:
            try:
                folder.rmdir()
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    print(f"e2e: the control group {folder} stays: {error}", file=sys.stderr)
                    break
                time.sleep(0.05)


def main() -> int:
    name, *options = sys.argv[1:]
    sandbox = Sandbox(name)
    take_signals_as_exit()
    with sandbox.used() as lock:
        inside = sandbox.start([sys.executable, *options], lock)
        try:
            return inside.wait()
        finally:
            inside.kill()
            inside.wait()
            sandbox.clean_up()


if __name__ == "__main__":
    sys.exit(main())
