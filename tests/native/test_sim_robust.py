"""A simulated node stays whole, whoever dies in whatever moment and comes from wherever."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native.core_programs import (
    DEADLINE_S,
    Client,
    compile_program,
    is_permitted,
    need_compiler,
    run_program,
    without_aslr,
)
from tests.simulated import SimulatedNode, simulated_node

MIB = 1 << 20
MS = 1_000_000
HOUR_NS = 3600 * 1000 * MS

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("core")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    return compile_program("client", folder)


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node() as node:
        yield node


Start = Callable[..., Client]


@pytest.fixture
def start(program: Path, node: SimulatedNode) -> Iterator[Start]:
    clients: list[Client] = []

    def start_one(*prefix: str) -> Client:
        clients.append(Client(program, node.env, *prefix))
        assert clients[-1].greeting == "ready"
        return clients[-1]

    yield start_one
    for client in clients:
        client.__exit__()


# --- death ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "stride"),
    [
        ("attach", 97),
        ("reserve", 5),
        ("submit", 7),
        ("submit-busy", 7),
        ("submit-contended", 7),
        ("cancel", 7),
        ("settle", 997),
        ("observe", 397),
        ("inject", 11),
    ],
)
def test_death_between_any_two_instructions(
    folder: Path, node: SimulatedNode, call: str, stride: int
) -> None:
    """The call is cut off after every few instructions; the slow test leaves none out."""
    if not (stepper := folder / "stepper").exists():
        compile_program("stepper", folder)
    instructions, rescues = map(int, run_program(stepper, node, call, str(stride)).split())
    assert instructions > 2 * stride
    assert rescues > 0, "no death was inside a lock, so nothing was tested"


def test_a_newcomer_is_not_taken_for_the_dead_before_it(folder: Path, node: SimulatedNode) -> None:
    """Somebody clears a dead process away, and is stopped; meanwhile its slot is taken."""
    if not (stepper := folder / "stepper").exists():
        compile_program("stepper", folder)
    run_program(stepper, node, "observe", "223", "pause")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "stride"),
    [
        ("attach", 7),
        ("reserve", 1),
        ("submit", 1),
        ("submit-busy", 1),
        ("submit-contended", 1),
        ("cancel", 1),
        ("settle", 199),
        ("observe", 67),
        ("inject", 1),
    ],
)
def test_death_after_each_instruction(
    folder: Path, node: SimulatedNode, call: str, stride: int
) -> None:
    """The long calls, whose cost grows with the square of their length, in small steps."""
    if not (stepper := folder / "stepper").exists():
        compile_program("stepper", folder)
    run_program(stepper, node, call, str(stride))


@pytest.mark.parametrize("seed", ["1", "2"])
def test_deaths_at_random(folder: Path, seed: str) -> None:
    """Three processes do everything at random and are killed all the time, a fourth goes on."""
    if not (mayhem := folder / "mayhem").exists():
        compile_program("mayhem", folder)
    with simulated_node("2xL4") as node:
        run_program(mayhem, node, "80", seed)
        last = node.snapshot()
    assert last.processes == ()
    assert [device.used_bytes for device in last.devices] == [0, 0]


@pytest.mark.slow
def test_thousands_of_deaths_at_random(folder: Path) -> None:
    if not (mayhem := folder / "mayhem").exists():
        compile_program("mayhem", folder)
    with simulated_node("2xL4") as node:
        assert int(run_program(mayhem, node, "2000", "3")) > 0


def test_what_the_dead_had_is_free_for_the_living(node: SimulatedNode, start: Start) -> None:
    dead, living = start(), start()
    total_bytes = living.ask("free", 0)
    assert dead.ask("reserve", 0, total_bytes) == 0
    dead.submit(0, 0, HOUR_NS)
    assert living.ask("reserve", 0, MIB) == -12, "ENOMEM"
    dead.kill()
    assert living.ask("reserve", 0, MIB) == 0
    assert living.ask("free", 0) == total_bytes - MIB


def test_a_program_that_ends_by_itself_leaves_nothing(node: SimulatedNode, start: Start) -> None:
    client = start()
    client.ask("reserve", 0, MIB)
    client.submit(0, 0, 10_000)
    client.ask("wait", 0, 10_000)
    client.ask("launch", 0)
    assert client.leave() == 0
    after = node.snapshot()
    assert after.processes == ()
    assert (after.devices[0].used_bytes, after.devices[0].busy_ns) == (0, 10_000)
    assert after.devices[0].launches == 1, "totals never fall"


# --- forks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("child_uses_node", [False, True])
def test_a_child_does_not_keep_its_dead_parent_alive(
    node: SimulatedNode, start: Start, child_uses_node: bool
) -> None:
    parent = start()
    parent.ask("reserve", 0, MIB)
    child = parent.ask("fork", 0, int(child_uses_node))
    try:
        if child_uses_node:
            await_processes(node, {parent.pid, child})
        parent.kill()
        # The child lets go of what it inherited as soon as it runs at all.
        await_gone(node, int(child_uses_node))
        after = node.snapshot()
        assert [p.host_pid for p in after.processes] == [child] * child_uses_node
        assert after.devices[0].used_bytes == 4096 * child_uses_node
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_starts_with_nothing(node: SimulatedNode, start: Start) -> None:
    parent = start()
    parent.ask("reserve", 0, MIB)
    parent.submit(0, 0, HOUR_NS)
    child = parent.ask("fork", 0, 1)
    try:
        snapshot = await_processes(node, {parent.pid, child})
        usage = snapshot.process(child).usages[0]
        assert (usage.used_bytes, usage.busy_ns, usage.queued_ns) == (4096, 0, 0)
        assert snapshot.process(parent.pid).usages[0].used_bytes == MIB
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_program_that_closes_all_descriptors_goes_on(node: SimulatedNode, start: Start) -> None:
    """It is taken for dead, notices it, and starts anew: nothing hangs and nothing is lost."""
    client, other = start(), start()
    client.ask("reserve", 0, MIB)
    client.ask("close")
    assert node.snapshot().processes == ()
    other.ask("reserve", 0, MIB)
    assert client.ask("reserve", 0, 2 * MIB) == 0
    snapshot = node.snapshot()
    assert snapshot.process(client.pid).usages[0].used_bytes == 2 * MIB
    assert snapshot.process(other.pid).usages[0].used_bytes == MIB
    assert snapshot.devices[0].used_bytes == 3 * MIB


def await_processes(node: SimulatedNode, pids: set[int]):
    """The first snapshot with exactly these processes, each with what it reserves first."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        snapshot = node.snapshot()
        if {p.host_pid for p in snapshot.processes if p.usages[0].used_bytes} == pids:
            return snapshot
        time.sleep(0.01)
    raise AssertionError(f"no snapshot with {pids}, but {node.snapshot().processes}")


