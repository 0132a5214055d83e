"""Compute shares in short: wide enough for a busy machine, too narrow for charging by blocks.

Shares are the simulator's own accounts. A busy machine can keep a program from reaching its share,
so lower bounds are generous, and what missed one is tried again; no machine can make a program
exceed its share, so upper bounds are narrow and hold the first time.
"""

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec

import pytest

from bench.cases import Container, Load
from bench.containers import Running
from bench.throttle import Bench
from bench.truth import Trace, record
from shim import limits, usage
from shim.arbiter import Arbiter
from shim.limits import DeviceLimits, Kind, Limits, Policy
from shim.usage import identity_of

pytestmark = pytest.mark.serial

SETTLE_S, MEASURE_S = 1.0, 3.0
MS = Load((1000,), per_sync=32)
ATTEMPTS = 4
P = ParamSpec("P")


class MissedError(AssertionError):
    """Less than there should be, which may be the machine's fault."""


def reached(share: float, least: float) -> None:
    if share <= least:
        raise MissedError(f"{share:.1f} is not over {least}")


def tried_again(test: Callable[P, None]) -> Callable[P, None]:
    """Runs a test anew when something was not reached."""

    @functools.wraps(test)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(ATTEMPTS - 1):
            try:
                return test(*args, **kwargs)
            except MissedError:
                continue
        return test(*args, **kwargs)

    return attempt


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench.open() as opened:
        yield opened


def watch(bench: Bench, *containers: Container) -> tuple[Trace, Running]:
    trace = Trace()
    with bench.run(containers) as running:
        record(trace, bench.node, SETTLE_S + MEASURE_S)
    return trace, running


def shares_of(bench: Bench, *containers: Container) -> list[float]:
    trace, running = watch(bench, *containers)
    return [trace.share(share.pids, SETTLE_S, trace.seconds) for share in running.shares]


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(Load((1000,), blocks=132), id="one block per SM"),
        pytest.param(Load((20,), blocks=1), id="short kernels of one block"),
        pytest.param(Load((50,), api="graph"), id="graphs"),
        pytest.param(Load((50,), api="cooperative"), id="cooperative", marks=pytest.mark.slow),
        pytest.param(Load((50,), api="ptsz", threads=3, per_sync=4), id="per-thread streams"),
        pytest.param(Load((1000,), streams=3), id="streams that overlap", marks=pytest.mark.slow),
        pytest.param(Load((20, 50, 1000, 20_000)), id="sizes mixed"),
    ],
)
@tried_again
def test_a_cap_of_30_is_kept(bench: Bench, load: Load) -> None:
    (share,) = shares_of(bench, Container(30, (load,)))
    assert share < 36
    reached(share, 20)


@tried_again
def test_two_containers_keep_30_and_70(bench: Bench) -> None:
    first, second = shares_of(bench, Container(30, (MS,)), Container(70, (MS,)))
    assert first < 36
    assert second < 76
    reached(first, 20)
    reached(second, 52)


@tried_again
def test_processes_of_a_container_share_one_budget(bench: Bench) -> None:
    container = Container(50, (Load((50,)), Load((1000,))))
    trace, running = watch(bench, container)
    parts = [trace.share([pid], SETTLE_S, trace.seconds) for pid in running.shares[0].pids]
    assert sum(parts) < 56
    reached(sum(parts), 35)
    reached(min(parts), 14)


@pytest.mark.slow
@tried_again
def test_processes_with_long_kernels_do_not_pay_for_each_other(bench: Bench) -> None:
    """All spans would contain slices of the others, did the processes run in step."""
    trace = Trace()
    with bench.run((Container(50, (Load((20_000,), per_sync=4),) * 4),)) as running:
        record(trace, bench.node, 6.0)
    parts = [trace.share([pid], 2.0, trace.seconds) for pid in running.shares[0].pids]
    assert sum(parts) < 58
    reached(sum(parts), 45)
    reached(min(parts), 9)


@tried_again
def test_a_forked_child_has_a_part_of_the_same_budget(bench: Bench) -> None:
    """Forked with launches held and the shim's own thread at work."""
    trace, running = watch(bench, Container(40, (Load((50,), forks=True),)))
    (parent,) = running.shares[0].pids
    pids = {parent} | {said["pid"] for said in running.shares[0].said if "pid" in said}
    assert len(pids) == 2
    parts = [trace.share([pid], SETTLE_S, trace.seconds) for pid in pids]
    assert sum(parts) < 46
    reached(sum(parts), 26)
    reached(min(parts), 8)


