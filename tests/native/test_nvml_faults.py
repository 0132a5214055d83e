"""What NVML tells of faults: events that are awaited, errors that are counted, lost devices."""

import time
from collections.abc import Iterator

import pytest

from tests.native.nvml_observer import Observer, observing
from tests.simulated import SimulatedNode, simulated_node

INVALID_ARGUMENT, NOT_SUPPORTED, TIMEOUT, GPU_IS_LOST = 2, 3, 10, 15

EVENTS = """
def watch(*indices, types=nvmlEventTypeXidCriticalError):
    watched = nvmlEventSetCreate()
    for index in indices:
        nvmlDeviceRegisterEvents(gpu(index), types, watched)
    return watched

def wait(watched, timeout_ms):
    event = nvmlEventSetWait_v2(watched, timeout_ms)
    return [nvmlDeviceGetIndex(event.device), event.eventType, event.eventData]
"""
XID, DOUBLE_BIT_ECC = 8, 2
LONG_MS = 60_000


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node("2xA100-80G,1xRTX-4090") as node:
        yield node


@pytest.fixture
def observer(node: SimulatedNode) -> Iterator[Observer]:
    with observing(node.env) as observer:
        observer.do(EVENTS)
        yield observer


def test_an_xid_is_an_event_of_its_device(node: SimulatedNode, observer: Observer) -> None:
    observer.do("watched = watch(0, 1)")
    node.inject(1, "xid=31")
    assert observer.ask(f"wait(watched, {LONG_MS})") == [1, XID, 31]
    assert observer.error("wait(watched, 0)") == TIMEOUT


def test_whoever_waits_is_woken(node: SimulatedNode, observer: Observer) -> None:
    observer.do(
        f"""
watched = watch(0)
woken = []
waiter = threading.Thread(target=lambda: woken.append(wait(watched, {LONG_MS})))
waiter.start()
"""
    )
    node.inject(0, "xid=13")
    observer.do("waiter.join()")
    assert observer.ask("woken") == [[0, XID, 13]]


def test_a_wait_without_an_event_ends_in_time_but_not_before(observer: Observer) -> None:
    observer.do("watched = watch(0); began = time.monotonic()")
    assert observer.error("wait(watched, 300)") == TIMEOUT
    assert observer.ask("time.monotonic() - began") >= 0.3


def test_what_happened_before_is_not_told(node: SimulatedNode, observer: Observer) -> None:
    node.inject(0, "xid=31")
    observer.do("watched = watch(0)")
    assert observer.error("wait(watched, 0)") == TIMEOUT
    node.inject(0, "xid=32")
    assert observer.ask("wait(watched, 0)[2]") == 32
    # Registering once more must not skip what is waiting.
    node.inject(0, "xid=43")
    observer.do("nvmlDeviceRegisterEvents(gpu(0), nvmlEventTypeXidCriticalError, watched)")
    assert observer.ask("wait(watched, 0)[2]") == 43


def test_events_come_in_order_to_every_set(node: SimulatedNode, observer: Observer) -> None:
    observer.do("first, second = watch(0), watch(0)")
    for xid in (31, 43, 45):
        node.inject(0, f"xid={xid}")
    for watched in ("first", "second"):
        assert observer.ask(f"[wait({watched}, 0)[2] for _ in range(3)]") == [31, 43, 45]
        assert observer.error(f"wait({watched}, 0)") == TIMEOUT


def test_of_too_many_events_the_last_ones_are_told(node: SimulatedNode, observer: Observer) -> None:
    observer.do("watched = watch(0)")
    for xid in range(100, 120):
        node.inject(0, f"xid={xid}")
    assert observer.ask("[wait(watched, 0)[2] for _ in range(16)]") == list(range(104, 120))
    assert observer.error("wait(watched, 0)") == TIMEOUT


def test_other_devices_are_none_of_a_sets_business(node: SimulatedNode, observer: Observer) -> None:
    observer.do("watched = watch(0)")
    node.inject(1, "xid=31")
    assert observer.error("wait(watched, 0)") == TIMEOUT


