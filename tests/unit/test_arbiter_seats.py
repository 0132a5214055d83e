"""The arbiter between real files: what it reads of containers, what it writes, what that costs."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shim import limits, usage
from shim._files import ffi, lib
from shim.arbiter import Arbiter, Pace, Ratio
from shim.limits import WHOLE, DeviceLimits, Kind, Limits, Policy
from shim.usage import Identity

SECOND_NS = 1_000_000_000
TICK_NS = 25_000_000
GPUS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(8))
FOREVER = 1 << 62
"""A report from the future is taken for one of now."""

HEADER = struct.Struct("8s 10I 2Q")
COUNTERS = struct.Struct("8Q")


class Container:
    """A container's files, with reports as its processes would write them."""

    def __init__(self, folder: Path, gpu: str, share: int, policy: Policy = Policy.BURST) -> None:
        folder.mkdir()
        self.name = folder.name
        self.gpu = gpu
        self.limits, self.usage = folder / "limits", folder / "usage"
        limits.create(self.limits, Kind.COMPUTE, Limits((DeviceLimits(gpu, None, share),), policy))
        usage.create(self.usage, Kind.COMPUTE, 1)
        *_, self.counters_at, self.owners_at, self.words_at, _, _, _ = HEADER.unpack(
            self.usage.read_bytes()[: HEADER.size]
        )

    @property
    def present(self) -> DeviceLimits:
        return limits.read(self.limits, Kind.COMPUTE).devices[0]

    def report(self, active_ns: int, wanted_ns: int = 0) -> None:
        self._write(self.counters_at, COUNTERS.pack(0, active_ns, wanted_ns, 0, 0, 0, 0, 0))

    def charge(self, process: Identity, busy_ns: int) -> None:
        """As the first process of the container."""
        namespace_id, pid = process
        self._write(HEADER.size - 8, struct.pack("Q", _coded(1)))
        self._write(self.owners_at, struct.pack("Q", _coded(pid << 26 | namespace_id << 12 | 1)))
        self._write(self.words_at, struct.pack("Q", busy_ns))

    def _write(self, at: int, content: bytes) -> None:
        with self.usage.open("r+b") as file:
            file.seek(at)
            file.write(content)


def _coded(value: int) -> int:
    return value * 65521 + 1


@pytest.fixture
def arbiter() -> Iterator[Arbiter]:
    arbiter = Arbiter()
    yield arbiter
    arbiter.leave()


def seated(arbiter: Arbiter, folder: Path, *shares: int, gpu: str = GPUS[0]) -> list[Container]:
    found = [
        Container(folder / f"{gpu[-1]}-{number}", gpu, share) for number, share in enumerate(shares)
    ]
    for each in found:
        arbiter.seat(each.name, each.limits, each.usage, (gpu,))
    return found


def test_idle_time_is_lent_until_its_owner_is_back(arbiter: Arbiter, tmp_path: Path) -> None:
    borrower, lender = seated(arbiter, tmp_path, 3000, 7000)
    assert arbiter.tick(SECOND_NS) is Pace.IDLE
    borrower.report(FOREVER, wanted_ns=FOREVER)
    assert arbiter.tick(SECOND_NS + TICK_NS) is Pace.LENDING
    assert borrower.present.grant == WHOLE
    lender.report(FOREVER)
    assert arbiter.tick(SECOND_NS + 2 * TICK_NS) is Pace.BUSY
    assert (borrower.present.grant, lender.present.grant) == (3000, 7000)


def test_a_grant_follows_a_resize_at_once(arbiter: Arbiter, tmp_path: Path) -> None:
    (container,) = seated(arbiter, tmp_path, 3000)
    arbiter.tick(SECOND_NS)
    limits.update(container.limits, Limits((DeviceLimits(GPUS[0], None, 5000),), Policy.BURST))
    arbiter.tick(SECOND_NS + TICK_NS)
    assert container.present.grant == 5000
    assert container.present.grant_until_ns > SECOND_NS + TICK_NS


def test_nothing_is_written_while_nothing_changes(arbiter: Arbiter, tmp_path: Path) -> None:
    (container,) = seated(arbiter, tmp_path, 3000)
    arbiter.tick(SECOND_NS)
    before = container.limits.read_bytes()
    arbiter.tick(SECOND_NS + TICK_NS)
    assert container.limits.read_bytes() == before


def test_a_process_is_corrected_by_what_nvml_saw_of_it(arbiter: Arbiter, tmp_path: Path) -> None:
    """Charged 80 ms and 40 ms by turns of half a second in which both had 40 ms."""
    ours, theirs = (77, 1234), (78, 1)
    first, second = seated(arbiter, tmp_path, 3000, 7000)
    for turn in range(1, 41):
        first.charge(ours, turn * 80_000_000)
        second.charge(theirs, turn * 40_000_000)
        arbiter.measured(GPUS[0], {ours: 40e6, theirs: 40e6}, 0.5)
    arbiter.tick(SECOND_NS)
    assert ratios_of(first) == {0: pytest.approx(500, abs=5)}
    assert ratios_of(second) == {0: pytest.approx(1000, abs=5)}


