"""The kubelet's own record of who holds which ids (`kubelet_internal_checkpoint`)."""

from itertools import chain
from pathlib import Path
from sys import intern

import msgspec
from msgspec import field

from deviceplugin.booking.sources import Holder

__all__ = ["FILE_NAME", "CheckpointError", "parse", "read"]

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


def read(path: Path, holding: str = "") -> list[Holder]:
    """Empty when there is none: a kubelet that never allocated anything writes none. With an id,
    only what containers have that hold it; the rest is skipped, for less than reading it takes."""
    try:
        return parse(path.read_bytes(), holding)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def parse(content: bytes, holding: str = "") -> list[Holder]:
    """All resources' entries. Fields that we do not need may be anything.

    Its checksum is a hash of Go's printed form of the data, which nobody else can compute; the
    kubelet replaces the file by renaming, so a half-written one does not happen.
    """
    try:
        entries = _DECODER.decode(content).data.entries or []
        if holding:
            entries = _of_holders(entries, holding)
        return [
            Holder(each.pod_uid, each.container, each.resource, _ids(each.ids)) for each in entries
        ]
    except (msgspec.DecodeError, RecursionError) as error:
        raise CheckpointError(f"not what a kubelet writes: {error}") from None


def _of_holders(entries: list[_Entry], one_id: str) -> list[_Entry]:
    quoted = msgspec.json.encode(one_id)
    containers = {(each.pod_uid, each.container) for each in entries if quoted in bytes(each.ids)}
    return [each for each in entries if (each.pod_uid, each.container) in containers]


def _ids(raw: msgspec.Raw) -> frozenset[str]:
    some = _IDS_DECODER.decode(raw)
    flat = chain.from_iterable(some.values()) if isinstance(some, dict) else some or ()
    # Interned, because those that we advertise are there anyway.
    return frozenset(map(intern, flat))
