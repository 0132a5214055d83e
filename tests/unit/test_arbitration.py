"""Who arbitrates: one leads, the others stand by and take over."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot import arbitration
from aliquot.arbitration import Arbitration, Member
from aliquot.leadership import Leadership
from shim import limits, usage
from shim.arbiter import GRANT_LIFETIME_NS
from shim.limits import DeviceLimits, Kind, Limits, Policy

GPU = "GPU-00000000-0000-0000-0000-000000000001"
DEADLINE_S = 60


@pytest.fixture
def member(tmp_path: Path) -> Member:
    folder = tmp_path / "run"
    (folder / "compute").mkdir(parents=True)
    found = Member.of_run("run", folder, (GPU,))
    share = Limits((DeviceLimits(GPU, None, 3000),), Policy.BURST)
    limits.create(found.limits, Kind.COMPUTE, share)
    usage.create(found.usage, Kind.COMPUTE, 1)
    return found


def deadline_of(member: Member) -> int:
    return limits.read(member.limits, Kind.COMPUTE).devices[0].grant_until_ns


def await_that(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_another_takes_over_when_the_leader_ends(tmp_path: Path, member: Member) -> None:
    first, second = (Arbitration(tmp_path / "lock", lambda: [member]) for _ in range(2))
    first.start()
    await_that(lambda: deadline_of(member) > time.monotonic_ns())
    second.start()
    first.stop()
    left_ns = deadline_of(member)
    await_that(lambda: deadline_of(member) > left_ns)
    second.stop()


LEADER = """
import sys, time
from pathlib import Path
from aliquot.arbitration import Arbitration, Member
lock, folder, gpu = sys.argv[1:]
Arbitration(Path(lock), lambda: [Member.of_run("run", Path(folder), (gpu,))]).start()
time.sleep(600)
"""


def test_a_stopped_leader_is_followed_by_another(tmp_path: Path, member: Member) -> None:
    lock = tmp_path / "lock"
    leader = subprocess.Popen([sys.executable, "-c", LEADER, lock, tmp_path / "run", GPU])
    try:
        await_that(lambda: deadline_of(member) > time.monotonic_ns())
        leader.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, leader.pid, os.WSTOPPED | os.WNOWAIT)
        left_ns = deadline_of(member)
        other = Arbitration(lock, lambda: [member])
        other.start()
        await_that(lambda: deadline_of(member) > left_ns)
        # Going on, the old leader stands by.
        leader.send_signal(signal.SIGCONT)
        other.stop()
        left_ns = deadline_of(member)
        await_that(lambda: deadline_of(member) > left_ns)
    finally:
        leader.kill()
        leader.wait()


def test_containers_come_and_go(tmp_path: Path, member: Member) -> None:
    members: list[Member] = []
    arbitration = Arbitration(tmp_path / "lock", lambda: list(members))
    arbitration.start()
    # One whose files are not there (yet) holds up nobody.
    members.append(Member.of_run("unfinished", tmp_path / "unfinished", (GPU,)))
    members.append(member)
    await_that(lambda: deadline_of(member) > time.monotonic_ns())
    members.clear()
    await_that(lambda: deadline_of(member) < time.monotonic_ns())
    arbitration.stop()


def test_what_goes_wrong_once_does_not_end_it(tmp_path: Path, member: Member) -> None:
    asked = []

    def members() -> list[Member]:
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("the first look fails")
        return [member]

    arbitration = Arbitration(tmp_path / "lock", members)
    arbitration.start()
    await_that(lambda: deadline_of(member) > time.monotonic_ns())
    arbitration.stop()


def test_when_it_is_not_the_time_to_look_everybody_stays(tmp_path: Path, member: Member) -> None:
    answers: list[list[Member] | None] = [[member]]
    arbitration = Arbitration(tmp_path / "lock", lambda: answers[-1])
    arbitration.start()
    await_that(lambda: deadline_of(member) > time.monotonic_ns())
    answers.append(None)
    time.sleep(2 * GRANT_LIFETIME_NS / 1e9)
    assert deadline_of(member) > time.monotonic_ns()
    arbitration.stop()


def test_an_idle_container_is_granted_its_share(tmp_path: Path, member: Member) -> None:
    arbitration = Arbitration(tmp_path / "lock", lambda: [member])
    arbitration.start()
    await_that(lambda: deadline_of(member) > 0)
    arbitration.stop()
    assert limits.read(member.limits, Kind.COMPUTE).devices[0].grant == 3000


def test_stopping_waits_for_no_driver_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbitration, "STOP_S", 0.01)
    hanging, hangs = threading.Event(), threading.Event()

    def members() -> list[Member]:
        hangs.set()
        hanging.wait()
        return []

    thread = Arbitration(tmp_path / "lock", members)
    thread.start()
    assert hangs.wait(DEADLINE_S)
    thread.stop()
    assert thread.is_alive(), "it hangs, and ends with the process"
    hanging.set()
    thread.join()


def test_while_its_file_cannot_be_written_one_line_says_what_to_do(
    tmp_path: Path,
    member: Member,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "gone"
    tries = threading.Semaphore(0)
    win = Leadership.win

    def counted(leadership: Leadership) -> bool:
        tries.release()
        return win(leadership)

    monkeypatch.setattr(Leadership, "win", counted)
    arbitration = Arbitration(folder / "lock", lambda: [member])
    arbitration.start()
    for _ in range(4):
        assert tries.acquire(timeout=DEADLINE_S)
    folder.mkdir()
    await_that(lambda: deadline_of(member) > time.monotonic_ns())
    arbitration.stop()
    (said,) = [each for each in caplog.records if each.name == "aliquot.arbitration"]
    assert f"make room for {folder / 'lock'}" in said.getMessage()
    assert said.exc_info is None
