"""Which processes NVML shows, under which pid, with how much memory."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.native.core_programs import Client, compile_program, is_permitted
from tests.native.nvml_observer import Observer, observing
from tests.simulated import SimulatedNode, simulated_node

MIB = 1 << 20
NOT_FOUND, INSUFFICIENT_SIZE = 6, 7
OWN_PID_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

Start = Callable[..., Client]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("client", tmp_path_factory.mktemp("core"))


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xH100-80G,1xL4") as node:
        yield node


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


@pytest.fixture
def observer(node: SimulatedNode) -> Iterator[Observer]:
    with observing(node.env) as observer:
        yield observer


@pytest.fixture
def needs_namespaces() -> None:
    if not is_permitted(*OWN_PID_NAMESPACE, "true"):
        pytest.skip("this user may not make pid namespaces")


def processes(observer: Observer, device: int = 0, entry: str = "") -> dict[int, int]:
    """Memory in MiB by pid."""
    listed = observer.ask(
        f"[[process.pid, process.usedGpuMemory] for process in"
        f" nvmlDeviceGetComputeRunningProcesses{entry}(gpu({device}))]"
    )
    return {pid: used >> 20 for pid, used in listed}


def test_processes_are_listed_with_their_memory(observer: Observer, start: Start) -> None:
    first, second, bystander = start(), start(), start()
    first.ask("reserve", 0, 300 * MIB)
    second.ask("reserve", 0, 500 * MIB)
    second.ask("reserve", 1, 7 * MIB)
    bystander.ask("launch", 1)
    assert processes(observer) == {first.pid: 300, second.pid: 500}
    assert processes(observer, 1) == {second.pid: 7}
    assert observer.ask("nvmlDeviceGetMemoryInfo(gpu(0)).used") == 800 * MIB
    first.ask("release", 0, 100 * MIB)
    assert processes(observer)[first.pid] == 200


@pytest.mark.parametrize("entry", ["", "_v2", "_v3"])
def test_every_version_of_the_list_says_the_same(
    observer: Observer, start: Start, entry: str
) -> None:
    client = start()
    client.ask("reserve", 0, 64 * MIB)
    assert processes(observer, 0, entry) == {client.pid: 64}
    assert observer.ask(f"len(nvmlDeviceGetGraphicsRunningProcesses{entry}(gpu(0)))") == 0
    assert observer.ask(f"len(nvmlDeviceGetMPSComputeRunningProcesses{entry}(gpu(0)))") == 0


def test_the_first_version_has_smaller_entries(observer: Observer, start: Start) -> None:
    clients = [start() for _ in range(2)]
    for client in clients:
        client.ask("reserve", 0, 5 * MIB)
    observer.do(
        "count = ctypes.c_uint(4); room = (ctypes.c_ulonglong * 8)(*[7] * 8)\n"
        "answer = lib.nvmlDeviceGetComputeRunningProcesses(gpu(0), ctypes.byref(count), room)"
    )
    assert observer.ask("[answer, count.value]") == [0, 2]
    values = observer.ask("list(room)")
    assert sorted(pid & 0xFFFFFFFF for pid in (values[0], values[2])) == sorted(
        client.pid for client in clients
    )
    assert (values[1], values[3]) == (5 * MIB, 5 * MIB)
    assert values[4:] == [7] * 4, "nothing is written behind the list"


def test_a_list_that_does_not_fit_says_how_much_it_needs(observer: Observer, start: Start) -> None:
    for _ in range(3):
        start().ask("reserve", 0, MIB)
    observer.do(
        "def call(entry, size, room):\n"
        "    count = ctypes.c_uint(size)\n"
        "    return [getattr(lib, entry)(gpu(0), ctypes.byref(count), room), count.value]\n"
        "room = (ctypes.c_ubyte * 256)()"
    )
    for version in ("", "_v2", "_v3"):
        entry = f"nvmlDeviceGetComputeRunningProcesses{version}"
        assert observer.ask(f"call({entry!r}, 0, None)") == [INSUFFICIENT_SIZE, 3]
        assert observer.ask(f"call({entry!r}, 2, room)") == [INSUFFICIENT_SIZE, 3]
        assert observer.ask(f"call({entry!r}, 3, room)") == [0, 3]
        assert observer.ask(f"call({entry!r}, 9, room)") == [0, 3]


def test_an_empty_list_needs_no_room(observer: Observer) -> None:
    observer.do("count = ctypes.c_uint(0)")
    call = "lib.nvmlDeviceGetComputeRunningProcesses_v3(gpu(0), ctypes.byref(count), None)"
    assert observer.ask(call) == 0


def test_details_are_listed_by_mode(observer: Observer, start: Start) -> None:
    client = start()
    client.ask("reserve", 0, 9 * MIB)
    compute = "nvmlDeviceGetRunningProcessDetailList(gpu({}), nvmlProcessDetailList_v1, {})"
    listed = observer.ask(
        f"[[p.pid, p.usedGpuMemory] for p in {compute.format(0, 'NVML_PROCESS_MODE_COMPUTE')}]"
    )
    assert listed == [[client.pid, 9 * MIB]]
    assert observer.ask(f"len({compute.format(0, 'NVML_PROCESS_MODE_GRAPHICS')})") == 0


def test_a_killed_process_is_gone_with_its_memory(observer: Observer, start: Start) -> None:
    client = start()
    client.ask("reserve", 0, 100 * MIB)
    client.submit(0, 0, 3600 * 10**9)
    assert processes(observer) == {client.pid: 100}
    client.kill()
    assert processes(observer) == {}
    assert observer.ask("nvmlDeviceGetMemoryInfo(gpu(0)).used") == 0


def test_names_are_those_of_the_executables(
    observer: Observer, start: Start, program: Path
) -> None:
    client = start()
    client.ask("reserve", 0, MIB)
    name = observer.ask(f"nvmlSystemGetProcessName({client.pid})")
    assert str(program).endswith(name)
    assert len(name) > len("client")
    assert "python" in observer.ask(f"nvmlSystemGetProcessName({observer.pid})")
    assert observer.error("nvmlSystemGetProcessName(2**22 + 1)") == NOT_FOUND
    observer.do("text = ctypes.create_string_buffer(4)")
    assert observer.ask(f"lib.nvmlSystemGetProcessName({client.pid}, text, 4)") == 0
    assert observer.ask("text.value.decode()") == name[:3]


# --- other pid namespaces --------------------------------------------------------------------


def child_of(pid: int) -> int:
    """`unshare` waits for the process that it has put into the namespace."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1
    return int(children[0])


