"""The agent's memory over restarts: a file of checked records, each on disk before it is answered.

Records are written over zeros that are on disk already, so one costs the disk one write; to let the
file grow would cost its file system more than that.
"""

import contextlib
import fcntl
import logging
import os
import time
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from sys import intern

import msgspec

from deviceplugin.booking.ledger import Allocation

__all__ = ["Journal", "JournalError"]

SPARE_RECORDS = 256
"""The file is rewritten when it has this many records, and four times as many as are needed."""

RESERVE_BYTES = 1 << 20
"""How much is written as zeros at once, for hundreds of records."""

_log = logging.getLogger(__name__)


class JournalError(Exception):
    """Nothing was recorded; the text says why and what to do."""


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What changed together: it is recorded together, or not at all."""

    put: tuple[Allocation, ...] = ()
    drop: tuple[str, ...] = ()


_DECODER = msgspec.json.Decoder(_Record)


class Journal:
    """One record a line: a checksum, then JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._lock = -1
        self._length = 0
        """Of all records; zeros follow them."""
        self._reserved = 0
        """Of the file."""
        self._records = 0
        self._entries: dict[str, Allocation] = {}
        self.was_damaged = False
        """It had to be moved aside when it was opened; the kubelet's sources must do."""

    def open(self) -> list[Allocation]:
        """What was recorded. A record that a crash cut short was never answered, so it is dropped;
        a file that is damaged otherwise is moved aside."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        content, length = b"", 0
        with contextlib.suppress(FileNotFoundError):
            content = self._path.read_bytes()
        try:
            length = self._replay(content)
        except ValueError as error:
            aside = self._path.with_name(f"{self._path.name}.damaged-{time.time_ns()}")
            self._path.replace(aside)
            _log.error(
                "the journal %s is damaged (%s); it is kept as %s, and who holds what is taken "
                "from the kubelet's own records",
                self._path,
                error,
                aside.name,
            )
            self.was_damaged = True
            self._entries.clear()
        try:
            self._rewrite()
        except OSError as error:
            if not length:
                self.close()
                raise JournalError(self._refusal(error)) from None
            # Whatever fills the disk must not keep an agent from what it has handed out already.
            _log.warning("the journal stays as long as it is: %s", self._refusal(error))
            self._go_on(content, length)
        return list(self._entries.values())

    def record(self, put: Collection[Allocation] = (), drop: Collection[str] = ()) -> None:
        """On disk when this returns; else a JournalError, and the file is as it was."""
        if not put and not drop:
            return
        line = _line(_Record(tuple(put), tuple(drop)))
        try:
            self._append(line)
        except OSError as error:
            raise JournalError(self._refusal(error)) from None
        self._apply(put, drop)
        if self._records > max(SPARE_RECORDS, 4 * len(self._entries)):
            # The old file is still whole; it only grows until there is room for a new one.
            with contextlib.suppress(OSError):
                self._rewrite()

    def close(self) -> None:
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1

    def _take_lock(self) -> None:
        """Two agents that hand out the same GPUs would over-book them."""
        path = self._path.with_name(f"{self._path.name}.lock")
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise JournalError(
                f"another agent has {self._path} open; only one may run on a node"
            ) from None

    def _append(self, line: bytes) -> None:
        if self._descriptor < 0:
            raise OSError(0, "the journal is not open")
        try:
            if self._length + len(line) > self._reserved:
                self._reserve(len(line))
            _write(self._descriptor, line, self._length)
            os.fdatasync(self._descriptor)
        except OSError:
            # Whatever got there must not look like the start of the next record.
            os.ftruncate(self._descriptor, self._length)
            self._reserved = self._length
            raise
        self._length += len(line)
        self._records += 1

    def _reserve(self, more_bytes: int) -> None:
        zeros = self._length + more_bytes + RESERVE_BYTES - self._reserved
        _write(self._descriptor, bytes(zeros), self._reserved)
        os.fsync(self._descriptor)
        self._reserved += zeros

    def _refusal(self, error: OSError) -> str:
        return f"cannot write {self._path}: {error.strerror}; make room on that disk"

    def _replay(self, content: bytes) -> int:
        """How long all whole records are."""
        length = 0
        lines = content.split(b"\n")
        # After a whole last line come zeros or nothing; anything else was cut short.
        lines.pop()
        if content and not lines:
            raise ValueError("no whole record in it")
        for number, line in enumerate(lines):
            try:
                record = _parse(line)
            except ValueError as error:
                # A torn record may have its end on disk before its middle. The first one came
                # by renaming a finished file, so it cannot be torn.
                if 0 < number == len(lines) - 1:
                    break
                raise ValueError(f"record {number + 1}: {error}") from None
            self._apply(map(_interned, record.put), record.drop)
            length += len(line) + 1
        self._records = len(lines)
        return length

    def _go_on(self, content: bytes, length: int) -> None:
        """In the file as it is."""
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._length = self._reserved = length
        if any(content[length:]):
            os.ftruncate(self._descriptor, length)
        else:
            self._reserved = len(content)

    def _apply(self, put: Iterable[Allocation], drop: Iterable[str]) -> None:
        for name in drop:
            self._entries.pop(name, None)
        for allocation in put:
            self._entries[allocation.name] = allocation

    def _rewrite(self) -> None:
        """Writes only what counts, beside the old file, and then in its place."""
        fresh = self._path.with_name(f"{self._path.name}.new")
        content = _line(_Record(tuple(self._entries.values())))
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(descriptor, content + bytes(RESERVE_BYTES), 0)
            os.fsync(descriptor)
            fresh.replace(self._path)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._length, self._records = descriptor, len(content), 1
        self._reserved = len(content) + RESERVE_BYTES
        try:
            _sync_folder(self._path.parent)
        except OSError as error:
            # Whoever is forgotten by that runs no more, or is in the kubelet's own records.
            _log.warning("a power failure may bring an older journal back: %s", error)


def _interned(allocation: Allocation) -> Allocation:
    """Ids take more memory than all the rest, and those that we advertise are there anyway."""
    return msgspec.structs.replace(
        allocation,
        ids=frozenset(map(intern, allocation.ids)),
        extra=frozenset(map(intern, allocation.extra)),
    )


def _line(record: _Record) -> bytes:
    content = msgspec.json.encode(record)
    return b"%08x %s\n" % (zlib.crc32(content), content)


def _parse(line: bytes) -> _Record:
    checksum, _, content = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(content):
        raise ValueError("wrong checksum")
    try:
        return _DECODER.decode(content)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


def _write(descriptor: int, content: bytes, at: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
