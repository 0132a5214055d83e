"""What the agent makes of an NVML that fails in parts; its functions are replaced one by one."""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from deviceplugin.gpus.nvml import Nvml, NvmlError, XidEvent

UUIDS = ["GPU-a", "GPU-b", "GPU-c"]
Setter = Callable[..., None]


def failing(code: int) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise pynvml.NVMLError(code)

    return fail


def number(handle: Any) -> int:
    return (handle.value or 0) - 1


WELL: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetHandleByIndex": lambda index: ctypes.c_void_p(index + 1),
    "nvmlDeviceGetHandleByUUID": lambda uuid: ctypes.c_void_p(UUIDS.index(uuid) + 1),
    "nvmlDeviceGetUUID": lambda handle: UUIDS[number(handle)],
    "nvmlDeviceGetName": lambda _: "NVIDIA L4",
    "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=24 << 30, used=1 << 30),
    "nvmlDeviceGetCudaComputeCapability": lambda _: (8, 9),
    "nvmlDeviceGetNumGpuCores": lambda _: 7424,
    "nvmlDeviceGetMemoryAffinity": lambda *_: [2],
    "nvmlDeviceGetMinorNumber": number,
    "nvmlDeviceGetMigMode": failing(pynvml.NVML_ERROR_NOT_SUPPORTED),
    "nvmlDeviceGetFieldValues": failing(pynvml.NVML_ERROR_NOT_SUPPORTED),
    "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=7),
}


class Events:
    """NVML's sets of events: who is in which, which are still there, what comes next."""

    def __init__(self) -> None:
        self.sets: dict[int, list[str]] = {}
        self.unwilling: dict[str, int] = {}
        self.next: Any = None

    def create(self) -> int:
        name = len(self.sets)
        self.sets[name] = []
        return name

    def register(self, handle: Any, _: int, name: int) -> None:
        uuid = UUIDS[number(handle)]
        if uuid in self.unwilling:
            raise pynvml.NVMLError(self.unwilling[uuid])
        self.sets[name].append(uuid)

    def free(self, name: int) -> None:
        self.sets[name] = ["freed"]

    def wait(self, name: int, _: int) -> Any:
        assert self.sets[name] != ["freed"]
        if self.next is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        event, self.next = self.next, None
        return event

    def post(self, handle: int, xid: int) -> None:
        self.next = SimpleNamespace(
            device=ctypes.c_void_p(handle),
            eventType=pynvml.nvmlEventTypeXidCriticalError,
            eventData=xid,
        )


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    events = Events()
    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", events.create)
    monkeypatch.setattr(pynvml, "nvmlEventSetFree", events.free)
    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", events.wait)
    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", events.register)
    return events


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    for name, function in WELL.items():
        monkeypatch.setattr(pynvml, name, function)
    nvml = Nvml()
    nvml.open()
    return nvml


def test_one_gpu_that_cannot_be_watched_does_not_end_the_watch_over_the_others(
    nvml: Nvml, events: Events
) -> None:
    events.unwilling["GPU-a"] = pynvml.NVML_ERROR_UNKNOWN
    events.unwilling["GPU-b"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml.watch(UUIDS) == {"GPU-b", "GPU-c"}
    assert list(events.sets.values()) == [["GPU-c"]]


def test_the_watch_from_before_goes_on_when_a_new_one_cannot_be_made(
    nvml: Nvml, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.watch(UUIDS)
    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", failing(pynvml.NVML_ERROR_UNKNOWN))
    with pytest.raises(NvmlError):
        nvml.watch(["GPU-a"])
    events.post(3, 79)
    assert nvml.wait(1) == XidEvent("GPU-c", 79)


def test_an_exchanged_set_is_freed_when_nobody_waits_for_it(nvml: Nvml, events: Events) -> None:
    nvml.watch(UUIDS)
    nvml.watch(["GPU-a"])
    assert events.sets[0] == UUIDS
    assert nvml.wait(1) is None
    assert events.sets == {0: ["freed"], 1: ["GPU-a"]}
