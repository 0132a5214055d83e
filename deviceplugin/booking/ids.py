"""Device ids: `m-<gpu uuid>-<n>` is one memory unit of a GPU, `c-<gpu uuid>-<n>` one percent."""

import re
from collections.abc import Iterable
from sys import intern

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking.sharing import MIB

__all__ = [
    "MESSAGE_BYTES_MOST",
    "RESOURCES",
    "IdError",
    "by_gpu",
    "check_message",
    "gpu_of",
    "ids_of",
    "list_bytes",
    "memory_units",
    "number_of",
    "other",
    "parse",
]

RESOURCES = (MEMORY_RESOURCE, COMPUTE_RESOURCE)

MESSAGE_BYTES_MOST = 3 * MIB
"""A ListAndWatch message above 4 MiB is lost and the resource silently shows 0."""

_PREFIXES = {MEMORY_RESOURCE: "m-", COMPUTE_RESOURCE: "c-"}
_ID = re.compile(
    r"(?P<prefix>[mc]-)(?P<gpu>GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"-(?P<number>0|[1-9][0-9]{0,6})"
)
_UUID_LENGTH = len("GPU-00000000-0000-0000-0000-000000000000")
_NUMBER_AT = len("m-") + _UUID_LENGTH + len("-")
# Protocol Buffers: the list's tag and length, the id's, the health's, and "Unhealthy".
_DEVICE_BYTES = 2 + 2 + 2 + len("Unhealthy")

# Numbers from these on are one digit longer.
_LONGER_FROM = (10, 100, 1_000, 10_000, 100_000, 1_000_000)


class IdError(ValueError):
    """Not an id that we ever advertised for the resource; the text quotes it."""


def other(resource: str) -> str:
    return MEMORY_RESOURCE if resource == COMPUTE_RESOURCE else COMPUTE_RESOURCE


def parse(resource: str, text: str) -> tuple[str, int]:
    """The GPU's uuid and the number."""
    match = _ID.fullmatch(text)
    if match is None:
        raise IdError(
            f"{text[:80]!r} is no id of {resource}; they look like "
            f"{_PREFIXES[resource]}GPU-01234567-89ab-cdef-0123-456789abcdef-7"
        )
    if match["prefix"] != _PREFIXES[resource]:
        raise IdError(f"{text} is an id of {other(resource)}, not of {resource}")
    return match["gpu"], int(match["number"])


def gpu_of(text: str) -> str:
    """The GPU of an id that is known to be good."""
    return text[2 : 2 + _UUID_LENGTH]


def number_of(text: str) -> int:
    """The number of an id that is known to be good."""
    return int(text[_NUMBER_AT:])


def ids_of(resource: str, uuid: str, count: int) -> tuple[str, ...]:
    start = f"{_PREFIXES[resource]}{uuid}-"
    # Interned, as everybody does who reads ids: so there is one copy of each of the thousands.
    return tuple(intern(f"{start}{number}") for number in range(count))


def by_gpu(ids: Iterable[str]) -> dict[str, list[str]]:
    """Good ids by GPU, each GPU's in the order of their numbers."""
    found: dict[str, list[str]] = {}
    for each in ids:
        found.setdefault(gpu_of(each), []).append(each)
    for some in found.values():
        some.sort(key=number_of)
    return found


def memory_units(memory_bytes: int, kept_back_bytes: int, unit_bytes: int) -> int:
    """How many whole units of a GPU can be handed out."""
    return max(0, memory_bytes - kept_back_bytes) // unit_bytes


def check_message(memory_bytes: Iterable[int], kept_back_bytes: int, unit_bytes: int) -> None:
    """Refuses a unit so small that the kubelet would drop the list of ids."""
    gpus = list(memory_bytes)

    def message_bytes(unit: int) -> int:
        return sum(list_bytes(memory_units(each, kept_back_bytes, unit)) for each in gpus)

    if message_bytes(unit_bytes) <= MESSAGE_BYTES_MOST:
        return
    least, most = unit_bytes // MIB, max(gpus) // MIB + 1
    while least + 1 < most:
        middle = (least + most) // 2
        if message_bytes(middle * MIB) <= MESSAGE_BYTES_MOST:
            most = middle
        else:
            least = middle
    raise ValueError(
        f"memory units of {unit_bytes // MIB} MiB make a list of "
        f"{message_bytes(unit_bytes) / MIB:.1f} MiB for {len(gpus)} GPUs, which the kubelet would "
        f"not take; the smallest unit that works here is {most} MiB"
    )


def list_bytes(count: int) -> int:
    digits = count + sum(max(0, count - least) for least in _LONGER_FROM)
    return count * (_DEVICE_BYTES + _NUMBER_AT) + digits
