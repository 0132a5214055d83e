"""Time on a simulated GPU: accounts that balance, fair turns, streams that overlap.

Work is queued ahead and read off the simulator's own accounts, so that nothing depends on when the
machine finds time for whom.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native.core_programs import Client, compile_program
from tests.simulated import SimulatedNode, simulated_node

MS = 1_000_000
SLICE_NS = 2 * MS

Start = Callable[[], Client]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("client", tmp_path_factory.mktemp("core"))


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xA100-80G,1xL4") as node:
        yield node


@pytest.fixture
def start(program: Path, node: SimulatedNode) -> Iterator[Start]:
    clients: list[Client] = []

    def start_one() -> Client:
        clients.append(Client(program, node.env))
        assert clients[-1].greeting == "ready"
        return clients[-1]

    yield start_one
    for client in clients:
        client.__exit__()


def busy_ns(node: SimulatedNode, client: Client, device: int = 0) -> int:
    return node.snapshot().process(client.pid).usages[device].busy_ns


def test_a_queue_in_order_takes_exactly_its_durations(node: SimulatedNode, start: Start) -> None:
    client, end = start(), 0
    for duration_us in (5, 17, 200, 1_000, 3):
        end = client.submit(0, end, duration_us * 1000)
    assert client.ask("wait", 0, end) == 0
    assert end == busy_ns(node, client) == 1_225_000


def test_streams_of_one_process_overlap(start: Start) -> None:
    """Three streams with an hour each, queued one after the other, are busy for one hour."""
    client, hour_ns = start(), 3600 * 1000 * MS
    ends = [client.submit(0, 0, hour_ns) for _ in range(3)]
    active_ns = client.ask("active", 0)
    assert hour_ns == ends[0] <= ends[1] <= ends[2] <= hour_ns + active_ns


def test_equal_loads_get_equal_time(node: SimulatedNode, start: Start) -> None:
    first, second = start(), start()
    for client in (first, second):
        client.ask("many", 0, 2000, 5 * MS)
    before = node.snapshot()
    # Both have queued ten seconds, so neither runs dry in the five that this takes.
    first.ask("wait", 0, before.process(first.pid).usages[0].busy_ns + 2_500 * MS)
    after = node.snapshot()
    gained = [
        after.process(client.pid).usages[0].busy_ns - before.process(client.pid).usages[0].busy_ns
        for client in (first, second)
    ]
    passed = after.devices[0].time_ns - before.devices[0].time_ns
    assert sum(gained) == passed, "the GPU was never idle and served nobody else"
    assert abs(gained[0] - gained[1]) <= SLICE_NS


def test_all_time_is_somebodys_or_idle(node: SimulatedNode, start: Start) -> None:
    clients = [start() for _ in range(3)]
    first = node.snapshot().devices
    for number, client in enumerate(clients):
        end = client.submit(0, 0, (number + 1) * 10 * MS)
        client.ask("wait", 0, end)
    last = node.snapshot()
    for before, after in zip(first, last.devices, strict=True):
        passed = after.time_ns - before.time_ns
        assert passed == (after.busy_ns - before.busy_ns) + (after.idle_ns - before.idle_ns)
    assert last.devices[0].busy_ns == 60 * MS
    assert last.devices[1].busy_ns == 0


def test_others_turns_lie_between_the_wall_times_of_work(start: Start) -> None:
    other, client = start(), start()
    other.submit(0, 0, 3600 * 1000 * MS)
    end = client.ask("many", 0, 100, MS)
    assert client.ask("wait", 0, end) == 0
    span = client.ask("wall", 0, end) - client.ask("wall", 0, 1)
    # 100 ms are 50 slices, with one of the other process between each two.
    assert span == (end - 1) + 49 * SLICE_NS


def test_waiting_ends_when_the_work_is_dropped(start: Start) -> None:
    client = start()
    end = client.submit(0, 0, 3600 * 1000 * MS)
    client.say("cancel", 0)
    assert client.ask("wait", 0, end) == -125, "ECANCELED"
    assert client.ask("reached", 0, end) == 0
    again = client.submit(0, end, MS)
    assert again < end, "a stale end does not hold up new work"
    assert client.ask("wait", 0, again) == 0


def test_waiting_ends_when_the_device_is_lost(node: SimulatedNode, start: Start) -> None:
    client = start()
    end = client.submit(0, 0, 3600 * 1000 * MS)
    node.inject(0, "xid=79")
    assert client.ask("wait", 0, end) == -5, "EIO"
    assert node.snapshot().process(client.pid).usages[0].queued_ns == 0


def test_a_dead_process_gives_its_turns_to_the_living(node: SimulatedNode, start: Start) -> None:
    dead, living = start(), start()
    dead.ask("many", 0, 1000, 10 * MS)
    end = living.submit(0, 0, 300 * MS)
    before = node.snapshot().devices[0]
    dead.kill()
    assert living.ask("wait", 0, end) == 0
    after = node.snapshot()
    assert [process.host_pid for process in after.processes] == [living.pid]
    # Found within 50 ms of the timeline; without that it would have taken another 300 ms.
    gone = after.devices[0].busy_ns - after.processes[0].usages[0].busy_ns
    assert gone - before.busy_ns <= 60 * MS