@pytest.mark.usefixtures("needs_namespaces")
def test_the_host_sees_processes_of_containers_under_its_own_pids(
    observer: Observer, start: Start
) -> None:
    here, there, elsewhere = start(), start(*OWN_PID_NAMESPACE), start(*OWN_PID_NAMESPACE)
    for number, client in enumerate((here, there, elsewhere)):
        client.ask("reserve", 0, (number + 1) * MIB)
    assert processes(observer) == {
        here.pid: 1,
        child_of(there.pid): 2,
        child_of(elsewhere.pid): 3,
    }
    name = observer.ask(f"nvmlSystemGetProcessName({child_of(there.pid)})")
    assert name.endswith("client")


@pytest.mark.usefixtures("needs_namespaces")
def test_a_process_that_ends_in_a_container_is_not_mistaken_for_its_successor(
    observer: Observer, start: Start
) -> None:
    """Slot, inner pid and device are the same; the pid that the host sees is another."""
    for mib in (4, 5, 6):
        client = start(*OWN_PID_NAMESPACE)
        client.ask("reserve", 0, mib * MIB)
        assert processes(observer) == {child_of(client.pid): mib}
        assert client.leave() == 0


@pytest.mark.usefixtures("needs_namespaces")
def test_a_container_sees_its_own_processes_only(
    node: SimulatedNode, start: Start, program: Path
) -> None:
    start().ask("reserve", 0, MIB)
    start(*OWN_PID_NAMESPACE).ask("reserve", 0, 2 * MIB)
    with observing(node.env, *OWN_PID_NAMESPACE) as inside:
        inside.do(
            "import subprocess\n"
            f"client = subprocess.Popen([{str(program)!r}], stdin=subprocess.PIPE,"
            " stdout=subprocess.PIPE, text=True)\n"
            f"client.stdin.write('reserve 0 {3 * MIB}\\n'); client.stdin.flush()\n"
            "client.stdout.readline(); client.stdout.readline()"
        )
        assert processes(inside) == {inside.ask("client.pid"): 3}
        assert inside.ask("nvmlDeviceGetMemoryInfo(gpu(0)).used") == 6 * MIB
        inside.do("client.stdin.close(); client.wait()")
        assert processes(inside) == {}
