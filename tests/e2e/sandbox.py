"""The namespaces that hold a whole cluster: ending the first process in them ends everything."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.places import CHECKOUT, cache, running

__all__ = [
    "CGROUP",
    "CGROUPS",
    "clean_up",
    "make_group",
    "only_builder",
    "only_cluster",
    "remove_group",
    "start_inside",
]

CGROUP = "aliquot-e2e"
CGROUPS = Path("/sys/fs/cgroup")
GROUP_PATIENCE_S = 20.0
MACHINE_LOCK = Path("/run/aliquot-e2e.lock")


@contextlib.contextmanager
def only_builder() -> Iterator[None]:
    """One at a time makes what a cache lacks; the next one finds it made."""
    cache().mkdir(parents=True, exist_ok=True)
    with _locked(cache() / "lock", "another run to fill the cache"):
        # Scratch folders of a run that was killed.
        for left in (*cache().glob("tmp*"), *cache().glob("images/tmp*")):
            shutil.rmtree(left, ignore_errors=True)
        yield


@contextlib.contextmanager
def only_cluster() -> Iterator[int]:
    """One at a time on a machine, whatever cache it uses: control groups have fixed names.

    Gives the lock's descriptor. What runs inside of the namespaces inherits it, so that a cluster
    whose starter was killed keeps the lock until the last of it is gone."""
    with _locked(MACHINE_LOCK, "another test cluster on this machine to end") as lock:
        yield lock


@contextlib.contextmanager
def _locked(path: Path, awaited: str) -> Iterator[int]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"e2e: waiting for {awaited}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def start_inside(
    command: Sequence[str], lock: int, *, outlives_us: bool = False, **options: Any
) -> "subprocess.Popen[bytes]":
    """Runs a command as the first process of new namespaces, which end with it or with us."""
    make_group(CGROUP)
    ends_with_us = () if outlives_us else ("setpriv", "--pdeathsig=KILL", "--")
    started: subprocess.Popen[bytes] = subprocess.Popen(
        [
            *ends_with_us,
            *("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"),
            *("--mount-proc", "--propagation=private", "--", *command),
        ],
        cwd=CHECKOUT,
        env={**os.environ, "ALIQUOT_E2E": "1", "PYTHONUNBUFFERED": "1"},
        pass_fds=(lock,),
        **options,
    )
    return started


def make_group(name: str) -> None:
    """In every hierarchy, as kubelets want it."""
    for controller in _hierarchies():
        group = controller / name
        group.mkdir(exist_ok=True)
        # A new group of v1 has no processors, and nothing in it could run.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (group / file).exists() and not (group / file).read_text().strip():
                (group / file).write_text((group.parent / file).read_text())


def clean_up(keep_logs: Path | None = None) -> None:
    """What outlives the namespaces: control groups and files."""
    remove_group(CGROUP)
    if keep_logs is not None and (running() / "logs").exists():
        shutil.rmtree(keep_logs, ignore_errors=True)
        shutil.copytree(running() / "logs", keep_logs)
    shutil.rmtree(running(), ignore_errors=True)


def _hierarchies() -> list[Path]:
    """Of cgroup v1 one per controller, of v2 a single one."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and (path / "tasks").exists()]


def remove_group(name: str) -> None:
    """With all groups below it; those who were in them have been killed, and may still be dying."""
    folders = [
        Path(folder)
        # Where both versions are mounted, runtimes make groups in the second one as well.
        for controller in (*_hierarchies(), CGROUPS / "unified")
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
