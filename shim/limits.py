"""The limits file from its writer's side: created whole, then changed in place."""

import fcntl
import mmap
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from shim._files import ffi, lib

__all__ = [
    "CAP_BYTES_MAX",
    "WHOLE",
    "DeviceLimits",
    "Kind",
    "Limits",
    "LimitsError",
    "Policy",
    "create",
    "read",
    "update",
]

WHOLE: int = lib.LIMITS_WHOLE
"""A whole GPU's compute: shares and grants are in hundredths of a percent."""

CAP_BYTES_MAX = 1 << 47
_NO_CAP = (1 << 64) - 1
_UUID = re.compile(r"GPU-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")


class LimitsError(Exception):
    """Limits that make no sense, or a file that is not one of limits; the text says which."""


class Kind(IntEnum):
    """Which half of an allocation a file belongs to."""

    MEMORY = lib.ACCOUNT_MEMORY
    COMPUTE = lib.ACCOUNT_COMPUTE


class Policy(IntEnum):
    """How a container may use compute beyond its share."""

    FIXED = lib.LIMITS_FIXED
    BURST = lib.LIMITS_BURST
    BEST_EFFORT = lib.LIMITS_BEST_EFFORT


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a container may have of one GPU."""

    uuid: str
    limit_bytes: int | None
    """None is no cap, said outright; 0 is not a byte."""
    share: int = WHOLE
    grant: int = 0
    grant_until_ns: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container may have."""

    devices: tuple[DeviceLimits, ...]
    policy: Policy = Policy.FIXED
    weight: int = 1
    generation: int = 0
    """Counts the updates of the file; filled in when it is written."""
    written_ns: int = 0


def create(
    path: Path, kind: Kind, limits: Limits, mode: int = 0o644, *, durable: bool = True
) -> None:
    """Writes a new file whole, so nobody ever sees half of one; an existing one is replaced.

    Not `durable` is for who can write it again after a power failure."""
    image = ffi.new("struct limits_file *")
    lib.limits_format(image, kind)
    _publish(image, ffi.sizeof("struct limits_file"), _body(replace(limits, generation=1)))
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(ffi.buffer(image))
            file.flush()
            os.fchmod(descriptor, mode)
            if durable:
                os.fsync(descriptor)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def update(path: Path, limits: Limits) -> None:
    """Publishes new limits in place: running processes see them at their next call."""
    with _mapped(path) as image:
        present = _read_image(image, Kind(_header(image).kind), path)
        body = _body(replace(limits, generation=present.generation + 1))
        _publish(ffi.from_buffer(image), len(image), body)


def read(path: Path, kind: Kind) -> Limits:
    """The newest limits in the file."""
    with open(path, "rb") as file:
        return _read_image(bytearray(file.read(lib.LIMITS_FILE_BYTES)), kind, path)


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    """The file's shared mapping, for one writer at a time; a killed writer's lock ends with it."""
    with open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        length = os.fstat(file.fileno()).st_size
        if length < ffi.sizeof("struct limits_header"):
            raise LimitsError(f"{path} is too short")
        with mmap.mmap(file.fileno(), length) as image:
            yield image


def _header(image: mmap.mmap) -> Any:
    return ffi.cast("struct limits_header *", ffi.from_buffer(image))


def _read_image(image: bytearray | mmap.mmap, kind: Kind, path: Path) -> Limits:
    body = ffi.new("struct limits_body *")
    fault = lib.limits_read(ffi.from_buffer(image), len(image), kind, body)
    if fault < 0:
        raise LimitsError(f"{path} {_text(fault)}")
    return Limits(
        devices=tuple(
            DeviceLimits(
                uuid=_uuid_text(bytes(device.uuid)),
                limit_bytes=None if device.limit_bytes == _NO_CAP else device.limit_bytes,
                share=device.share,
                grant=device.grant,
                grant_until_ns=device.grant_until_ns,
            )
            for device in body.devices[0 : body.head.device_count]
        ),
        policy=Policy(body.head.policy),
        weight=body.head.weight,
        generation=body.head.generation,
        written_ns=body.head.written_ns,
    )


def _publish(image: Any, length: int, body: Any) -> None:
    fault = lib.limits_publish(image, length, body)
    if fault < 0:
        raise LimitsError(f"the limits file {_text(fault)}")


def _text(fault: int) -> str:
    return str(ffi.string(lib.limits_fault_text(fault)).decode())


def _body(limits: Limits) -> Any:
    if not 1 <= len(limits.devices) <= lib.LIMITS_DEVICES:
        raise LimitsError(
            f"limits are for 1 to {lib.LIMITS_DEVICES} GPUs, not for {len(limits.devices)}"
        )
    if len({device.uuid.lower() for device in limits.devices}) != len(limits.devices):
        raise LimitsError("a GPU stands in the limits twice")
    body = ffi.new("struct limits_body *")
    body.head.device_count = len(limits.devices)
    body.head.policy = Policy(limits.policy)
    body.head.weight = _within(limits.weight, 1, (1 << 32) - 1, "the weight")
    body.head.generation = limits.generation
    body.head.written_ns = time.time_ns()
    for record, device in zip(body.devices, limits.devices, strict=False):
        record.uuid = _uuid_bytes(device.uuid)
        if device.limit_bytes is None:
            record.limit_bytes = _NO_CAP
        else:
            record.limit_bytes = _within(device.limit_bytes, 0, CAP_BYTES_MAX, "the memory limit")
        record.share = _within(device.share, 0, WHOLE, "the compute share")
        record.grant = _within(device.grant, 0, WHOLE, "the compute grant")
        record.grant_until_ns = _within(device.grant_until_ns, 0, (1 << 64) - 1, "the deadline")
    return body


def _within(value: int, least: int, most: int, name: str) -> int:
    # A bool is an int to Python, and a limit of True is somebody's mistake.
    if type(value) is not int or not least <= value <= most:
        raise LimitsError(f"{name} must be a whole number from {least} to {most}, not {value!r}")
    return value


def _uuid_bytes(text: str) -> bytes:
    # By hand: the standard library's uuid costs every `aliquot run` ten milliseconds.
    match = _UUID.fullmatch(text)
    if match is None:
        raise LimitsError(f"{text!r} is not the uuid of a GPU")
    return bytes.fromhex(match[1].replace("-", ""))


def _uuid_text(raw: bytes) -> str:
    digits = raw.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