def test_a_process_that_is_alone_again_is_corrected_no_more(
    arbiter: Arbiter, tmp_path: Path
) -> None:
    """Nobody compares any more, so what was stated last would bend its share for ever."""
    first, second = seated(arbiter, tmp_path, 3000, 7000)
    for turn in range(1, 41):
        first.charge((77, 1), turn * 80_000_000)
        arbiter.measured(GPUS[0], {(77, 1): 40e6}, 0.5)
    arbiter.tick(SECOND_NS)
    assert ratios_of(first) == {0: pytest.approx(500, abs=5)}
    arbiter.unseat(second.name)
    arbiter.tick(SECOND_NS + TICK_NS)
    assert ratios_of(first) == {}


def test_the_same_pid_elsewhere_is_another_process(arbiter: Arbiter, tmp_path: Path) -> None:
    (container,) = seated(arbiter, tmp_path, 3000)
    for turn in range(1, 41):
        container.charge((77, 1), turn * 80_000_000)
        arbiter.measured(GPUS[0], {(78, 1): 40e6}, 0.5)
    arbiter.tick(SECOND_NS)
    assert ratios_of(container) == {0: 1000}


def test_a_new_process_in_a_slot_starts_anew(arbiter: Arbiter, tmp_path: Path) -> None:
    (container,) = seated(arbiter, tmp_path, 3000)
    for turn in range(1, 41):
        container.charge((77, 1), turn * 80_000_000)
        arbiter.measured(GPUS[0], {(77, 1): 40e6}, 0.5)
    container.charge((77, 2), 0)
    arbiter.measured(GPUS[0], {(77, 2): 40e6}, 0.5)
    arbiter.tick(SECOND_NS)
    assert ratios_of(container) == {0: 1000}


def ratios_of(container: Container) -> dict[int, int]:
    image = ffi.new("uint64_t[]", 512)
    ffi.memmove(image, container.limits.read_bytes(), 4096)
    body = ffi.new("struct limits_body *")
    assert lib.limits_read(image, 4096, Kind.COMPUTE, body) >= 0
    stated = body.devices[0].ratios
    return {each.slot: each.thousandths for each in stated if each.thousandths}


def test_a_ratio_follows_what_nvml_saw() -> None:
    ratio = Ratio(charged_ns=0)
    assert ratio.thousandths == 1000
    for window in range(1, 40):
        ratio.note(window * 80_000_000, 40_000_000, 1 / 6)
    assert 480 <= ratio.thousandths <= 520


@pytest.mark.parametrize("bias", [1.4, 0.7])
def test_what_charges_get_wrong_is_made_up_for(bias: float) -> None:
    """A process with 70 percent whose charges are suddenly off: over 20 s it has its share."""
    ratio = Ratio(charged_ns=0)
    charged_ns, used_ns, span_s = 0.0, 0.0, 1 / 3
    for window in range(60):
        charge_ns = 0.7e9 * span_s * 1000 / ratio.thousandths
        use_ns = charge_ns / (bias if window > 15 else 1.0)
        charged_ns += charge_ns
        used_ns += use_ns
        ratio.note(round(charged_ns), round(use_ns / span_s / 1e7) * span_s * 1e7, span_s)
    assert used_ns / 20 == pytest.approx(0.7e9, rel=0.02)
    assert use_ns / span_s == pytest.approx(0.7e9, rel=0.03)


def test_what_rounding_explains_is_left_alone() -> None:
    ratio = Ratio(charged_ns=0)
    for window in range(1, 60):
        ratio.note(window * 98_500_000, 100_000_000, 1 / 3)
    assert ratio.thousandths == 1000


def test_a_ratio_without_usage_says_nothing() -> None:
    ratio = Ratio(charged_ns=0)
    ratio.note(1_000_000, 0.0, 1 / 6)
    assert ratio.thousandths == 1000


def test_64_containers_on_8_gpus_cost_under_a_hundredth_of_a_core(
    arbiter: Arbiter, tmp_path: Path
) -> None:
    """Time is lent on all GPUs, which is when ticks are most frequent; by CPU time, not by clock.

    The least of several seconds counts: the others were disturbed.
    """
    process = (77, 1)
    for gpu in GPUS:
        borrower, *lenders = seated(arbiter, tmp_path, *[1000] * 8, gpu=gpu)
        borrower.report(FOREVER, wanted_ns=FOREVER)
        for each in (borrower, *lenders):
            each.charge(process, 1)
    now_ns = time.monotonic_ns()
    spent_s = []
    for _ in range(10):
        before_s = time.thread_time()
        for tick in range(SECOND_NS // TICK_NS):
            now_ns += TICK_NS
            assert arbiter.tick(now_ns) is Pace.LENDING
            if tick % 14 == 0:
                for gpu in GPUS:
                    arbiter.measured(gpu, {process: 1e6}, 0.5)
        spent_s.append(time.thread_time() - before_s)
    assert min(spent_s) < 0.01
