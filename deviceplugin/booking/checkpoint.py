"""The kubelet's own record of who holds which ids (`kubelet_internal_checkpoint`)."""

import json
from pathlib import Path
from typing import Any

from deviceplugin.booking.sources import Holder

__all__ = ["FILE_NAME", "CheckpointError", "parse", "read"]

FILE_NAME = "kubelet_internal_checkpoint"
"""In the device-plugins folder."""


class CheckpointError(Exception):
    """The kubelet's checkpoint cannot be read; the text says why."""


def read(path: Path) -> list[Holder]:
    """Empty when there is none: a kubelet that never allocated anything writes none."""
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def parse(content: bytes) -> list[Holder]:
    """All resources' entries. Fields that we do not need may be anything.

    Its checksum is a hash of Go's printed form of the data, which nobody else can compute; the
    kubelet replaces the file by renaming, so a half-written one does not happen.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not JSON: {error}") from None
    data = _field(document, "Data", dict, "the checkpoint")
    entries = data.get("PodDeviceEntries")
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise CheckpointError("PodDeviceEntries is not a list")
    return [_holder(entry) for entry in entries]


def _holder(entry: Any) -> Holder:
    where = "an entry of PodDeviceEntries"
    return Holder(
        pod_uid=_field(entry, "PodUID", str, where),
        container=_field(entry, "ContainerName", str, where),
        resource=_field(entry, "ResourceName", str, where),
        ids=frozenset(_ids(entry.get("DeviceIDs"))),
    )


def _ids(value: Any) -> list[str]:
    """By NUMA node since Kubernetes 1.20, a plain list before."""
    if value is None:
        return []
    groups = list(value.values()) if isinstance(value, dict) else [value]
    found: list[str] = []
    for group in groups:
        if not isinstance(group, list) or not all(isinstance(each, str) for each in group):
            raise CheckpointError("DeviceIDs are not lists of texts")
        found += group
    return found


def _field(value: Any, name: str, kind: type, where: str) -> Any:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        raise CheckpointError(f"{where} has no {name}")
    return found
