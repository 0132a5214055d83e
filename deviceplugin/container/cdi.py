"""The Container Device Interface's way to write down what a device brings along."""

from collections.abc import Iterable, Mapping
from typing import Any

from deviceplugin.container.grant import DeviceNode, Mount

__all__ = ["device_name", "specification"]

KIND = "aliquot.dev/gpu"
VERSION = "0.5.0"
"""Old enough for every runtime that knows CDI at all."""


def device_name(uuid: str) -> str:
    """As a container's runtime is told it."""
    return f"{KIND}={uuid}"


def specification(
    gpus: Mapping[str, DeviceNode],
    nodes: Iterable[DeviceNode],
    mounts: Iterable[Mount],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """`gpus` are the nodes of each, by uuid; everything else comes with any of them."""
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": [
            {"name": uuid, "containerEdits": {"deviceNodes": [_node(node)]}}
            for uuid, node in gpus.items()
        ],
        "containerEdits": {
            "env": [f"{name}={value}" for name, value in environment.items()],
            "deviceNodes": [_node(node) for node in nodes],
            "mounts": [
                {
                    "hostPath": str(mount.host),
                    "containerPath": str(mount.container),
                    "options": ["ro", "nosuid", "nodev", "bind"],
                }
                for mount in mounts
            ],
        },
    }


def _node(node: DeviceNode) -> dict[str, str]:
    return {
        "path": str(node.container),
        "hostPath": str(node.host),
        "permissions": node.permissions,
    }
