"""The file in which the kubelet keeps who has which ids, in the real one's form."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deviceplugin.kubelet.proto import device_plugin_pb2 as api

__all__ = ["NAME", "Entry", "read", "write"]

NAME = "kubelet_internal_checkpoint"
NO_NUMA_NODE = "-1"
"""Ids are listed by NUMA node; this is where those of devices without one stand."""


@dataclass(frozen=True)
class Entry:
    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]
    response: api.ContainerAllocateResponse


def write(path: Path, entries: Iterable[Entry], registered: Mapping[str, Iterable[str]]) -> None:
    data = {
        "PodDeviceEntries": [
            {
                "PodUID": entry.pod_uid,
                "ContainerName": entry.container,
                "ResourceName": entry.resource,
                "DeviceIDs": {NO_NUMA_NODE: sorted(entry.ids)},
                "AllocResp": base64.b64encode(entry.response.SerializeToString()).decode(),
            }
            for entry in entries
        ],
        "RegisteredDevices": {resource: sorted(ids) for resource, ids in registered.items()},
    }
    # The real checksum is of Go's in-memory form; nobody but the kubelet can compute it.
    text = json.dumps(data)
    text = f'{{"Data":{text},"Checksum":{zlib.crc32(text.encode())}}}'
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)


def read(path: Path) -> tuple[list[Entry], list[str]]:
    """The entries, and the resources that had registered."""
    data: dict[str, Any] = json.loads(path.read_text())["Data"]
    entries = [
        Entry(
            each["PodUID"],
            each["ContainerName"],
            each["ResourceName"],
            frozenset(id_ for ids in each["DeviceIDs"].values() for id_ in ids),
            api.ContainerAllocateResponse.FromString(base64.b64decode(each["AllocResp"])),
        )
        for each in data["PodDeviceEntries"] or []
    ]
    return entries, list(data["RegisteredDevices"] or [])
