"""The arbiter between the containers of a node: seats them, ticks, and corrects bias by NVML.

The decision and the tick are C (`shim/arbitration`). This module keeps the seats and compares what
processes were charged with the GPU time that NVML saw; who hosts it says when to tick and asks
NVML.
"""

import contextlib
import mmap
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shim._files import ffi, lib
from shim.limits import Kind, LimitsError

__all__ = ["GRANT_LIFETIME_NS", "TICK_S", "Arbiter", "Claim", "Ratio", "Seat", "decide"]

TICK_S = 0.015
"""How often to tick: a lender is back at its share a few ticks after it returns."""

GRANT_LIFETIME_NS = 600_000_000
"""Grants outlive a dead arbiter by this; another one takes over sooner."""

RATIO_MEMORY_S = 4.0
"""Over about how long charged and measured GPU time are compared."""

RATIO_LEAST, RATIO_MOST = 200, 3000
"""Beyond this NVML and the account contradict each other, and neither is followed further."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one container asks of a GPU; shares in hundredths of a percent."""

    share: int
    policy: int
    weight: int = 1
    demand: int = 0
    """Time for which it has work on the GPU, running or waiting."""
    held: bool = False
    """Launches were held for lack of budget."""


def decide(claims: Iterable[Claim]) -> list[int]:
    """What each claim is granted."""
    wanted = list(claims)
    records = ffi.new("struct arbiter_claim[]", max(len(wanted), 1))
    for record, claim in zip(records, wanted, strict=False):
        record.share, record.policy, record.weight = claim.share, claim.policy, claim.weight
        record.demand, record.held = claim.demand, claim.held
    lib.arbiter_decide(records, len(wanted))
    return [int(record.grant) for record in records[0 : len(wanted)]]


@dataclass(slots=True)
class Ratio:
    """GPU time by NVML over GPU time charged, for one process; recent time weighs more."""

    charged_ns: int
    """As the process last reported it."""
    recent_charged_ns: float = 0.0
    recent_used_ns: float = 0.0

    def note(self, charged_ns: int, used_ns: float, span_s: float) -> None:
        kept = max(0.0, 1.0 - span_s / RATIO_MEMORY_S)
        self.recent_charged_ns = self.recent_charged_ns * kept + max(
            0, charged_ns - self.charged_ns
        )
        self.recent_used_ns = self.recent_used_ns * kept + used_ns
        self.charged_ns = charged_ns

    @property
    def thousandths(self) -> int:
        """1000 until enough is known."""
        if self.recent_charged_ns < 50e6 or self.recent_used_ns < 10e6:
            return 1000
        ratio = round(1000 * self.recent_used_ns / self.recent_charged_ns)
        return max(RATIO_LEAST, min(RATIO_MOST, ratio))


@dataclass(slots=True)
class Seat:
    """One container on one GPU, with its files open."""

    name: str
    gpu: str
    device: int
    """Which of the container's devices it is."""
    usage: int
    limits: int
    image: mmap.mmap
    words: Any
    """A buffer for copies of the usage file."""
    ratios: dict[int, Ratio] = field(default_factory=dict)
    """By slot of the usage file."""

    def close(self) -> None:
        os.close(self.usage)
        os.close(self.limits)
        with contextlib.suppress(BufferError):  # cffi may still look at it
            self.image.close()


