"""The usage file from outside: created empty, read as a copy that nobody trusts."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shim._files import ffi, lib
from shim.limits import Kind

__all__ = [
    "DeviceUsage",
    "Identity",
    "ProcessUsage",
    "Usage",
    "UsageError",
    "create",
    "identity_of",
    "read",
]

Identity = tuple[int, int]
"""A process as usage files name it: its pid namespace, and its pid in there."""


class UsageError(Exception):
    """Not a usage file of this kind; the text says what it is instead."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What one process says it uses, per GPU in the order of the limits."""

    pid: int
    """In its own pid namespace; 0 when the slot no longer says whose it is."""
    namespace_id: int
    start_id: int
    damaged_words: int
    held_bytes: tuple[int, ...] = ()
    busy_ns: tuple[int, ...] = ()
    throttled_ns: tuple[int, ...] = ()
    launches: tuple[int, ...] = ()

    def is_gone(self) -> bool:
        """Whether it is certainly dead; one in another pid namespace cannot be judged from here."""
        return bool(lib.process_is_dead(self.pid, self.namespace_id, self.start_id))


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """What is counted per GPU for all processes together; None where the count is damaged."""

    peak_bytes: int | None = None
    refused: int | None = None
    busy_ns: int = 0
    """GPU time of all processes that ever were; this and the following of the compute half."""
    throttled_ns: int = 0
    launches: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """A copy of a usage file, decoded. The tenant may have written anything into it."""

    devices: tuple[DeviceUsage, ...]
    processes: tuple[ProcessUsage, ...]


def create(path: Path, kind: Kind, device_count: int, mode: int = 0o666) -> None:
    """Writes a new file in which nobody uses anything yet; there must not be one already."""
    if not 1 <= device_count <= lib.LIMITS_DEVICES:
        raise UsageError(f"a usage file is for 1 to {lib.LIMITS_DEVICES} GPUs, not {device_count}")
    image = ffi.new("uint64_t[]", lib.usage_file_bytes(kind, device_count) // 8)
    lib.usage_format(image, kind, device_count)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(ffi.buffer(image))
        # Only now may anyone open it, and whatever the umask says.
        file.flush()
        os.fchmod(descriptor, mode)


def read(path: Path, kind: Kind) -> Usage:
    """Reads a copy: a mapping could be truncated under us, a pipe in its place could block us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"{path} is not a file")
        image = os.pread(descriptor, lib.USAGE_FILE_BYTES_MAX, 0)
    finally:
        os.close(descriptor)
    # The C reader wants aligned words.
    words = ffi.new("uint64_t[]", lib.USAGE_FILE_BYTES_MAX // 8)
    ffi.memmove(words, image, len(image))
    fault = lib.usage_check(words, len(image), kind)
    if fault != 0:
        raise UsageError(f"{path} {ffi.string(lib.usage_fault_text(fault)).decode()}")
    header = ffi.cast("struct usage_header *", words)
    return Usage(_devices(words, header), tuple(_processes(words, header)))


def identity_of(host_pid: int) -> Identity | None:
    """How a usage file names a process that we know by our own pid; None when we may not know."""
    try:
        process = Path(f"/proc/{host_pid}")
        inode = (process / "ns" / "pid").stat().st_ino
        status = (process / "status").read_text()
    except OSError:
        return None
    pids = next((line for line in status.splitlines() if line.startswith("NSpid:")), f"{host_pid}")
    return inode % int(lib.USAGE_NAMESPACE_MASK) + 1, int(pids.split()[-1])


def _devices(words: Any, header: Any) -> tuple[DeviceUsage, ...]:
    start = ffi.cast("char *", words) + header.counters_at
    if header.kind == Kind.COMPUTE:
        counted = ffi.cast("struct usage_compute_counters *", start)
        return tuple(
            DeviceUsage(
                busy_ns=each.busy_ns, throttled_ns=each.throttled_ns, launches=each.launches
            )
            for each in counted[0 : header.device_count]
        )
    counters = ffi.cast("struct usage_counters *", start)
    return tuple(
        DeviceUsage(peak_bytes=_decoded(each.peak), refused=_decoded(each.refused))
        for each in counters[0 : header.device_count]
    )


def _decoded(word: int) -> int | None:
    value = int(lib.usage_decode(word))
    return None if value == (1 << 64) - 1 else value


def _processes(words: Any, header: Any) -> list[ProcessUsage]:
    found = []
    slot = ffi.new("struct usage_process *")
    for number in range(lib.usage_mark(words)):
        lib.usage_slot(words, number, slot)
        values = [tuple(slot.values[measure][0 : header.device_count]) for measure in range(3)]
        if slot.pid == 0 and slot.damaged == 0 and not any(map(any, values)):
            continue
        found.append(
            ProcessUsage(
                slot.pid,
                slot.namespace_id,
                slot.start_id,
                slot.damaged,
                *([values[0]] if header.kind == Kind.MEMORY else [(), *values]),
            )
        )
    return found
