"""A simulated machine: its own processes, mounts and network, all gone when its process 1 ends."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.daemons import Daemon
from tests.e2e.places import CHECKOUT

__all__ = ["Machine", "ip"]

BRIDGE = "cluster0"


def ip(*words: str, inside: int | None = None) -> None:
    """The `ip` command, here or in the network of a process."""
    enter = ["nsenter", f"--target={inside}", "--net"] if inside else []
    subprocess.run([*enter, "ip", *words], check=True)


class Machine:
    """Starting one again is a reboot: its disk stays, /run and all processes are gone."""

    def __init__(self, name: str, address: str, folder: Path, logs: Path) -> None:
        self.name = name
        self.address = address
        self.folder = folder
        self.logs = logs
        self._unshare: subprocess.Popen[str] | None = None
        self.pid = 0

    def start(self, gateway: str) -> None:
        self._unshare = subprocess.Popen(
            [
                *("unshare", "--mount", "--net", "--pid", "--uts", "--ipc"),
                *("--fork", "--kill-child", "--mount-proc", "--propagation=private"),
                *(sys.executable, "-m", "tests.e2e.machine_init", self.name, str(self.folder)),
            ],
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._unshare.stdout is not None
        if self._unshare.stdout.readline() != "ready\n":
            raise RuntimeError(f"machine {self.name} did not start")
        self.pid = _only_child(self._unshare.pid)
        self._connect(gateway)

    def _connect(self, gateway: str) -> None:
        outer = f"to-{self.name}"
        ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        ip("link", "set", outer, "master", BRIDGE, "up")
        ip("link", "set", "lo", "up", inside=self.pid)
        ip("address", "add", f"{self.address}/16", "dev", "eth0", inside=self.pid)
        ip("link", "set", "eth0", "up", inside=self.pid)
        ip("route", "add", "default", "via", gateway, inside=self.pid)

    def inside(self, *words: str | Path) -> list[str]:
        """A command line that runs `words` on this machine."""
        enter = [
            "nsenter",
            f"--target={self.pid}",
            *("--mount", "--net", "--pid", "--uts", "--ipc"),
        ]
        return [*enter, "--", *(str(word) for word in words)]

    def run(self, *words: str | Path, check: bool = True) -> str:
        ran = subprocess.run(
            self.inside(*words), check=False, capture_output=True, text=True, errors="replace"
        )
        if check and ran.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, words))}:\n{ran.stderr}")
        return ran.stdout

    def daemon(self, name: str, command: Sequence[str | Path]) -> Daemon:
        return EnteredDaemon(f"{self.name}-{name}", self.inside(*command), self.logs)

    def power_off(self) -> None:
        """At once, as when the plug is pulled."""
        if self._unshare is None:
            return
        self._unshare.kill()
        self._unshare.wait()
        assert self._unshare.stdout is not None
        self._unshare.stdout.close()
        self._unshare = None
        subprocess.run(
            ["ip", "link", "delete", f"to-{self.name}"], check=False, capture_output=True
        )


class EnteredDaemon(Daemon):
    """nsenter forks and passes no signals on: they have to go to its child."""

    @property
    def pid(self) -> int:
        return _only_child(super().pid)


def _only_child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if len(children) != 1:
        raise RuntimeError(f"process {pid} has {len(children)} children, not one")
    return int(children[0])