class Arbiter:
    """All containers of this node that share GPUs."""

    def __init__(self) -> None:
        self._seats: dict[tuple[str, str], Seat] = {}
        self._order: list[Seat] = []
        self._records = ffi.new("struct arbiter_seat[]", 1)

    def seat(self, name: str, limits: Path, usage: Path, gpus: Iterable[str]) -> None:
        """Takes a container in: its compute files, and the uuids of its devices in their order."""
        for device, gpu in enumerate(gpus):
            if (name, gpu) not in self._seats:
                self._seats[name, gpu] = _open(name, gpu, device, limits, usage)
        self._rearrange()

    def unseat(self, name: str) -> None:
        for key in [key for key in self._seats if key[0] == name]:
            self._seats.pop(key).close()
        self._rearrange()

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self._seats}

    @property
    def gpus(self) -> set[str]:
        """GPUs that more than one container shares: only there can spans deceive."""
        shared = [gpu for _, gpu in self._seats]
        return {gpu for gpu in shared if shared.count(gpu) > 1}

    def tick(self, now_ns: int) -> int:
        """Reads, decides, writes; answers how many limits were written."""
        return int(lib.arbiter_tick(self._records, len(self._order), now_ns, GRANT_LIFETIME_NS))

    def measured(self, gpu: str, used_ns: Mapping[int, float], span_s: float) -> None:
        """Takes in how long each pid has had the GPU in the last `span_s`, as NVML says."""
        for record, seat in zip(self._records, self._order, strict=False):
            if seat.gpu != gpu:
                continue
            _compare(seat, used_ns, span_s)
            entries = sorted(seat.ratios.items(), key=lambda item: -item[1].recent_charged_ns)[
                : lib.LIMITS_RATIOS
            ]
            for place in range(lib.LIMITS_RATIOS):
                slot, ratio = entries[place] if place < len(entries) else (0, None)
                record.ratios[place].slot = slot
                record.ratios[place].thousandths = ratio.thousandths if ratio else 0
            record.is_dirty = 1

    def close(self) -> None:
        """Takes all grants back; every container keeps its guaranteed share."""
        lib.arbiter_withdraw(self._records, len(self._order))
        for name in self.names:
            self.unseat(name)

    def _rearrange(self) -> None:
        """Seats of one GPU stand side by side; what the tick remembers moves with them."""
        before = {(seat.name, seat.gpu): index for index, seat in enumerate(self._order)}
        order = sorted(self._seats.values(), key=lambda seat: (seat.gpu, seat.name))
        numbers = {gpu: number for number, gpu in enumerate(dict.fromkeys(s.gpu for s in order))}
        records = ffi.new("struct arbiter_seat[]", max(len(order), 1))
        for index, seat in enumerate(order):
            if (was := before.get((seat.name, seat.gpu))) is not None:
                records[index] = self._records[was]
            record = records[index]
            record.usage_fd, record.limits_fd = seat.usage, seat.limits
            record.limits = ffi.from_buffer(seat.image)
            record.limits_bytes = len(seat.image)
            record.device, record.gpu = seat.device, numbers[seat.gpu]
            record.counters_at = _header(seat).counters_at + seat.device * ffi.sizeof(
                "struct usage_compute_counters"
            )
        self._records, self._order = records, order


def _open(name: str, gpu: str, device: int, limits: Path, usage: Path) -> Seat:
    usage_fd = os.open(usage, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    limits_fd = os.open(limits, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    seat = Seat(
        name=name,
        gpu=gpu,
        device=device,
        usage=usage_fd,
        limits=limits_fd,
        image=mmap.mmap(limits_fd, lib.LIMITS_FILE_BYTES),
        words=ffi.new("uint64_t[]", lib.USAGE_FILE_BYTES_MAX // 8),
    )
    if not _refresh(seat):
        seat.close()
        raise LimitsError(f"{usage} is not a usage file")
    return seat


def _refresh(seat: Seat) -> bool:
    """Copies the usage file: the tenant may truncate it, so it is never mapped."""
    image = os.pread(seat.usage, lib.USAGE_FILE_BYTES_MAX, 0)
    ffi.memmove(seat.words, image, len(image))
    return bool(lib.usage_check(seat.words, len(image), Kind.COMPUTE) == 0)


def _header(seat: Seat) -> Any:
    return ffi.cast("struct usage_header *", seat.words)


def _compare(seat: Seat, used_ns: Mapping[int, float], span_s: float) -> None:
    if not _refresh(seat):
        return
    process = ffi.new("struct usage_process *")
    for slot in range(lib.usage_mark(seat.words)):
        lib.usage_slot(seat.words, slot, process)
        charged_ns = int(process.values[lib.USAGE_BUSY_NS][seat.device])
        ratio = seat.ratios.get(slot)
        if process.pid == 0 or ratio is None or charged_ns < ratio.charged_ns:
            seat.ratios.pop(slot, None)
            if process.pid != 0:
                seat.ratios[slot] = Ratio(charged_ns)
            continue
        ratio.note(charged_ns, used_ns.get(int(process.pid), 0.0), span_s)
