"""The arbiter between the containers of a node: seats them, ticks, and corrects bias by NVML.

The decision and the tick are C (`shim/arbitration`). This module keeps the seats and compares what
processes were charged with the GPU time that NVML saw; who hosts it says when to tick and asks
NVML.
"""

import contextlib
import mmap
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from shim._files import ffi, lib
from shim.limits import Kind, LimitsError
from shim.usage import Identity

__all__ = ["GRANT_LIFETIME_NS", "Arbiter", "Claim", "Pace", "Ratio", "Seat", "decide"]


class Pace(IntEnum):
    """What goes on between the containers."""

    IDLE = lib.ARBITER_IDLE
    BUSY = lib.ARBITER_BUSY
    LENDING = lib.ARBITER_LENDING


GRANT_LIFETIME_NS = 600_000_000
"""Grants outlive a dead arbiter by this; another one takes over sooner."""

RATIO_MEMORY_S = 2.0
"""Over about how long charged and measured GPU time are compared."""

EXCESS_MEMORY_S = 8.0
EXCESS_OVER_S = 3.0
EXCESS_MOST = 0.15
"""What was charged wrongly is made up for over some seconds, by no more than this part at once."""

RATIO_LEAST_S = 0.6
"""Two answers of NVML at least."""

RATIO_ROUNDING = 0.006
"""NVML says whole percents: what differs by less may be right as it is charged."""

RATIO_LEAST, RATIO_MOST = 200, 3000
"""Beyond this NVML and the account contradict each other, and neither is followed further."""

RATIO_NOISE = 2
"""Smaller changes, in thousandths, are not worth writing."""


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
    """GPU time by NVML over GPU time charged, for one process; recent time weighs more.

    What charges got wrong before the ratio followed is made up for afterwards.
    """

    charged_ns: int
    """As the process last reported it."""
    thousandths: int = 1000
    """What the process shall divide by."""
    recent_charged_ns: float = 0.0
    recent_used_ns: float = 0.0
    recent_s: float = 0.0
    is_new: bool = True
    """The first answer of NVML may cover time in which the process had not begun."""
    excess_ns: float = 0.0
    """Used beyond what was charged and divided, of late."""

    def note(self, charged_ns: int, used_ns: float, span_s: float) -> None:
        if self.is_new:
            self.is_new, self.charged_ns = False, charged_ns
            return
        kept = max(0.0, 1.0 - span_s / RATIO_MEMORY_S)
        charge_ns = max(0, charged_ns - self.charged_ns)
        self.recent_charged_ns = self.recent_charged_ns * kept + charge_ns
        self.recent_used_ns = self.recent_used_ns * kept + used_ns
        self.recent_s = self.recent_s * kept + span_s
        self.charged_ns = charged_ns
        remembered = max(0.0, 1.0 - span_s / EXCESS_MEMORY_S)
        self.excess_ns = self.excess_ns * remembered + used_ns - charge_ns * self.thousandths / 1000
        self.thousandths = self._decided()

    def _decided(self) -> int:
        """1000 until enough is known, and where NVML's rounding could be all there is."""
        apart_ns = abs(self.recent_used_ns - self.recent_charged_ns)
        if (
            self.recent_s < RATIO_LEAST_S
            or apart_ns < RATIO_ROUNDING * self.recent_s * 1e9
            or self.recent_charged_ns < 50e6
            or self.recent_used_ns < 10e6
        ):
            self.excess_ns = 0.0
            return 1000
        ratio = self.recent_used_ns / self.recent_charged_ns
        used_per_s = self.recent_used_ns / self.recent_s
        excess = self.excess_ns / (used_per_s * EXCESS_OVER_S)
        ratio *= 1.0 + max(-EXCESS_MOST, min(EXCESS_MOST, excess))
        return max(RATIO_LEAST, min(RATIO_MOST, round(1000 * ratio)))


