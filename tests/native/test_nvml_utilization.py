"""How busy NVML says that devices and processes are.

Work is queued far ahead, so devices are busy without a gap however late anybody runs, and what is
asserted are whole sampling windows of the node's own clock.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.native.core_programs import Client, compile_program
from tests.native.nvml_observer import Observer, await_answer, observing
from tests.simulated import SimulatedNode, simulated_node

MIB = 1 << 20
S = 10**9
WINDOW_US = 166_666
NOT_FOUND, INSUFFICIENT_SIZE, VERSION_MISMATCH = 6, 7, 25

Start = Callable[[], Client]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("client", tmp_path_factory.mktemp("core"))


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("1xA100-80G,1xL4,1xRTX-4090") as node:
        yield node


@pytest.fixture
def start(program: Path, node: SimulatedNode) -> Iterator[Start]:
    clients: list[Client] = []

    def start_one() -> Client:
        clients.append(Client(program, node.env))
        assert clients[-1].greeting == "ready"
        # A context: NVML lists who holds memory.
        clients[-1].ask("reserve", 0, 10 * MIB)
        clients[-1].ask("reserve", 1, 10 * MIB)
        return clients[-1]

    yield start_one
    for client in clients:
        client.__exit__()


@pytest.fixture
def observer(node: SimulatedNode) -> Iterator[Observer]:
    with observing(node.env) as observer:
        observer.do(
            "def newest(index):\n"
            "    kind = NVML_GPU_UTILIZATION_SAMPLES\n"
            "    return nvmlDeviceGetSamples(gpu(index), kind, 0)[1][-1].timeStamp\n"
            "def shares(index, since):\n"
            "    found = nvmlDeviceGetProcessUtilization(gpu(index), since)\n"
            "    return {sample.pid: sample.smUtil for sample in found}\n"
        )
        yield observer


def await_whole_windows(observer: Observer, device: int = 0, windows: int = 1) -> int:
    """Returns when so many windows lie wholly after the call, and the time stamp before them."""
    seen = observer.ask(f"newest({device})")
    # The window after the newest complete one may have begun before the call.
    last_mixed = seen + WINDOW_US
    await_answer(
        lambda: observer.ask(f"newest({device})"),
        lambda newest: newest >= last_mixed + windows * WINDOW_US,
    )
    # Window ends fall between microseconds.
    return int(last_mixed + 1)


def shares(observer: Observer, device: int, since: int) -> dict[int, int]:
    found = observer.ask(f"shares({device}, {since})")
    return {int(pid): percent for pid, percent in found.items()}


def test_an_idle_device_is_idle(observer: Observer, start: Start) -> None:
    client = start()
    since = await_whole_windows(observer)
    rates = observer.ask("vars(nvmlStructToFriendlyObject(nvmlDeviceGetUtilizationRates(gpu(0))))")
    assert rates == {"gpu": 0, "memory": 0}
    assert shares(observer, 0, since) == {client.pid: 0}


def test_work_without_a_gap_is_a_hundred_percent(observer: Observer, start: Start) -> None:
    client = start()
    client.submit(0, 0, 3600 * S)
    since = await_whole_windows(observer)
    assert observer.ask("nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 100
    assert 0 < observer.ask("nvmlDeviceGetUtilizationRates(gpu(0)).memory") <= 100
    assert shares(observer, 0, since) == {client.pid: 100}
    assert observer.ask("nvmlDeviceGetUtilizationRates(gpu(1)).gpu") == 0
    assert shares(observer, 1, since) == {client.pid: 0}


def test_processes_that_share_a_device_are_told_apart(observer: Observer, start: Start) -> None:
    first, second, idle = start(), start(), start()
    for client in (first, second):
        client.submit(0, 0, 3600 * S)
    since = await_whole_windows(observer, windows=3)
    assert observer.ask("nvmlDeviceGetUtilizationRates(gpu(0)).gpu") == 100
    found = shares(observer, 0, since)
    assert found.keys() == {first.pid, second.pid, idle.pid}
    # Turns of 2 ms do not divide a window evenly: one of them may have one turn more.
    assert abs(found[first.pid] - 50) <= 1
    assert abs(found[second.pid] - 50) <= 1
    assert found[idle.pid] == 0


def test_work_before_the_last_look_does_not_count(observer: Observer, start: Start) -> None:
    client = start()
    client.submit(0, 0, 3600 * S)
    since = await_whole_windows(observer)
    assert shares(observer, 0, since) == {client.pid: 100}
    client.ask("cancel", 0)
    since = await_whole_windows(observer)
    assert shares(observer, 0, since) == {client.pid: 0}


def test_nothing_is_newer_than_the_newest_sample(observer: Observer, start: Start) -> None:
    start()
    assert observer.error("nvmlDeviceGetProcessUtilization(gpu(0), 2**62)") == NOT_FOUND
    kind = "NVML_GPU_UTILIZATION_SAMPLES"
    assert observer.error(f"nvmlDeviceGetSamples(gpu(0), {kind}, 2**62)") == NOT_FOUND


def test_a_device_without_processes_has_no_samples_of_them(observer: Observer) -> None:
    assert observer.error("nvmlDeviceGetProcessUtilization(gpu(0), 0)") == NOT_FOUND


def test_drivers_that_hide_idle_processes_can_be_imitated(program: Path) -> None:
    with (
        simulated_node("1xL4", hide_idle=True) as node,
        observing(node.env) as observer,
        Client(program, node.env) as busy,
        Client(program, node.env) as idle,
    ):
        for client in (busy, idle):
            client.ask("reserve", 0, MIB)
        assert observer.error("nvmlDeviceGetProcessUtilization(gpu(0), 0)") == NOT_FOUND
        busy.submit(0, 0, 3600 * S)
        pids = "[sample.pid for sample in nvmlDeviceGetProcessUtilization(gpu(0), 0)]"
        await_answer(lambda: observer.error(pids), lambda error: error == 0)
        assert observer.ask(pids) == [busy.pid]
        assert observer.ask("len(nvmlDeviceGetComputeRunningProcesses(gpu(0)))") == 2


def test_a_list_that_does_not_fit_says_how_much_it_needs(observer: Observer, start: Start) -> None:
    for _ in range(2):
        start()
    observer.do(
        "def call(size, room):\n"
        "    count = ctypes.c_uint(size)\n"
        "    answer = lib.nvmlDeviceGetProcessUtilization("
        "gpu(0), room, ctypes.byref(count), ctypes.c_ulonglong(0))\n"
        "    return [answer, count.value]\n"
        "room = (c_nvmlProcessUtilizationSample_t * 8)()"
    )
    assert observer.ask("call(0, None)") == [INSUFFICIENT_SIZE, 2]
    assert observer.ask("call(1, room)") == [INSUFFICIENT_SIZE, 2]
    assert observer.ask("call(8, room)") == [0, 2]


def test_the_newer_list_says_the_same(observer: Observer, start: Start) -> None:
    client = start()
    client.submit(0, 0, 3600 * S)
    since = await_whole_windows(observer)
    observer.do(
        f"""
