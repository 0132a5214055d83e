"""The harness itself: a sandbox keeps to itself, and leaves nothing, however it ends."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemons import await_true
from tests.e2e.places import CHECKOUT, cache
from tests.e2e.sandbox import CGROUPS, Sandbox

# That no cluster uses.
PORT = 16443
MARK = "left-alone-by-everybody"
# What a cluster leaves behind itself: a daemon that nobody waits for, in a control group below the
# sandbox's own, that listens; files, and a log among them.
CLUSTER = f"""
import subprocess, sys, time
from tests.e2e.sandbox import Sandbox, hierarchies, make_group
ours = Sandbox.around_us()
(ours.folder / "logs").mkdir(parents=True)
serve = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port={PORT})"
log = (ours.folder / "logs" / "daemon.log").open("w")
daemon = subprocess.Popen(
    [sys.executable, "-u", "-c", serve, "{MARK}"], start_new_session=True, stdout=log, stderr=log
)
make_group(ours.group + "/node1")
for hierarchy in hierarchies():
    (hierarchy / ours.group / "node1" / "cgroup.procs").write_text(str(daemon.pid))
while "Serving" not in (ours.folder / "logs" / "daemon.log").read_text():
    time.sleep(0.02)
print("serving", flush=True)
"""
WAITS = "time.sleep(3600)\n"
FAILS = "sys.stdin.read(); sys.exit(3)\n"


@pytest.fixture
def nested() -> Iterator[Sandbox]:
    """A sandbox in the one that we are in."""
    made = Sandbox("nested")
    yield made
    with made.used():
        shutil.rmtree(kept_logs(made), ignore_errors=True)


def kept_logs(sandbox: Sandbox) -> Path:
    return cache() / "logs" / sandbox.name


@contextlib.contextmanager
def serving(sandbox: Sandbox, then: str) -> "Iterator[subprocess.Popen[str]]":
    starter = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.sandbox", sandbox.name, "-c", CLUSTER + then],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter:
        assert starter.stdout is not None
        try:
            assert starter.stdout.readline() == "serving\n"
            yield starter
        finally:
            starter.kill()


def is_reachable() -> bool:
    try:
        socket.create_connection(("127.0.0.1", PORT), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def runs() -> bool:
    found = False
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found = found or process.read_bytes().endswith(f"{MARK}\0".encode())
    return found


def groups(sandbox: Sandbox) -> list[str]:
    return [name for name, _, _ in os.walk(CGROUPS) if Path(name).name == sandbox.group]


def test_nothing_listens_outside(nested: Sandbox) -> None:
    with serving(nested, WAITS):
        assert runs()
        assert groups(nested)
        assert not is_reachable()


def test_when_the_tests_fail_nothing_is_left_but_logs(nested: Sandbox) -> None:
    with serving(nested, FAILS) as starter:
        starter.communicate("")
        assert starter.returncode == 3
        assert not runs()
        assert not nested.folder.exists()
        assert not groups(nested)
        assert "Serving" in (kept_logs(nested) / "daemon.log").read_text()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name
)
def test_whoever_is_ended_takes_all_of_it_along(nested: Sandbox, number: signal.Signals) -> None:
    """SIGKILL lets nobody clean up: processes end at once, the rest goes with the next run."""
    with serving(nested, WAITS) as starter:
        starter.send_signal(number)
        starter.wait()
        await_true("its processes are gone", lambda: not runs())
        if number != signal.SIGKILL:
            assert not nested.folder.exists()
            assert not groups(nested)
    with nested.used():
        assert not nested.folder.exists()
        assert not groups(nested)
