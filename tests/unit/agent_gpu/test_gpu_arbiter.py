"""The arbiter inside the agent: who takes part, what it costs, and that it never gives up."""

import itertools
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from aliquot.arbitration import Member
from deviceplugin.arbiter import PUT_OFF_S, NodeArbiter, members_of
from deviceplugin.booking.allocator import ContainerAllocation

DEADLINE_S = 60


def allocation(name: str, *, whole: bool = False, seated: bool = True) -> ContainerAllocation:
    member = Member(name, Path("limits"), Path("usage"), ("GPU-a",)) if seated else None
    return ContainerAllocation(
        id=name,
        key=None,
        pod_uid="",
        gpus=("GPU-a",),
        memory_units=1,
        compute_percent=1,
        whole=whole,
        policy="burst",
        weight=1,
        memory_limits=None,
        memory_usage=None,
        compute_limits=None,
        compute_usage=None,
        started=True,
        planned=None,
        member=member,
    )


def test_those_take_part_who_share_a_gpu() -> None:
    some = [allocation("a"), allocation("b", whole=True), allocation("c", seated=False)]
    assert [member.name for member in members_of(some)] == ["a"]


def test_a_failure_does_not_end_it(tmp_path: Path) -> None:
    calls: list[int] = []
    went_on = threading.Event()

    def allocations() -> Iterable[ContainerAllocation]:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("the ledger is in trouble")
        went_on.set()
        return []

    hosted = NodeArbiter(tmp_path / "lock", allocations)
    hosted.start()
    assert went_on.wait(DEADLINE_S)
    hosted.stop()
    assert not hosted.is_alive()


def test_its_cost_is_its_own_cpu_time(tmp_path: Path) -> None:
    hosted = NodeArbiter(tmp_path / "lock", list)
    assert hosted.cpu_s == 0.0, "before it starts"

    def allocations() -> Iterable[ContainerAllocation]:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        return []

    hosted = NodeArbiter(tmp_path / "lock", allocations)
    hosted.start()
    deadline = time.monotonic() + DEADLINE_S
    while hosted.cpu_s == 0.0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    hosted.stop()


def test_who_came_is_put_off_while_the_agent_is_busy_but_not_for_ever(tmp_path: Path) -> None:
    looked_s: list[float] = []
    enough = threading.Event()

    def allocations() -> Iterable[ContainerAllocation]:
        looked_s.append(time.monotonic())
        if len(looked_s) == 3:
            enough.set()
        return []

    hosted = NodeArbiter(tmp_path / "lock", allocations, is_busy=lambda: True)
    hosted.start()
    assert enough.wait(DEADLINE_S)
    hosted.stop()
    between_s = [later - earlier for earlier, later in itertools.pairwise(looked_s)]
    assert min(between_s) >= 0.9 * PUT_OFF_S