@tried_again
def test_what_nvml_says_of_a_process_corrects_its_charges(bench: Bench) -> None:
    """Were NVML to see half of what is charged, twice as much could be charged."""
    trace = Trace()
    with bench.run((Container(20, (MS,)),), arbitrated=False) as running:
        (share,) = running.shares
        (process,) = share.pids
        identity = identity_of(process)
        assert identity is not None
        folder = share.folder / "compute"
        gpu = bench.node.snapshot().devices[0].uuid
        arbiter = Arbiter()
        arbiter.seat("one", folder / "limits", folder / "usage", (gpu,))
        charged_ns = 0
        while not trace.times_ns or trace.seconds < SETTLE_S + MEASURE_S:
            trace.take(bench.node)
            (device,) = usage.read(folder / "usage", Kind.COMPUTE).devices
            arbiter.measured(gpu, {identity: (device.busy_ns - charged_ns) / 2}, 0.05)
            arbiter.tick(time.monotonic_ns())
            charged_ns = device.busy_ns
            time.sleep(0.05)
        arbiter.close()
    used = trace.share(share.pids, SETTLE_S, trace.seconds)
    assert used < 46
    reached(used, 27)


@pytest.mark.slow
@tried_again
def test_idle_time_is_lent_and_given_back(bench: Bench) -> None:
    sleepy = Load((1000,), per_sync=32, idle_after_s=0.2, idle_s=3.0)
    trace = Trace()
    with bench.run((Container(30, (MS,), "burst"), Container(70, (sleepy,), "burst"))) as running:
        record(trace, bench.node, 7.0)
    mine, theirs = (share.pids for share in running.shares)
    back = trace.begins(theirs, 2.0)
    assert back is not None
    reached(trace.share(mine, 1.2, back - 0.2), 60)
    reached(trace.share(theirs, back + 0.5, trace.seconds), 52)
    # Whether the borrower knows by then depends on three processes that must have had their turn.
    if trace.share(mine, back + 0.5, trace.seconds) >= 40:
        raise MissedError("the borrower has gone on")


@tried_again
def test_new_limits_hold_in_running_processes(bench: Bench) -> None:
    trace = Trace()
    with bench.run((Container(15, (MS,)),)) as running:
        (share,) = running.shares
        record(trace, bench.node, 1.8)
        change = trace.seconds
        for kind in Kind:
            path = share.folder / kind.name.lower() / "limits"
            present = limits.read(path, kind)
            (device,) = present.devices
            fresh = DeviceLimits(device.uuid, device.limit_bytes, 6000)
            limits.update(path, Limits((fresh,), present.policy))
        record(trace, bench.node, 2.2)
    assert trace.share(share.pids, 0.8, change) < 22
    used = trace.share(share.pids, change + 0.2, trace.seconds)
    assert used < 66
    reached(used, 40)


@tried_again
def test_a_grant_ends_with_its_deadline(bench: Bench, tmp_path: Path) -> None:
    """Whoever granted it may be dead: then the guaranteed share is all there is."""
    trace = Trace()
    with bench.run((Container(20, (MS,)),), arbitrated=False) as running:
        (share,) = running.shares
        path = share.folder / "compute" / "limits"
        (device,) = limits.read(path, Kind.COMPUTE).devices
        until = time.monotonic_ns() + 2_000_000_000
        granted = DeviceLimits(device.uuid, None, 2000, grant=9000, grant_until_ns=until)
        limits.update(path, Limits((granted,), Policy.BURST))
        record(trace, bench.node, 4.4)
    lapsed = 2.0 + 0.4
    assert trace.share(share.pids, lapsed, trace.seconds) < 26
    reached(trace.share(share.pids, 0.7, 1.8), 50)


@tried_again
def test_launches_and_time_are_counted(bench: Bench) -> None:
    # So little that it is held nearly all the time, however rarely the program is scheduled.
    trace, running = watch(bench, Container(10, (MS,)))
    (share,) = running.shares
    (device,) = usage.read(share.folder / "compute" / "usage", Kind.COMPUTE).devices
    launched = sum(said.get("launches", 0) for said in share.said)
    used_ns = trace.at(share.pids, trace.seconds)
    # The last few milliseconds before the end may not have been told.
    assert device.launches <= launched
    assert device.busy_ns < 1.3 * used_ns + 50e6
    reached(device.launches, 0.9 * launched)
    reached(device.busy_ns, 0.8 * used_ns)
    reached(device.throttled_ns, 1e9)
