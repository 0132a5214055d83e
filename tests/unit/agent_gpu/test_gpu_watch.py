"""How the watch over GPUs treats a driver that goes, comes back, or shows other GPUs."""

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pynvml
import pytest

from aliquot.protocol.inventory import Link
from deviceplugin.gpus import health
from deviceplugin.gpus.hardware import Hardware
from deviceplugin.gpus.health import EVENT_WAIT_MS, PROBE_S, HealthWatch
from deviceplugin.gpus.inventory import Choice
from deviceplugin.gpus.nvml import GpuFacts, Nvml, NvmlError, Vitals, XidEvent

GIB = 1 << 30


def lost() -> NvmlError:
    return NvmlError("GPU", "GPU is lost", pynvml.NVML_ERROR_GPU_IS_LOST)


def unloaded() -> NvmlError:
    return NvmlError("NVML", "Driver Not Loaded", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)


@dataclass
class Driver:
    """Stands in for a session: what it shows is what the test has put here."""

    gpus: list[str] = field(default_factory=lambda: ["GPU-a", "GPU-b"])
    mig: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    is_loaded: bool = True
    opened: int = 0
    is_open: bool = False
    watched: set[str] = field(default_factory=set)
    is_watching: bool = False
    event: XidEvent | None = None
    watch_fails: bool = False
    stale: set[str] = field(default_factory=set)
    """Those that answer in a new session only."""
    deaf: set[str] = field(default_factory=set)
    """Those that cannot be watched just now."""
    hangs: dict[str, threading.Event] = field(default_factory=dict)
    """Calls, or GPUs, that come back when their event is set."""

    def hang(self, *names: str) -> None:
        for name in names:
            event = self.hangs.get(name)
            assert event is None or event.wait(60)

    def open(self) -> None:
        self.hang("open")
        if not self.is_loaded:
            raise unloaded()
        self.opened += 1
        self.is_open = True
        self.stale.clear()

    def close(self) -> None:
        self.is_open = self.is_watching = False

    def driver(self) -> str:
        return "610.1"

    def count(self) -> int:
        return len(self.gpus)

    def facts(self, index: int) -> GpuFacts:
        uuid = self.gpus[index]
        self.hang("facts", uuid)
        if uuid in self.lost:
            raise lost()
        return GpuFacts(uuid, index, "A100", 80 * GIB, 108, 0, index)

    def vitals(self, uuid: str) -> Vitals:
        self.hang("vitals", uuid)
        if not self.is_loaded:
            raise unloaded()
        if uuid in self.lost | self.stale:
            raise lost()
        if uuid not in self.gpus:
            raise NvmlError(uuid, "it is not there any more", pynvml.NVML_ERROR_NOT_FOUND)
        return Vitals(0, uuid in self.mig, 0)

    def is_linked(self, one: str, other: str) -> bool:
        self.hang("links", one, other)
        return False

    def common_ancestor(self, one: str, other: str) -> int:
        return 30

    def watch(self, uuids: object) -> frozenset[str]:
        self.hang("watch")
        if self.watch_fails:
            raise NvmlError("watching", "Unknown Error", pynvml.NVML_ERROR_UNKNOWN)
        self.watched, self.is_watching = set(cast("set[str]", uuids)) - self.deaf, True
        return frozenset(self.watched)

    def wait(self, timeout_ms: int) -> XidEvent | None:
        time.sleep(0.001)
        event, self.event = self.event, None
        return event


@dataclass
class Watched:
    driver: Driver
    watch: HealthWatch
    pictures: list[Hardware]

    def look(self) -> dict[str, str]:
        self.watch.look()
        return {gpu.uuid: gpu.unusable for gpu in self.pictures[-1].gpus}


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return make(tmp_path)