room = (c_nvmlProcessUtilizationInfo_v1_t * 4)()
info = c_nvmlProcessesUtilizationInfo_v1_t()
info.version, info.processSamplesCount, info.lastSeenTimeStamp = 5, 0, {since}
def call():
    answer = lib.nvmlDeviceGetProcessesUtilizationInfo(gpu(0), ctypes.byref(info))
    return [answer, info.processSamplesCount]
"""
    )
    assert observer.ask("call()") == [VERSION_MISMATCH, 0]
    observer.do("info.version = ctypes.sizeof(info) | 1 << 24")
    assert observer.ask("call()") == [INSUFFICIENT_SIZE, 1]
    observer.do("info.procUtilArray = room")
    assert observer.ask("call()") == [0, 1]
    assert observer.ask("[room[0].pid, room[0].smUtil]") == [client.pid, 100]


def test_samples_come_one_a_window_and_only_the_new_ones(observer: Observer) -> None:
    await_whole_windows(observer)
    observer.do(
        "def stamps(since):\n"
        "    found = nvmlDeviceGetSamples(gpu(0), NVML_GPU_UTILIZATION_SAMPLES, since)[1]\n"
        "    return [sample.timeStamp for sample in found]\n"
        "all_stamps = stamps(0); newer_stamps = stamps(all_stamps[-3])"
    )
    stamps = observer.ask("all_stamps")
    assert len(stamps) == 64
    steps = {later - earlier for earlier, later in pairwise(stamps)}
    assert steps <= {WINDOW_US, WINDOW_US + 1}
    assert observer.ask("newer_stamps[:2]") == stamps[-2:]


def test_samples_follow_the_load(observer: Observer, start: Start) -> None:
    start().submit(0, 0, 3600 * S)
    since = await_whole_windows(observer, windows=2)
    observer.do(
        f"def values(kind): return [sample.sampleValue.uiVal for sample in"
        f" nvmlDeviceGetSamples(gpu(0), kind, {since})[1]]"
    )
    assert set(observer.ask("values(NVML_GPU_UTILIZATION_SAMPLES)")) == {100}
    assert set(observer.ask("values(NVML_PROCESSOR_CLK_SAMPLES)")) == {1410}
    assert min(observer.ask("values(NVML_TOTAL_POWER_SAMPLES)")) > 300_000


def test_time_stamps_are_those_of_the_wall_clock(observer: Observer) -> None:
    age_s = observer.ask("time.time() - newest(0) / 1e6")
    assert -1 < age_s < 600


# --- sensors ---------------------------------------------------------------------------------

SENSORS = """
def sensors(index):
    handle = gpu(index)
    return {
        "watts": nvmlDeviceGetPowerUsage(handle) // 1000,
        "celsius": nvmlDeviceGetTemperature(handle, NVML_TEMPERATURE_GPU),
        "sm": nvmlDeviceGetClockInfo(handle, NVML_CLOCK_SM),
        "memory": nvmlDeviceGetClockInfo(handle, NVML_CLOCK_MEM),
        "state": nvmlDeviceGetPerformanceState(handle),
        "reasons": nvmlDeviceGetCurrentClocksEventReasons(handle),
    }