# --- many, and from elsewhere --------------------------------------------------------------------


def test_sixty_four_processes_at_once(node: SimulatedNode, start: Start) -> None:
    clients = [start() for _ in range(64)]
    ends = [client.submit(0, 0, HOUR_NS) for client in clients]
    for client in clients:
        client.ask("reserve", 0, MIB)
    before = node.snapshot()
    clients[0].ask("wait", 0, before.process(clients[0].pid).usages[0].busy_ns + 4 * MS)
    after = node.snapshot()
    assert {process.host_pid for process in after.processes} == {c.pid for c in clients}
    assert after.devices[0].used_bytes == 64 * MIB
    assert len(set(ends)) == 1, "each has a queue of its own"
    gained = [
        after.process(c.pid).usages[0].busy_ns - before.process(c.pid).usages[0].busy_ns
        for c in clients
    ]
    assert max(gained) - min(gained) <= 2 * MS, "one slice"


def test_a_full_node_says_so(node: SimulatedNode, start: Start) -> None:
    """All 256 slots are taken by forked children of one client; the next process is refused."""
    parent = start()
    children = [parent.ask("fork", 0, 1) for _ in range(256)]
    try:
        await_processes(node, set(children))
        assert parent.ask("reserve", 0, 1) == -87, "EUSERS"
        assert len(node.snapshot().processes) == 256, "looking takes no slot"
        os.kill(children[100], signal.SIGKILL)
        await_processes(node, {*children} - {children[100]})
        assert parent.ask("reserve", 0, 1) == 0
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_other_pid_namespaces(node: SimulatedNode, start: Start) -> None:
    if not is_permitted(*UNSHARE, "true"):
        pytest.skip("new pid namespaces are not permitted")
    inside = [start(*UNSHARE, "--") for _ in range(4)]
    outside = start()
    for client in (*inside, outside):
        client.ask("reserve", 0, MIB)
    snapshot = node.snapshot()
    others = [p for p in snapshot.processes if p.host_pid != outside.pid]
    assert sorted(p.pid for p in others) == [1, 1, 1, 1], "each is the first in its namespace"
    assert len({p.pid_namespace for p in snapshot.processes}) == 5
    parents = {parent_of(p.host_pid) for p in others if p.host_pid}
    assert parents == {client.pid for client in inside}, "found under their pids outside"
    inside[0].kill()  # unshare, which takes its child with it
    await_gone(node, 4)
    assert outside.ask("reserve", 0, outside.ask("free", 0)) == 0


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])


def await_gone(node: SimulatedNode, left: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(node.snapshot().processes) > left:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_any_user_may_share_a_node(node: SimulatedNode, program: Path) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    if not is_permitted(*nobody, "true"):
        pytest.skip("becoming another user is not permitted")
    node.path.parent.chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are for one user only
        Path(folder).chmod(0o755)
        theirs = shutil.copy(program, folder)
        with (
            Client(Path(theirs), node.env, *nobody) as client,
            Client(program, node.env) as ours,
        ):
            assert client.greeting == "ready"
            assert client.ask("reserve", 0, MIB) == 0
            assert ours.ask("reserve", 0, MIB) == 0
            assert len(node.snapshot().processes) == 2
            client.kill()
            assert len(node.snapshot().processes) == 1


# --- many threads, and the sanitizers ------------------------------------------------------------


@pytest.mark.parametrize(
    ("compiler", "sanitizers"),
    [("cc", "address,undefined"), ("cc", "thread"), ("clang", "thread"), ("clang", "undefined")],
)
def test_threads_are_clean_under(compiler: str, sanitizers: str, tmp_path: Path) -> None:
    need_compiler(compiler)
    flags = (f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    threads = compile_program("threads", tmp_path, *flags, compiler=compiler)
    # A forked child has only one of its parent's threads, which TSan takes for a leak.
    options = "report_thread_leaks=0"
    with simulated_node("2xL4") as node:
        run_program(threads, node, "6", "1500", prefix=without_aslr(), TSAN_OPTIONS=options)


def test_deaths_are_clean_under_the_sanitizers(tmp_path: Path) -> None:
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    mayhem = compile_program("mayhem", tmp_path, *flags)
    with simulated_node("2xL4") as node:
        run_program(mayhem, node, "60", "1")