def make(
    tmp_path: Path,
    choice: Choice | None = None,
    driver: Driver | None = None,
    numbers: Path | None = None,
) -> Watched:
    driver = driver or Driver()
    pictures: list[Hardware] = []
    watch = HealthWatch(
        cast("Nvml", driver),
        pictures.append,
        choice,
        kernel_list=tmp_path / "gpus",
        host=tmp_path,
        numbers=numbers,
    )
    return Watched(driver, watch, pictures)


def test_only_changes_are_told(watched: Watched) -> None:
    assert watched.look() == {"GPU-a": "", "GPU-b": ""}
    watched.look()
    assert len(watched.pictures) == 1
    assert watched.pictures[0].links == ((Link.NVLINK, Link.NUMA), (Link.NUMA, Link.NVLINK))


def test_a_driver_that_is_unloaded_and_loaded_again(watched: Watched) -> None:
    watched.look()
    watched.driver.is_loaded = False
    assert watched.look() == dict.fromkeys(
        ("GPU-a", "GPU-b"), "NVML does not answer: Driver Not Loaded"
    )
    watched.look()
    watched.driver.is_loaded = True
    assert watched.look() == {"GPU-a": "", "GPU-b": ""}
    assert watched.driver.opened == 2
    assert watched.driver.watched == {"GPU-a", "GPU-b"}


def test_without_a_driver_there_is_a_picture_with_no_gpus(tmp_path: Path) -> None:
    watched = make(tmp_path, driver=Driver(is_loaded=False))
    assert watched.look() == {}
    assert watched.pictures == [Hardware()]


def test_a_gpu_that_the_kernel_lists_anew_is_looked_for(watched: Watched, tmp_path: Path) -> None:
    watched.look()
    watched.driver.gpus.append("GPU-c")
    assert watched.look() == {"GPU-a": "", "GPU-b": ""}, "a session shows what it has found"
    (tmp_path / "gpus" / "0000:81:00.0").mkdir(parents=True)
    assert watched.look() == {"GPU-a": "", "GPU-b": "", "GPU-c": ""}
    assert watched.driver.opened == 2
    watched.look()
    assert watched.driver.opened == 2


def test_a_gpu_that_was_taken_out_stays_known(watched: Watched, tmp_path: Path) -> None:
    """Containers still have ids of it, which must turn unhealthy instead of unknown."""
    watched.look()
    watched.driver.gpus.remove("GPU-a")
    (tmp_path / "gpus" / "0000:81:00.0").mkdir(parents=True)
    assert watched.look() == {"GPU-a": "it is not there any more", "GPU-b": ""}


def test_events_are_awaited_of_those_that_answer(watched: Watched) -> None:
    watched.look()
    watched.driver.lost.add("GPU-b")
    watched.look()
    assert watched.driver.watched == {"GPU-a"}
    watched.driver.lost.clear()
    watched.look()
    assert watched.driver.watched == {"GPU-a", "GPU-b"}