"""


def test_sensors_follow_the_load(observer: Observer, start: Start) -> None:
    observer.do(SENSORS)
    assert observer.ask("sensors(1)") == {
        "watts": 10,
        "celsius": 31,
        "sm": 210,
        "memory": 405,
        "state": 8,
        "reasons": 1,
    }
    start().submit(1, 0, 3600 * S)
    await_whole_windows(observer, 1)
    assert observer.ask("sensors(1)") == {
        "watts": 66,
        "celsius": 71,
        "sm": 2040,
        "memory": 6251,
        "state": 0,
        "reasons": 0,
    }
    assert observer.ask("nvmlDeviceGetPowerManagementLimit(gpu(1))") == 72_000
    assert observer.ask("nvmlDeviceGetTemperatureThreshold(gpu(1), 1)") > 71
    assert observer.ask("nvmlDeviceGetFanSpeed(gpu(2))") == 30


def test_energy_adds_up_to_the_busy_time_and_never_falls(
    node: SimulatedNode, observer: Observer, start: Start
) -> None:
    def energy_mj() -> int:
        return int(observer.ask("nvmlDeviceGetTotalEnergyConsumption(gpu(0))"))

    def busy_ns() -> int:
        return node.snapshot().devices[0].busy_ns

    readings = [energy_mj()]
    for _ in range(3):
        client = start()
        before_mj, before_ns = energy_mj(), busy_ns()
        client.submit(0, 0, 3600 * S)
        await_whole_windows(observer)
        after_ns, after_mj = busy_ns(), energy_mj()
        # 400 W board: 368 W when busy, 56 W when idle.
        assert after_mj - before_mj >= (368 - 56) * (after_ns - before_ns) // 10**6
        client.kill()
        readings += [before_mj, after_mj, energy_mj()]
    assert readings == sorted(readings)