def test_a_memory_error_is_counted_and_told(node: SimulatedNode, observer: Observer) -> None:
    observer.do("watched = watch(0, types=nvmlEventTypeDoubleBitEccError)")
    node.inject(0, "xid=48")
    assert observer.ask(f"wait(watched, {LONG_MS})[:2]") == [0, DOUBLE_BIT_ECC]
    counter = "nvmlDeviceGetTotalEccErrors(gpu({}), {}, NVML_VOLATILE_ECC)"
    assert observer.ask(counter.format(0, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED")) == 1
    assert observer.ask(counter.format(0, "NVML_MEMORY_ERROR_TYPE_CORRECTED")) == 0
    assert observer.ask(counter.format(1, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED")) == 0
    assert (
        observer.ask(
            "nvmlDeviceGetMemoryErrorCounter(gpu(0), NVML_MEMORY_ERROR_TYPE_UNCORRECTED,"
            " NVML_AGGREGATE_ECC, NVML_MEMORY_LOCATION_DEVICE_MEMORY)"
        )
        == 1
    )
    field = "nvmlDeviceGetFieldValues(gpu(0), [NVML_FI_DEV_ECC_DBE_VOL_TOTAL])[0].value.ullVal"
    assert observer.ask(field) == 1


def test_the_driver_asks_for_a_reset_after_an_error_that_stays(
    node: SimulatedNode, observer: Observer
) -> None:
    """What tells a monitoring agent that an event was not the application's fault."""
    observer.do(
        "def action(index):\n"
        "    fields = [NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]\n"
        "    answer = nvmlDeviceGetFieldValues(gpu(index), fields)[0]\n"
        "    return [answer.nvmlReturn, answer.value.uiVal]"
    )
    node.inject(0, "xid=31")
    assert observer.ask("action(0)") == [0, 0]
    node.inject(0, "xid=48")
    assert observer.ask("action(0)") == [0, 1]
    assert observer.ask("action(1)") == [0, 0]
    node.inject(0, "clear")
    assert observer.ask("action(0)") == [0, 0]


def test_boards_without_ecc_have_no_such_events(observer: Observer) -> None:
    assert observer.ask("nvmlDeviceGetSupportedEventTypes(gpu(0))") == 0b1011
    assert observer.ask("nvmlDeviceGetSupportedEventTypes(gpu(2))") == XID
    assert observer.error("watch(2, types=nvmlEventTypeDoubleBitEccError)") == NOT_SUPPORTED
    assert observer.error("watch(0, types=nvmlEventTypeClock)") == NOT_SUPPORTED
    uncorrected = "NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC"
    assert observer.error(f"nvmlDeviceGetTotalEccErrors(gpu(2), {uncorrected})") == NOT_SUPPORTED


def test_the_old_wait_writes_no_further_than_its_struct_reached(
    node: SimulatedNode, observer: Observer
) -> None:
    observer.do("watched = watch(0); room = (ctypes.c_ubyte * 40)(*[0xAA] * 40)")
    node.inject(0, "xid=31")
    assert observer.ask("lib.nvmlEventSetWait(watched, room, 0)") == 0
    assert observer.ask("room[16]") == 31
    assert observer.ask("set(room[24:]) == {0xAA}")


def test_a_freed_set_is_refused(observer: Observer) -> None:
    observer.do("watched = watch(0); nvmlEventSetFree(watched)")
    assert observer.error("wait(watched, 0)") == INVALID_ARGUMENT
    assert observer.error("nvmlEventSetFree(watched)") == INVALID_ARGUMENT
    register = "nvmlDeviceRegisterEvents(gpu(0), nvmlEventTypeXidCriticalError, watched)"
    assert observer.error(register) == INVALID_ARGUMENT


def test_a_set_freed_by_another_thread_ends_the_wait(observer: Observer) -> None:
    observer.do(
        f"""
watched = watch(0)
answers = []
data = (ctypes.c_ubyte * 64)()
waiter = threading.Thread(
    target=lambda: answers.append(lib.nvmlEventSetWait_v2(watched, data, {LONG_MS}))
)
waiter.start()
nvmlEventSetFree(watched)
waiter.join()
"""
    )
    assert observer.ask("answers") == [INVALID_ARGUMENT]


# --- lost devices ----------------------------------------------------------------------------


def test_a_lost_device_answers_nothing_else(node: SimulatedNode, observer: Observer) -> None:
    observer.do("handle = gpu(0); uuid = nvmlDeviceGetUUID(handle)")
    node.inject(0, "lost")
    for call in (
        "nvmlDeviceGetName(handle)",
        "nvmlDeviceGetMemoryInfo(handle)",
        "nvmlDeviceGetUtilizationRates(handle)",
        "nvmlDeviceGetComputeRunningProcesses(handle)",
        "nvmlDeviceGetHandleByIndex(0)",
        "nvmlDeviceGetHandleByUUID(uuid)",
        "nvmlDeviceGetTopologyCommonAncestor(gpu(1), handle)",
    ):
        assert observer.error(call) == GPU_IS_LOST, call
    assert observer.ask("nvmlDeviceGetCount()") == 3
    assert observer.ask("nvmlDeviceGetName(gpu(1))") == "NVIDIA A100-SXM4-80GB"
    node.inject(0, "clear")
    assert observer.ask("nvmlDeviceGetUUID(handle) == uuid")


def test_a_waiter_learns_the_reason_first_and_the_loss_once(
    node: SimulatedNode, observer: Observer
) -> None:
    """A client that goes on waiting must not run hot, so a loss is told once."""
    observer.do("watched = watch(0, 1)")
    node.inject(1, "xid=79")
    event = f"nvmlEventSetWait_v2(watched, {LONG_MS})"
    observer.do(f"event = {event}")
    assert observer.ask("[event.eventType, event.eventData]") == [XID, 79]
    assert observer.error("wait(watched, 0)") == GPU_IS_LOST
    assert observer.error("wait(watched, 0)") == TIMEOUT
    node.inject(1, "clear")
    assert observer.error("wait(watched, 0)") == TIMEOUT
    node.inject(1, "lost")
    assert observer.error("wait(watched, 0)") == GPU_IS_LOST


def test_a_session_that_starts_later_finds_the_device_lost(node: SimulatedNode) -> None:
    node.inject(1, "lost")
    with observing(node.env) as observer:
        assert observer.ask("nvmlDeviceGetCount()") == 3
        assert observer.error("gpu(1)") == GPU_IS_LOST
        assert observer.ask("nvmlDeviceGetIndex(gpu(2))") == 2


def test_slow_answers_on_request(node: SimulatedNode, observer: Observer) -> None:
    observer.do("handle = gpu(0)")
    node.inject(0, "nvml-slow=400ms")
    began = time.monotonic()
    observer.ask("nvmlDeviceGetName(handle)")
    assert time.monotonic() - began >= 0.4
    assert observer.ask("nvmlDeviceGetCount()") == 3