def test_watching_for_events_is_tried_again_until_it_succeeds(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.driver.watch_fails = True
    watched.look()
    watched.look()
    assert watched.driver.watched == set()
    assert caplog.text.count("only probes will notice faults for now") == 1
    watched.driver.watch_fails = False
    watched.driver.deaf = {"GPU-b"}
    watched.look()
    assert watched.driver.watched == {"GPU-a"}
    watched.driver.deaf = set()
    watched.look()
    assert watched.driver.watched == {"GPU-a", "GPU-b"}


@pytest.mark.parametrize(("xid", "is_usable"), [(79, False), (31, True)])
def test_an_xid_that_may_be_anybodys_counts_for_all(
    watched: Watched, caplog: pytest.LogCaptureFixture, xid: int, *, is_usable: bool
) -> None:
    watched.driver.event = XidEvent("", xid)
    watched.watch.start()
    deadline = time.monotonic() + 60
    while not watched.watch.xid_counts:
        assert time.monotonic() < deadline
    watched.watch.stop()
    assert watched.watch.xid_counts == {("", xid): 1}
    assert f"a GPU that is not known reports Xid {xid}" in caplog.text
    assert [gpu.unusable == "" for gpu in watched.pictures[-1].gpus] == [is_usable] * 2


def test_when_no_gpu_answers_the_session_is_opened_anew(watched: Watched) -> None:
    watched.look()
    watched.driver.lost |= {"GPU-a", "GPU-b"}
    watched.look()
    watched.look()
    assert watched.driver.opened == 2
    watched.driver.lost.clear()
    assert watched.look() == {"GPU-a": "", "GPU-b": ""}


def test_gpus_in_mig_mode_are_left_out_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = make(tmp_path, driver=Driver(mig={"GPU-b"}))
    assert watched.look() == {"GPU-a": ""}
    assert "GPU 1 (GPU-b) is left out: it is in MIG mode" in caplog.text
    assert "nvidia-smi -mig 0" in caplog.text


@pytest.mark.parametrize("answers", [True, False])
def test_a_gpu_that_leaves_mig_mode_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    """Beside one that is well; it is reset by that, so it is asked for in a new session."""
    watched = make(tmp_path, driver=Driver(mig={"GPU-b"}))
    watched.look()
    watched.look()
    assert watched.driver.opened == 1
    watched.driver.mig.clear()
    if not answers:
        watched.driver.stale.add("GPU-b")
        assert watched.look() == {"GPU-a": ""}
        assert watched.driver.opened == 1
        monkeypatch.setattr(health, "REOPEN_S", 0.0)
    assert watched.look() == {"GPU-a": "", "GPU-b": ""}
    assert watched.driver.opened == 2


def test_a_gpu_that_is_switched_to_mig_later_stays_known(watched: Watched) -> None:
    watched.look()
    watched.driver.mig.add("GPU-b")
    assert "MIG" in watched.look()["GPU-b"]


@pytest.mark.parametrize(
    ("ours", "others", "taken"),
    [
        ((), (), {"GPU-a", "GPU-b"}),
        (("1",), (), {"GPU-b"}),
        (("gpu-A",), (), {"GPU-a"}),
        ((), ("0",), {"GPU-b"}),
        (("0", "1"), ("GPU-a",), {"GPU-b"}),
    ],
)
def test_settings_choose_by_number_or_uuid(
    tmp_path: Path, ours: tuple[str, ...], others: tuple[str, ...], taken: set[str]
) -> None:
    watched = make(tmp_path, Choice(frozenset(ours), frozenset(others)))
    assert set(watched.look()) == taken


def test_a_name_that_no_gpu_has_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = make(tmp_path, Choice(frozenset({"0", "GPU-typo"})))
    watched.look()
    watched.look()
    assert caplog.text.count("the settings name GPU GPU-typo, but there are: 0 (GPU-a)") == 1


def test_a_failing_callback_does_not_end_the_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pictures: list[Hardware] = []

    def publish(hardware: Hardware) -> None:
        pictures.append(hardware)
        watch.stop_soon()
        raise RuntimeError("the agent is in trouble")

    watch = HealthWatch(cast("Nvml", Driver()), publish, kernel_list=tmp_path)
    watch.start()
    watch.join(60)
    assert not watch.is_alive()
    assert len(pictures) == 1
    assert "the agent is in trouble" in caplog.text


def test_what_could_not_be_told_is_told_again(tmp_path: Path) -> None:
    pictures: list[Hardware] = []

    def publish(hardware: Hardware) -> None:
        pictures.append(hardware)
        if len(pictures) == 1:
            raise RuntimeError("the agent is in trouble")

    watch = HealthWatch(cast("Nvml", Driver()), publish, kernel_list=tmp_path)
    with pytest.raises(RuntimeError):
        watch.look()
    watch.look()
    watch.look()
    assert len(pictures) == 2


def test_a_fault_that_one_look_has_missed_is_still_noticed_within_five_seconds() -> None:
    """How long a look takes is the driver's business; ours is how often we look, and listen."""
    assert 2 * PROBE_S + EVENT_WAIT_MS / 1000 <= 5
