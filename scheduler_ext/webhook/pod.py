"""A pod as admission reads it: plain JSON whose shape was checked once, and what it asks for."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from aliquot.protocol import names
from aliquot.protocol.request import PodRequest, Role, read_request

__all__ = [
    "Json",
    "ShapeError",
    "annotations_of",
    "asks",
    "check_shape",
    "containers",
    "request_of",
]

Json = dict[str, Any]
OURS = (names.MEMORY_RESOURCE, names.COMPUTE_RESOURCE)


class ShapeError(ValueError):
    """Not the JSON of a pod; the text says where."""


class _Resources(msgspec.Struct):
    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class _Env(msgspec.Struct):
    name: str = ""
    value: str | None = None


class _Mount(msgspec.Struct, rename="camel"):
    mount_path: str = ""


class _Device(msgspec.Struct, rename="camel"):
    device_path: str = ""


class _Container(msgspec.Struct, rename="camel"):
    name: str
    resources: _Resources | None = None
    restart_policy: str | None = None
    env: list[_Env] | None = None
    volume_mounts: list[_Mount] | None = None
    volume_devices: list[_Device] | None = None


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    scheduler_name: str | None = None
    node_name: str | None = None
    runtime_class_name: str | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


def check_shape(value: Any) -> Json:
    """The value itself, after which its fields can be read without looking twice."""
    try:
        msgspec.convert(value, _Pod)
    except msgspec.ValidationError as error:
        raise ShapeError(f"the object is not a pod: {error}") from None
    pod: Json = value
    return pod


def annotations_of(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def containers(pod: Json) -> Iterator[tuple[Json, Role]]:
    """Those that can have resources, in the order in which they start."""
    for container in pod["spec"].get("initContainers") or ():
        sidecar = container.get("restartPolicy") == "Always"
        yield container, Role.SIDECAR if sidecar else Role.INIT
    for container in pod["spec"].get("containers") or ():
        yield container, Role.APP


def amounts(container: Json, kind: str) -> Mapping[str, str]:
    """`kind` is `limits` or `requests`."""
    return (container.get("resources") or {}).get(kind) or {}


def asks(container: Json) -> bool:
    return any(
        amounts(container, kind).get(resource, "0") != "0"
        for kind in ("limits", "requests")
        for resource in OURS
    )


def request_of(pod: Json) -> PodRequest:
    """Raises aliquot.protocol.request.RequestError."""
    return read_request(
        annotations_of(pod),
        [
            (container["name"], amounts(container, "limits"), role)
            for container, role in containers(pod)
        ],
    )
