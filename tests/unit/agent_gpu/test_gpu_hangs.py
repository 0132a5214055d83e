"""A driver that hangs: what it does not answer is withdrawn, and everything else goes on."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pynvml
import pytest

from aliquot.protocol.inventory import Link
from deviceplugin.gpus import health
from deviceplugin.gpus.hardware import Hardware
from deviceplugin.gpus.health import HealthWatch
from deviceplugin.gpus.nvml import Nvml, NvmlError
from tests.unit.agent_gpu.test_gpu_watch import Driver, Watched, make

DEADLINE_S = 60.0
WELL = {"GPU-a": "", "GPU-b": "", "GPU-c": ""}
HUNG = "a probe has hung for 0.2 s"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr(health, "HANG_S", 0.2)
    monkeypatch.setattr(health, "OPEN_S", 0.2)
    monkeypatch.setattr(health, "PATIENCE_S", 0.05)
    driver = Driver(gpus=["GPU-a", "GPU-b", "GPU-c"])
    yield driver
    for event in driver.hangs.values():
        event.set()


def until(watched: Watched, expected: dict[str, str]) -> None:
    await_that(lambda: watched.look() == expected)


def await_that(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_others_are_watched_while_one_hangs_and_it_recovers(tmp_path: Path, driver: Driver) -> None:
    watched = make(tmp_path, driver=driver)
    until(watched, WELL)
    driver.hangs["GPU-b"] = threading.Event()
    until(watched, {"GPU-a": "", "GPU-b": HUNG, "GPU-c": ""})
    driver.lost.add("GPU-c")
    until(watched, {"GPU-a": "", "GPU-b": HUNG, "GPU-c": "GPU is lost"})
    driver.lost.clear()
    until(watched, {"GPU-a": "", "GPU-b": HUNG, "GPU-c": ""})
    driver.hangs.pop("GPU-b").set()
    until(watched, WELL)


def test_a_slow_answer_withdraws_nobody(
    tmp_path: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "HANG_S", DEADLINE_S)
    watched = make(tmp_path, driver=driver)
    until(watched, WELL)
    seen = len(watched.pictures)
    slow = driver.hangs["GPU-b"] = threading.Event()
    assert watched.look()["GPU-b"] == ""
    slow.set()
    del driver.hangs["GPU-b"]
    until(watched, WELL)
    assert watched.pictures[seen:] == []


def test_one_that_hangs_from_the_start_is_left_out_until_it_answers(
    tmp_path: Path, driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.hangs["GPU-b"] = threading.Event()
    watched = make(tmp_path, driver=driver)
    until(watched, {"GPU-a": "", "GPU-c": ""})
    assert "GPU 1 does not answer: the driver does not come back" in caplog.text
    driver.hangs.pop("GPU-b").set()
    until(watched, WELL)


@pytest.mark.parametrize("call", ["vitals", "links", "watch"])
def test_no_call_holds_up_the_look(tmp_path: Path, driver: Driver, call: str) -> None:
    watched = make(tmp_path, driver=driver)
    driver.hangs[call] = threading.Event()
    await_that(lambda: watched.look().keys() == WELL.keys())
    driver.hangs.pop(call).set()
    until(watched, WELL)
    await_that(lambda: watched.look() == WELL and watched.pictures[-1].links[0][1] is Link.NUMA)
    await_that(lambda: watched.look() == WELL and driver.watched == WELL.keys())


def test_what_has_never_answered_a_probe_is_not_handed_out(tmp_path: Path, driver: Driver) -> None:
    driver.hangs["vitals"] = threading.Event()
    watched = make(tmp_path, driver=driver)
    await_that(lambda: watched.look().keys() == WELL.keys())
    assert all(watched.look().values())


def test_the_only_gpu_is_handed_out_however_slow_its_driver_is(
    tmp_path: Path, driver: Driver
) -> None:
    """Its answer comes between two looks, and must not be thrown away for a new session."""
    driver.gpus[:] = ["GPU-a"]
    watched = make(tmp_path, driver=driver)
    asked = driver.hangs["vitals"] = threading.Event()
    assert all(watched.look().values())
    opened = driver.opened
    driver.hangs["vitals"] = threading.Event()
    asked.set()
    until(watched, {"GPU-a": ""})
    assert driver.opened == opened


def test_when_opening_hangs_the_node_has_no_gpus_and_says_why(
    tmp_path: Path, driver: Driver
) -> None:
    driver.hangs["open"] = threading.Event()
    watched = make(tmp_path, driver=driver)
    assert watched.look() == {}
    assert watched.watch.absence is not None
    assert watched.watch.absence.is_fault
    assert "opening NVML: the driver does not come back" in watched.watch.absence.why
    driver.hangs.pop("open").set()
    until(watched, WELL)
    assert watched.watch.absence is None


def test_a_session_that_cannot_be_opened_anew_is_used_on(tmp_path: Path) -> None:
    """Somebody hangs inside of it: about the others it answers as before."""

    class Occupied(Driver):
        def open(self) -> None:
            if self.opened:
                raise NvmlError("opening NVML", "somebody hangs", pynvml.NVML_ERROR_TIMEOUT)
            super().open()

    watched = make(tmp_path, driver=Occupied())
    watched.look()
    (tmp_path / "gpus" / "0000:81:00.0").mkdir(parents=True)
    for _ in range(3):
        assert watched.look() == {"GPU-a": "", "GPU-b": ""}
    watched.driver.lost.add("GPU-a")
    assert watched.look() == {"GPU-a": "GPU is lost", "GPU-b": ""}


def test_events_of_one_that_hangs_are_still_awaited(tmp_path: Path, driver: Driver) -> None:
    watched = make(tmp_path, driver=driver)
    until(watched, WELL)
    driver.hangs["GPU-b"] = threading.Event()
    until(watched, {"GPU-a": "", "GPU-b": HUNG, "GPU-c": ""})
    watched.look()
    assert driver.watched == {"GPU-a", "GPU-b", "GPU-c"}


def test_a_driver_that_hangs_ages_the_probes_but_does_not_stall_us(
    tmp_path: Path, driver: Driver
) -> None:
    watched = make(tmp_path, driver=driver)
    until(watched, WELL)
    driver.hangs["GPU-b"] = threading.Event()
    until(watched, {"GPU-a": "", "GPU-b": HUNG, "GPU-c": ""})
    await_that(lambda: watched.watch.age_s > 0.5)
    watched.look()
    assert watched.watch.age_s > 0.5
    assert watched.watch.stalled_s < watched.watch.age_s
    driver.hangs.pop("GPU-b").set()
    until(watched, WELL)
    await_that(lambda: watched.look() == WELL and watched.watch.age_s < 0.5)


def test_a_watch_that_does_not_move_is_told_from_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is told of the GPUs may never come back; then only a restart helps."""
    monkeypatch.setattr(health, "PROBE_S", 0.01)
    entered, leave = threading.Event(), threading.Event()

    def publish(_: Hardware) -> None:
        entered.set()
        assert leave.wait(DEADLINE_S)

    watch = HealthWatch(cast("Nvml", Driver()), publish, kernel_list=tmp_path, host=tmp_path)
    watch.start()
    try:
        assert entered.wait(DEADLINE_S)
        await_that(lambda: watch.stalled_s > 0.5)
        leave.set()
        await_that(lambda: watch.stalled_s < 0.25)
    finally:
        leave.set()
        watch.stop()
