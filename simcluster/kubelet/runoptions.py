"""What a container is started with: the answers of its resources, joined as the kubelet does."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deviceplugin.kubelet.proto import device_plugin_pb2 as api

__all__ = ["Conflict", "Mount", "RunOptions", "merge"]


class Conflict(AssertionError):  # noqa: N818 - a verdict on the plugin
    """Two resources answered differently about one thing; the real one keeps either."""


@dataclass(frozen=True)
class Mount:
    container: str
    host: str
    read_only: bool


@dataclass(frozen=True)
class RunOptions:
    env: dict[str, str]
    mounts: tuple[Mount, ...]
    devices: tuple[tuple[str, str, str], ...]
    """Paths in the container and on the host, and permissions."""
    cdi: tuple[str, ...]

    def mounted(self, container_path: str) -> str:
        """The host's path of what is mounted here."""
        return next(each.host for each in self.mounts if each.container == container_path)


def merge(responses: Iterable[api.ContainerAllocateResponse]) -> RunOptions:
    env: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, tuple[str, str, str]] = {}
    cdi: dict[str, None] = {}
    for response in responses:
        for name, value in response.envs.items():
            _put(env, name, value)
        for mount in response.mounts:
            path = mount.container_path
            # Runtimes follow links when the container starts, which is now.
            host = str(Path(mount.host_path).resolve())
            _put(mounts, path, Mount(path, host, mount.read_only))
        for node in response.devices:
            path = node.container_path
            _put(devices, path, (path, node.host_path, node.permissions))
        cdi.update(dict.fromkeys(device.name for device in response.cdi_devices))
    return RunOptions(env, tuple(mounts.values()), tuple(devices.values()), tuple(cdi))


def _put(table: dict[str, Any], key: str, value: object) -> None:
    if table.setdefault(key, value) != value:
        raise Conflict(f"{key} is {table[key]} to one resource and {value} to the other")