@dataclass(frozen=True, slots=True)
class Seat:
    """One container on one GPU, with its files open."""

    name: str
    gpu: str
    device: int
    """Which of the container's devices it is."""
    usage: int
    limits: int
    image: mmap.mmap
    counters_at: int
    owners_at: int
    busy_at: int
    slot_count: int
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
        self._charges = ffi.new("struct arbiter_charge[]", lib.USAGE_SLOTS_MAX)
        self._shared: frozenset[str] = frozenset()
        self._is_arranged = True

    def seat(self, name: str, limits: Path, usage: Path, gpus: Iterable[str]) -> None:
        """Takes a container in: its compute files, and the uuids of its devices in their order."""
        for device, gpu in enumerate(gpus):
            if (name, gpu) not in self._seats:
                self._seats[name, gpu] = _open(name, gpu, device, limits, usage)
                self._is_arranged = False

    def unseat(self, name: str) -> None:
        for key in [key for key in self._seats if key[0] == name]:
            self._seats.pop(key).close()
            self._is_arranged = False

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self._seats}

    @property
    def shared_gpus(self) -> frozenset[str]:
        """GPUs that several containers share: alone, charges are better than NVML's percents."""
        self._arrange()
        return self._shared

    def tick(self, now_ns: int) -> Pace:
        """Reads, decides, writes; answers what goes on."""
        self._arrange()
        count = len(self._order)
        return Pace(lib.arbiter_tick(self._records, count, now_ns, GRANT_LIFETIME_NS))

    def run(self, seconds: float) -> Pace:
        """Ticks for so long, without Python's lock; answers what goes on in the end."""
        self._arrange()
        count, ns = len(self._order), round(seconds * 1e9)
        return Pace(lib.arbiter_run(self._records, count, ns, GRANT_LIFETIME_NS))

    def measured(self, gpu: str, used_ns: Mapping[Identity, float], span_s: float) -> None:
        """Takes in how long each process has had the GPU in the last `span_s`, as NVML says."""
        self._arrange()
        for number, seat in enumerate(self._order):
            if seat.gpu != gpu:
                continue
            record = self._records[number]
            self._compare(seat, record, used_ns, span_s)
            entries = sorted(seat.ratios.items(), key=lambda item: -item[1].recent_charged_ns)[
                : lib.LIMITS_RATIOS
            ]
            found = [(slot, ratio.thousandths) for slot, ratio in entries]
            found += [(0, 0)] * (lib.LIMITS_RATIOS - len(found))
            if all(
                stated.slot == slot and abs(stated.thousandths - ratio) <= RATIO_NOISE
                for stated, (slot, ratio) in zip(record.ratios, found, strict=True)
            ):
                continue
            for stated, (slot, ratio) in zip(record.ratios, found, strict=True):
                stated.slot, stated.thousandths = slot, ratio
            record.is_dirty = 1

    def _compare(
        self, seat: Seat, record: Any, used_ns: Mapping[Identity, float], span_s: float
    ) -> None:
        count = lib.arbiter_charges(ffi.addressof(record), self._charges, lib.USAGE_SLOTS_MAX)
        present = {charge.slot: charge for charge in self._charges[0:count]}
        for slot in seat.ratios.keys() - present.keys():
            del seat.ratios[slot]
        for slot, charge in present.items():
            charged_ns = int(charge.busy_ns)
            ratio = seat.ratios.get(slot)
            if ratio is None or charged_ns < ratio.charged_ns:
                seat.ratios[slot] = Ratio(charged_ns)
                continue
            used = used_ns.get((int(charge.namespace_id), int(charge.pid)), 0.0)
            ratio.note(charged_ns, used, span_s)

    def close(self) -> None:
        """Takes all grants back; every container keeps its guaranteed share."""
        self._arrange()
        lib.arbiter_withdraw(self._records, len(self._order))
        self.leave()

    def leave(self) -> None:
        """Leaves grants to lapse by themselves, or to be renewed by somebody else."""
        for name in self.names:
            self.unseat(name)

    def _arrange(self) -> None:
        """Seats of one GPU stand side by side; what the tick remembers moves with them. Once for
        all who came and went: with hundreds of seats it takes milliseconds, in which no other
        thread of the agent gets far."""
        if self._is_arranged:
            return
        self._is_arranged = True
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
            record.counters_at, record.owners_at = seat.counters_at, seat.owners_at
            record.busy_at, record.slot_count = seat.busy_at, seat.slot_count
        self._records, self._order = records, order
        counts = Counter(seat.gpu for seat in order)
        self._shared = frozenset(gpu for gpu, count in counts.items() if count > 1)
        for seat, record in zip(order, records, strict=False):
            if seat.gpu not in self._shared:
                _forget_ratios(seat, record)


def _forget_ratios(seat: Seat, record: Any) -> None:
    """Whoever is alone on its GPU again is compared no more: what was stated last would stay."""
    seat.ratios.clear()
    for stated in record.ratios:
        if stated.thousandths:
            stated.slot, stated.thousandths = 0, 0
            record.is_dirty = 1


def _open(name: str, gpu: str, device: int, limits: Path, usage: Path) -> Seat:
    with contextlib.ExitStack() as opened:
        usage_fd = _open_usage(usage)
        opened.callback(os.close, usage_fd)
        header = _header(usage_fd)
        if header is None or device >= header.device_count:
            raise LimitsError(f"{usage} is not a usage file for {device + 1} GPUs")
        limits_fd = os.open(limits, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        opened.callback(os.close, limits_fd)
        busy_row = lib.USAGE_BUSY_NS * header.device_count + device
        seat = Seat(
            name=name,
            gpu=gpu,
            device=device,
            usage=usage_fd,
            limits=limits_fd,
            image=mmap.mmap(limits_fd, lib.LIMITS_FILE_BYTES),
            counters_at=header.counters_at + device * ffi.sizeof("struct usage_compute_counters"),
            owners_at=header.owners_at,
            busy_at=header.words_at + 8 * busy_row * header.slot_count,
            slot_count=header.slot_count,
        )
        opened.pop_all()
    return seat


def _open_usage(path: Path) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        # Noting the time of every read would cost a fifth of a tick.
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:  # only its owner may ask for that
        return os.open(path, flags)


def _header(usage_fd: int) -> Any:
    """Where everything is in the usage file, by a copy: the tenant may truncate it any time."""
    image = os.pread(usage_fd, lib.USAGE_FILE_BYTES_MAX, 0)
    words = ffi.new("uint64_t[]", lib.USAGE_FILE_BYTES_MAX // 8)
    ffi.memmove(words, image, len(image))
    if lib.usage_check(words, len(image), Kind.COMPUTE) != 0:
        return None
    return ffi.new("struct usage_header *", ffi.cast("struct usage_header *", words)[0])
