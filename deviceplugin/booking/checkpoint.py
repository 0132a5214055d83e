"""The kubelet's own record of who holds which ids (`kubelet_internal_checkpoint`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from sys import intern

import msgspec
from msgspec import field

from deviceplugin.booking.sources import Holder, SameIds

__all__ = ["FILE_NAME", "CheckpointError", "Reader", "holders_in", "holders_of"]

FILE_NAME = "kubelet_internal_checkpoint"
"""In the device-plugins folder."""


class CheckpointError(Exception):
    """The kubelet's checkpoint cannot be read; the text says why."""


class _Entry(msgspec.Struct, gc=False):
    pod_uid: str = field(name="PodUID")
    container: str = field(name="ContainerName")
    resource: str = field(name="ResourceName")
    ids: msgspec.Raw = field(name="DeviceIDs", default=msgspec.Raw(b"null"))
    """Read one entry at a time: all of them at once are many megabytes."""


class _Data(msgspec.Struct, gc=False):
    entries: list[_Entry] | None = field(name="PodDeviceEntries", default=None)


class _Checkpoint(msgspec.Struct, gc=False):
    data: _Data = field(name="Data")


_DECODER = msgspec.json.Decoder(_Checkpoint)
_IDS_DECODER = msgspec.json.Decoder(dict[str, list[str]] | list[str] | None)
"""By NUMA node since Kubernetes 1.20, a plain list before."""


class Reader:
    """One thread reads all of it, again and again: what is as it was is the same object as before.

    Fields that we do not need may be anything. Its checksum is a hash of Go's printed form of the
    data, which nobody else can compute; the kubelet replaces the file by renaming, so a
    half-written one does not happen.
    """

    def __init__(self, path: Path, same: SameIds = lambda _resource, some: some) -> None:
        self._path = path
        self._same = same
        self._file: tuple[int, int, int] | None = None
        self._known: dict[tuple[str, str, str], tuple[int, Holder]] = {}
        self._holders: list[Holder] = []

    def read(self) -> list[Holder]:
        """Empty when there is none: a kubelet that never allocated anything writes none."""
        with _telling(self._path):
            # Before its content: what is written in between is noticed the next time.
            file = _identity(self._path)
            if file is None or file != self._file:
                self._known = {
                    (each.pod_uid, each.container, each.resource): self._holder(each)
                    for each in _entries(self._path)
                }
                self._holders = [holder for _, holder in self._known.values()]
                self._file = file
        return self._holders

    def _holder(self, entry: _Entry) -> tuple[int, Holder]:
        key = entry.pod_uid, entry.container, entry.resource
        # Two hashes of 64 bits do not meet by chance, and all these bytes would take megabytes.
        mark = hash(bytes(entry.ids))
        known = self._known.get(key)
        if known is not None and known[0] == mark:
            return known
        return mark, Holder(*key, self._same(entry.resource, _ids(entry.ids)))


def holders_of(path: Path, device_id: str) -> list[Holder]:
    """What containers have that hold the id; skipping the rest takes less than reading it."""
    with _telling(path):
        entries = _entries(path)
        quoted = msgspec.json.encode(device_id)
        found = {(each.pod_uid, each.container) for each in entries if quoted in bytes(each.ids)}
        return [
            Holder(each.pod_uid, each.container, each.resource, _ids(each.ids))
            for each in entries
            if (each.pod_uid, each.container) in found
        ]


def holders_in(path: Path, pod_uid: str) -> list[Holder]:
    """What the pod's containers hold, of all plugins."""
    with _telling(path):
        return [
            Holder(each.pod_uid, each.container, each.resource, _ids(each.ids))
            for each in _entries(path)
            if each.pod_uid == pod_uid
        ]


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not what a kubelet writes: {error}") from None


def _identity(path: Path) -> tuple[int, int, int] | None:
    """The kubelet writes a new file each time, and renames it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _entries(path: Path) -> list[_Entry]:
    try:
        return _DECODER.decode(path.read_bytes()).data.entries or []
    except FileNotFoundError:
        return []


def _ids(raw: msgspec.Raw) -> frozenset[str]:
    some = _IDS_DECODER.decode(raw)
    flat = chain.from_iterable(some.values()) if isinstance(some, dict) else some or ()
    # Interned, because those that we advertise are there anyway.
    return frozenset(map(intern, flat))
