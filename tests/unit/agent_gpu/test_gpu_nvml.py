"""What the agent makes of an NVML that fails in parts; its functions are replaced one by one."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from deviceplugin.gpus.hardware import Hardware
from deviceplugin.gpus.health import HealthWatch
from deviceplugin.gpus.kernellist import minor_of
from deviceplugin.gpus.nvml import Nvml, NvmlError, XidEvent

UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
LOST = pynvml.NVML_ERROR_GPU_IS_LOST
UUIDS = ["GPU-a", "GPU-b", "GPU-c"]


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
    "nvmlDeviceGetCount": lambda: len(UUIDS),
    "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [],
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


class Hang:
    """A call of NVML that comes back when it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        monkeypatch.setattr(pynvml, call, self._hang)
        monkeypatch.setattr("deviceplugin.gpus.nvml.PATIENCE_S", 0.05)

    def _hang(self, *_: object) -> list[Any]:
        self.entered.set()
        assert self.go.wait(60)
        return []

    @contextmanager
    def in_thread(self, function: Callable[[], object]) -> Iterator[None]:
        thread = threading.Thread(target=function)
        thread.start()
        assert self.entered.wait(60)
        yield
        self.go.set()
        thread.join(60)


def test_who_hangs_in_a_session_keeps_it_open_for_the_others(
    nvml: Nvml, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one would take away the handles under the call that hangs."""
    nvml.watch(UUIDS)
    hang = Hang(monkeypatch, "nvmlDeviceGetComputeRunningProcesses")
    with hang.in_thread(lambda: nvml.processes("GPU-a")):
        with pytest.raises(NvmlError, match="has not answered another call"):
            nvml.open()
        assert nvml.is_open
        assert nvml.vitals("GPU-b").used_bytes == 1 << 30
        assert nvml.watch(["GPU-b"]) == {"GPU-b"}
        assert nvml.wait(1) is None


def test_while_opening_hangs_nobody_else_does(
    nvml: Nvml, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = Hang(monkeypatch, "nvmlInit")
    with hang.in_thread(nvml.open):
        for ask in (lambda: nvml.processes("GPU-a"), lambda: nvml.wait(1), nvml.count):
            with pytest.raises(NvmlError, match="NVML has not been opened"):
                ask()


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


def test_an_xid_of_a_handle_that_is_new_to_us_is_its_gpus(
    nvml: Nvml, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.watch(["GPU-a"])
    events.post(2, 79)
    assert nvml.wait(1) == XidEvent("GPU-b", 79)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", failing(LOST))
    events.post(3, 79)
    assert nvml.wait(1) == XidEvent("", 79)


@pytest.mark.parametrize(
    ("call", "shown"),
    [("nvmlDeviceGetNumGpuCores", "sms"), ("nvmlDeviceGetMemoryAffinity", "numa")],
)
def test_what_is_only_shown_does_not_make_a_gpu_vanish(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, call: str, shown: str
) -> None:
    before = nvml.facts(0)
    monkeypatch.setattr(pynvml, call, failing(UNKNOWN))
    after = nvml.facts(0)
    assert getattr(after, shown) != getattr(before, shown)
    assert after.memory_bytes == before.memory_bytes
    monkeypatch.setattr(pynvml, call, failing(LOST))
    with pytest.raises(NvmlError, match="lost"):
        nvml.facts(0)


@pytest.mark.parametrize("call", ["nvmlDeviceGetFieldValues", "nvmlDeviceGetUtilizationRates"])
def test_nor_does_it_make_one_ill(nvml: Nvml, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr(pynvml, call, failing(UNKNOWN))
    vitals = nvml.vitals("GPU-a")
    assert (vitals.used_bytes, vitals.recovery_action) == (1 << 30, None)
    monkeypatch.setattr(pynvml, call, failing(LOST))
    with pytest.raises(NvmlError, match="lost"):
        nvml.vitals("GPU-a")


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMigMode"])
def test_what_sharing_hangs_on_does(nvml: Nvml, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setattr(pynvml, call, failing(UNKNOWN))
    with pytest.raises(NvmlError, match="Unknown"):
        nvml.vitals("GPU-a")


def test_the_device_node_is_the_kernels_and_never_guessed(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for code in (UNKNOWN, pynvml.NVML_ERROR_NOT_SUPPORTED):
        monkeypatch.setattr(pynvml, "nvmlDeviceGetMinorNumber", failing(code))
        with pytest.raises(NvmlError):
            nvml.facts(0)
    for folder, uuid, minor in (("0000:17:00.0", "GPU-b", 0), ("0000:3b:00.0", "GPU-a", 5)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "information").write_text(
            f"Model: \t\t NVIDIA L4\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        )
    monkeypatch.setattr("deviceplugin.gpus.nvml.minor_of", lambda u: minor_of(u, tmp_path))
    assert nvml.facts(0).minor == 5
    with pytest.raises(NvmlError):
        nvml.facts(2)


def test_a_gpu_without_memory_of_its_own_is_left_out_with_the_reason(
    nvml: Nvml,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    unsupported = failing(pynvml.NVML_ERROR_NOT_SUPPORTED)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", unsupported)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.1")
    pictures: list[Hardware] = []
    watch = HealthWatch(nvml, pictures.append, kernel_list=tmp_path / "gpus", host=tmp_path)
    watch.look()
    assert pictures[-1].gpus == ()
    assert (
        "GPU 0 (GPU-a, NVIDIA L4) is left out: its driver does not tell its memory" in caplog.text
    )
    assert watch.absence is not None
    assert not watch.absence.is_fault
