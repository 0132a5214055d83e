"""Tenants on a simulated GPU: who keeps to the cap is left alone, who breaks out is found."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.capped import GIB, MIB, SHIM, Share
from tests.integration.agent_gpu.agent_program import DEADLINE_S, Message, Program, running
from tests.simulated import SimulatedNode, simulated_node

POD_UID = "0a1b2c3d-1111-2222-3333-444455556666"
SEVERAL_LOOKS = 8

CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
print(cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0), flush=True)
for line in sys.stdin:
    print(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(line))), flush=True)
"""


class Client:
    """A program with a context on the first GPU that takes memory when told to."""

    def __init__(self, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "0 0"

    @property
    def pid(self) -> int:
        return self.process.pid

    def take(self, size_bytes: int) -> str:
        assert self.process.stdin is not None
        print(size_bytes, file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xA100-40G") as node:
        yield node


@pytest.fixture
def share(node: SimulatedNode, tmp_path: Path) -> Share:
    return Share.make(node, tmp_path / "share", {0: 4 * GIB})


@pytest.fixture
def start() -> Iterator[Callable[[dict[str, str]], Client]]:
    clients: list[Client] = []

    def start_one(env: dict[str, str]) -> Client:
        clients.append(Client(env))
        return clients[-1]

    yield start_one
    for client in clients:
        client.end()


def proc_with_pod(folder: Path, *pids: int) -> Path:
    """The real /proc of these processes, but as if they were in containers of the pod."""
    for pid in pids:
        (folder / str(pid)).mkdir(parents=True)
        for name in ("stat", "maps", "mountinfo"):
            (folder / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")
        (folder / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{POD_UID}/{pid:064x}\n")
    return folder


@contextmanager
def looking(share: Share, proc: Path = Path("/proc")) -> Iterator[Program]:
    uuid = share.node.snapshot().devices[0].uuid
    options: dict[str, Any] = {
        "gpus": [uuid],
        "shim": str(SHIM),
        "proc": str(proc),
        "allocations": [
            {"id": "t1", "pod_uid": POD_UID, "gpus": [uuid], "folder": str(share.directory)}
        ],
    }
    with running("watch_tenants.py", share.node.env, **options) as program:
        yield program


def told(message: Message) -> set[str]:
    return {kind for kind, _ in message["told"]}


def test_a_tenant_within_its_cap_is_left_alone(
    share: Share, start: Callable[[dict[str, str]], Client]
) -> None:
    clients = [start(share.environment()) for _ in range(2)]
    assert [client.take(GIB) for client in clients] == ["0", "0"]
    assert clients[0].take(4 * GIB) == "2", "out of memory: the cap is kept"
    with looking(share) as program:
        message = program.until(lambda message: message["looks"] == SEVERAL_LOOKS)
        assert message["told"] == []


def test_a_program_that_leaves_the_shim_out_is_found(
    share: Share, start: Callable[[dict[str, str]], Client], tmp_path: Path
) -> None:
    honest, hostile = start(share.environment()), start(share.node.env)
    assert honest.take(GIB) == "0"
    assert hostile.take(10 * GIB) == "0"
    with looking(share, proc_with_pod(tmp_path / "proc", honest.pid, hostile.pid)) as program:
        message = program.until(lambda message: len(message["told"]) >= 3)
        assert told(message) == {"over-cap", "not-booked", "shim-missing"}
        texts = dict(message["told"])
        assert f"process {hostile.pid} of default/t1/main uses" in texts["shim-missing"]
        assert "its cap is 4Gi" in texts["over-cap"]
        hostile.end()
        message = program.until(lambda message: message["lasting"] == [])
        assert len(message["told"]) == 3, "each was told once"


def test_a_stranger_on_the_gpu_is_found(
    node: SimulatedNode, share: Share, start: Callable[[dict[str, str]], Client], tmp_path: Path
) -> None:
    stranger = start(node.env)
    proc = proc_with_pod(tmp_path / "proc", stranger.pid)
    group = f"0::/kubepods/pod{'ab' * 16}/{'f' * 64}\n"
    (proc / str(stranger.pid) / "cgroup").write_text(group)
    with looking(share, proc) as program:
        message = program.until(lambda message: bool(message["told"]))
        assert told(message) == {"not-allocated"}
        assert message["lasting"] == [["not-allocated", "ab" * 16]]


def damage_by_garbage(path: Path) -> None:
    path.write_bytes(os.urandom(9000))


def damage_by_emptying(path: Path) -> None:
    os.truncate(path, 0)


def damage_by_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def damage_by_removal(path: Path) -> None:
    path.unlink()


def damage_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def damage_by_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def damage_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        damage_by_garbage,
        damage_by_emptying,
        damage_by_zeros,
        damage_by_removal,
        damage_by_a_pipe,
        damage_by_a_link,
        damage_by_a_folder,
    ],
)
def test_a_damaged_account_is_told_and_hurts_nobody(
    share: Share,
    start: Callable[[dict[str, str]], Client],
    tmp_path: Path,
    damage: Callable[[Path], None],
) -> None:
    client = start(share.environment())
    assert client.take(GIB) == "0"
    with looking(share, proc_with_pod(tmp_path / "proc", client.pid)) as program:
        program.until(lambda message: message["looks"] == 2)
        damage(share.directory / "memory" / "usage")
        message = program.until(lambda message: "account-damaged" in told(message))
        assert told(message) == {"account-damaged"}
        assert program.end() == 0


def test_a_forged_account_is_found_out(
    share: Share, start: Callable[[dict[str, str]], Client], tmp_path: Path
) -> None:
    """A file of the right form that says that nobody uses anything."""
    client = start(share.environment())
    assert client.take(GIB + 100 * MIB) == "0"
    with looking(share, proc_with_pod(tmp_path / "proc", client.pid)) as program:
        program.until(lambda message: message["looks"] == 2)
        usage = share.directory / "memory" / "usage"
        spare = Share.make(share.node, tmp_path / "spare", {0: GIB}).directory
        usage.write_bytes((spare / "memory" / "usage").read_bytes())
        message = program.until(lambda message: bool(message["told"]))
        assert told(message) == {"not-booked"}
