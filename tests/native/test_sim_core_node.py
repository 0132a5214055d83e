"""Making a node, looking at it, breaking it; and refusing what is not one."""

import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from simgpu.faults import FaultError
from simgpu.models import SpecError, parse_spec
from simgpu.node import Node, NodeError
from tests.native.core_programs import DEADLINE_S, Client, compile_program
from tests.simulated import SimulatedNode, simulated_node

ALLOC, LAUNCH, NVML = 1, 2, 3
MADE_AT = 24
"""Where the header has the clock of the making, and after it the id of the boot."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("client", tmp_path_factory.mktemp("core"))


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("2xA100-80G,1xL4") as node:
        yield node


@pytest.fixture
def client(program: Path, node: SimulatedNode) -> Iterator[Client]:
    with Client(program, node.env) as client:
        yield client


# --- what it shows -------------------------------------------------------------------------------


def test_a_node_has_the_gpus_of_its_spec(node: SimulatedNode) -> None:
    profiles = parse_spec("2xA100-80G,1xL4")
    devices = node.snapshot().devices
    assert [d.uuid for d in devices] == [p.uuid for p in profiles]
    assert [d.name for d in devices] == [p.name for p in profiles]
    assert [d.memory_bytes for d in devices] == [p.memory_bytes for p in profiles]
    assert {(d.used_bytes, d.busy_ns, d.launches) for d in devices} == {(0, 0, 0)}


def test_a_process_appears_with_its_first_use(node: SimulatedNode, client: Client) -> None:
    assert node.snapshot().processes == (), "an open node is only looked at"
    assert client.ask("fault", 0, NVML) == 0
    assert node.snapshot().processes == ()
    client.ask("reserve", 1, 4096)
    client.ask("launch", 1)
    (process,) = node.snapshot().processes
    assert process.host_pid == process.pid == client.pid
    assert process.name.endswith("/client")
    usage = process.usages[1]
    assert (usage.used_bytes, usage.launches, usage.busy_ns) == (4096, 1, 0)


def test_out_of_memory_comes_at_the_configured_size(node: SimulatedNode, client: Client) -> None:
    total_bytes = parse_spec("1xL4")[0].memory_bytes
    assert client.ask("reserve", 2, total_bytes - 1) == 0
    assert client.ask("reserve", 2, 2) == -12, "ENOMEM"
    assert client.ask("reserve", 2, 1) == 0
    assert client.ask("reserve", 2, 2**64 - 1) == -12, "sums do not overflow"
    assert client.ask("free", 2) == 0


def test_null_mode_only_counts(program: Path) -> None:
    with simulated_node(null_mode=True) as node, Client(program, node.env) as client:
        for _ in range(3):
            client.ask("launch", 0)
        assert client.ask("reserve", 0, 1 << 50) == 0, "more than there is"
        client.ask("release", 0, 1 << 49)
        (process,) = node.snapshot().processes
        assert (process.usages[0].launches, process.usages[0].used_bytes) == (3, 1 << 49)
        client.kill()
        after = node.snapshot()
        assert (after.processes, after.devices[0].used_bytes) == ((), 0)
        assert after.devices[0].launches == 3


# --- faults --------------------------------------------------------------------------------------


def test_the_next_calls_fail_as_often_as_asked(node: SimulatedNode, client: Client) -> None:
    node.inject(0, "alloc=2")
    node.inject(0, "launch=illegal-address")
    assert [client.ask("fault", 0, ALLOC) for _ in range(3)] == [2, 2, 0]
    assert [client.ask("fault", 0, LAUNCH) for _ in range(2)] == [700, 0]
    assert client.ask("fault", 1, ALLOC) == 0, "another device"


def test_an_xid_is_an_event_and_for_some_an_error_that_stays(
    node: SimulatedNode, client: Client
) -> None:
    node.inject(0, "xid=13")
    assert client.ask("fault", 0, LAUNCH) == 0
    node.inject(0, "xid=48")
    assert [client.ask("fault", 0, LAUNCH) for _ in range(3)] == [214] * 3
    assert client.ask("fault", 0, ALLOC) == 214
    assert client.ask("fault", 0, NVML) == 0
    device = node.snapshot().devices[0]
    assert (device.xid_count, device.last_xid, device.ecc_errors) == (2, 48, 1)
    assert not device.lost
    node.inject(0, "clear")
    assert client.ask("fault", 0, LAUNCH) == 0


def test_a_lost_device_answers_nothing_but_that(node: SimulatedNode, client: Client) -> None:
    node.inject(1, "xid=79")
    assert client.ask("fault", 1, LAUNCH) == 999
    assert client.ask("fault", 1, NVML) == 15
    assert [d.lost for d in node.snapshot().devices] == [False, True, False]
    node.inject(1, "clear")
    assert client.ask("fault", 1, NVML) == 0


def test_slow_nvml_takes_its_time(node: SimulatedNode, client: Client) -> None:
    node.inject(0, "nvml-slow=200ms")
    before = node.snapshot().devices[0].time_ns
    assert client.ask("fault", 0, NVML) == 0
    assert node.snapshot().devices[0].time_ns - before >= 200_000_000
    assert client.ask("fault", 0, LAUNCH) == 0


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("explode", "there are xid=N, lost"),
        ("xid=", "must be a number from 1 to 999"),
        ("xid=-1", "must be a number"),
        ("alloc=0", "must be a number from 1"),
        ("launch=often", "illegal-address"),
        ("launch=0", "number from 1"),
        ("nvml-slow=fast", "such as 50ms"),
        ("lost=1", "takes no value"),
    ],
)
def test_a_fault_that_does_not_exist_names_those_that_do(
    node: SimulatedNode, fault: str, says: str
) -> None:
    with pytest.raises(FaultError, match=says):
        node.inject(0, fault)


def test_a_fault_needs_a_device_and_room(node: SimulatedNode) -> None:
    with pytest.raises(NodeError, match="no gpu3"):
        node.inject(3, "lost")
    for _ in range(8):
        node.inject(0, "alloc=1")
    with pytest.raises(NodeError, match="`clear` removes"):
        node.inject(0, "alloc=1")
    node.inject(0, "clear")
    node.inject(0, "alloc=1")


# --- what is refused -----------------------------------------------------------------------------


def greeting(program: Path, path: Path | None) -> str:
    """What a program on that node is told."""
    return subprocess.run(
        [program],
        env={"ALIQUOT_SIM_STATE": str(path)} if path else {},
        input="",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    ).stdout.strip()


def change(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def garble(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + os.urandom(1 << 16))


def change_layout(path: Path) -> None:
    change(path, 8, struct.pack("I", 999))


def change_size(path: Path) -> None:
    change(path, 16, struct.pack("Q", 4096))


def change_boot(path: Path) -> None:
    change(path, MADE_AT + 8, b"0" * 8)


def change_clock(path: Path) -> None:
    change(path, MADE_AT, struct.pack("Q", 1 << 63))


def change_count(path: Path) -> None:
    change(path, 12, struct.pack("I", 17))


def truncate(path: Path) -> None:
    os.truncate(path, 1 << 20)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def turn_into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (garble, "is not a simulated GPU node; make one with `aliquot sim env`"),
        (empty, "is not a simulated GPU node"),
        (change_layout, "was made by another version of the simulated GPU; remove it"),
        (change_size, "was made by another version of the simulated GPU; remove it"),
        (truncate, "is a truncated simulated GPU node; remove it"),
        (change_count, "is a damaged simulated GPU node; remove it"),
        (change_boot, "was made before this machine was started; remove it"),
        (change_clock, "was made before this machine was started; remove it"),
        (Path.unlink, "cannot be opened: No such file or directory"),
        (turn_into_folder, "cannot be opened: Is a directory"),
    ],
)
def test_what_is_no_node_is_refused_with_what_to_do(
    node: SimulatedNode, program: Path, tmp_path: Path, damage, says: str
) -> None:
    path = tmp_path / "node"
    Node.create(path, "1xL4").close()
    assert greeting(program, path) == "ready"
    damage(path)
    said = greeting(program, path)
    assert said.startswith(f"{path} ")
    assert says in said
    with pytest.raises(NodeError) as refusal:
        Node.open(path)
    assert str(refusal.value) == said, "Python and C say the same"


def test_without_a_node_a_program_is_told_the_variable(program: Path) -> None:
    assert greeting(program, None).startswith("ALIQUOT_SIM_STATE is not set: ")


def test_a_node_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "node"
    with pytest.raises(SpecError):
        Node.create(path, "3xNothing")
    with pytest.raises(NodeError, match="No such file or directory"):
        Node.create(tmp_path / "missing" / "node", "1xL4")
    Node.create(path, "1xL4").close()
    Node.create(path, "2xL4").close()
    with Node.open(path) as node:
        assert node.gpus == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["node"]


def test_who_is_on_a_replaced_node_stays_on_it(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "node"
    with Node.create(path, "1xL4") as old, Client(program, old.environment()) as client:
        client.ask("reserve", 0, 4096)
        with Node.create(path, "1xL4") as new:
            assert new.snapshot().processes == ()
            assert client.ask("reserve", 0, 4096) == 0
            assert old.snapshot().devices[0].used_bytes == 8192
