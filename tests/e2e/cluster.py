"""A whole Kubernetes cluster on this machine; `python -m tests.e2e.cluster up|shell|down`."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.e2e import imagestore
from tests.e2e.api import Api
from tests.e2e.binaries import binaries, build_all
from tests.e2e.controlplane import ADDRESS, SERVER, ControlPlane
from tests.e2e.daemons import PATIENCE_S, Daemon
from tests.e2e.images import archives
from tests.e2e.machine import BRIDGE, ip
from tests.e2e.node import Node
from tests.e2e.places import CHECKOUT, cache
from tests.e2e.preflight import check_machine
from tests.e2e.sandbox import Sandbox, locked

__all__ = ["Cluster", "prepare"]

IMAGES, STORE = "ALIQUOT_E2E_IMAGES", "ALIQUOT_E2E_STORE"
"""In the environment of clusters: archives by the names of their images, and a store of them."""

# What API servers and kubectl say of somebody who did not answer in time.
LATE = (
    "TLS handshake timeout",
    "connection refused",
    "context deadline exceeded",
    "etcdserver: request timed out",
    "http2: client connection lost",
    "i/o timeout",
)


def prepare() -> None:
    """Everything that needs the network or takes long, before clusters are cut off."""
    check_machine()
    cache().mkdir(parents=True, exist_ok=True)
    with locked(cache() / "lock", "another run to fill the cache"):
        # Scratch folders of a run that was killed.
        for left in (*cache().glob("tmp*"), *cache().glob("images/tmp*")):
            shutil.rmtree(left, ignore_errors=True)
        build_all()
        # The checkout may change while a cluster runs; its images stay those of its start.
        made = archives()
        os.environ[IMAGES] = json.dumps({name: str(path) for name, path in made.items()})
        os.environ[STORE] = str(imagestore.made_of(made.values()))


class Cluster:
    """Control plane and nodes; only for processes inside of the sandbox."""

    def __init__(self, nodes: int = 2) -> None:
        self.folder = Sandbox.around_us().folder
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.control_plane = ControlPlane(self.folder / "control-plane", self.logs)
        authority = self.control_plane.authority
        self.nodes = [
            Node(number, self.folder, self.logs, authority) for number in range(1, nodes + 1)
        ]
        self.api = Api(SERVER, authority)
        self.dns = Daemon("nameserver", self._dns_command(), self.logs)
        self._kubectl = binaries()["kubectl"]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        self._connect()
        self.control_plane.start()
        self.dns.start()
        with ThreadPoolExecutor() as pool:
            for joined in [pool.submit(self.add, node) for node in self.nodes]:
                joined.result()
        for node in self.nodes:
            node.kubelet.await_answer(lambda node=node: self.is_ready(node))  # type: ignore[misc]

    def add(self, node: Node) -> None:
        """Gives a node the images, boots it, and lets it join."""
        node.stock(Path(os.environ[STORE]))
        node.boot()
        ip("route", "replace", node.pods, "via", node.machine.address)
        node.join()

    def images(self) -> dict[str, Path]:
        """Archives by the names of their images."""
        images: dict[str, str] = json.loads(os.environ[IMAGES])
        return {name: Path(archive) for name, archive in images.items()}

    def stop(self) -> None:
        self.api.close()
        for node in self.nodes:
            node.crash()
        self.dns.stop(signal.SIGKILL)
        self.control_plane.stop()

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def node_of(self, pod: str) -> Node:
        return self.node(self.api.pod(pod)["spec"]["nodeName"])

    def is_ready(self, node: Node) -> bool:
        found = self.api.find("node", node.name)
        if found is None:
            return False
        conditions = found["status"].get("conditions", [])
        tainted = found["spec"].get("taints", [])
        return not tainted and any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in conditions
        )

    def kubectl(self, *words: str, text: str | None = None, check: bool = True) -> str:
        """What a user types, again when a crowded machine was too slow to answer; an error shows
        what kubectl said."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            ran = subprocess.run(
                [self._kubectl, f"--kubeconfig={self.control_plane.admin}", *words],
                input=text,
                capture_output=True,
                text=True,
                check=False,
                cwd=CHECKOUT,
            )
            late = ran.returncode and any(sign in ran.stderr for sign in LATE)
            # Our own webhook has to answer whenever a pod is made.
            late = late and "failed calling webhook" not in ran.stderr
            if not late or time.monotonic() > deadline:
                break
            time.sleep(1)
        if check and ran.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {ran.stderr.strip()}")
        return ran.stdout if check else ran.stdout + ran.stderr

    def apply(self, *objects: dict[str, Any]) -> str:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self.kubectl("apply", "-f", "-", text=json.dumps(listed))

    def _connect(self) -> None:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{ADDRESS}/16", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _dns_command(self) -> list[str | Path]:
        authority = self.control_plane.authority
        pair = authority.issue("nameserver", "nameserver", ("system:masters",))
        files = (authority.root, pair.certificate, pair.key)
        return [sys.executable, "-m", "tests.e2e.nameserver", ADDRESS, SERVER, *files]


HELD = Sandbox("held")


def _hold(nodes: int) -> None:
    """Keeps a cluster until somebody ends this process."""
    with Cluster(nodes):
        (HELD.folder / "ready").touch()
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


def _up(words: Iterable[str], lock: int) -> None:
    HELD.folder.mkdir(parents=True)
    started = time.monotonic()
    with (HELD.folder / "hold.log").open("wb") as log:
        held = HELD.start(
            [sys.executable, "-m", "tests.e2e.cluster", "hold", *words],
            lock,
            outlives_us=True,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    _pid().write_text(str(held.pid))
    while not (HELD.folder / "ready").exists():
        if held.poll() is not None:
            print((HELD.folder / "hold.log").read_text(), file=sys.stderr)
            HELD.clean_up()
            raise SystemExit("e2e: the cluster did not start")
        time.sleep(0.2)
    print(f"e2e: up after {time.monotonic() - started:.0f} s", file=sys.stderr)


def _pid() -> Path:
    return HELD.folder / "pid"


def _down() -> None:
    if _pid().exists():
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself; its files have not
            os.kill(int(_pid().read_text()), signal.SIGKILL)
    with HELD.used():
        print("e2e: down", file=sys.stderr)


def _shell(words: list[str]) -> int:
    """A shell, or one command, inside of the sandbox."""
    if not _pid().exists():
        raise SystemExit("e2e: no cluster is up; `up` starts one")
    unshare = _pid().read_text()
    first = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()[0]
    folders = ":".join(sorted({str(path.parent) for path in binaries().values()}))
    environment = {
        **os.environ,
        "KUBECONFIG": str(HELD.folder / "control-plane/pki/admin.kubeconfig"),
        "PATH": f"{folders}:{os.environ['PATH']}",
    }
    spaces = ("--mount", "--net", "--pid", "--ipc", "--uts", "--wd")
    enter = ["nsenter", f"--target={first}", *spaces, "--"]
    return subprocess.call([*enter, *(words or ["bash"])], env=environment, cwd=CHECKOUT)


def main() -> None:
    match sys.argv[1:]:
        case ["up", *words]:
            if _pid().exists():
                raise SystemExit("e2e: a cluster is up already; `down` ends it")
            prepare()
            with HELD.used() as lock:
                _up(words, lock)
        case ["down"]:
            _down()
        case ["shell", *words]:
            raise SystemExit(_shell(words))
        case ["hold", *words]:
            _hold(int(words[0]) if words else 2)
        case _:
            raise SystemExit("python -m tests.e2e.cluster up [NODES] | shell [COMMAND ...] | down")


if __name__ == "__main__":
    main()
