"""Which GPUs each container of a pod has: the form of both `plan` and `actual`."""

import msgspec

__all__ = ["Assignment", "MalformedError", "Slice", "decode", "encode"]


class MalformedError(ValueError):
    """An annotation that is not what we write there; the text names the place."""


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """A part of one GPU."""

    uuid: str
    memory_units: int
    compute_percent: int


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True):
    """By container name, app containers and others alike."""

    containers: dict[str, tuple[Slice, ...]]
    unit_mib: int = 256
    """How large the memory units are that the slices count."""


def encode(assignment: Assignment) -> str:
    return msgspec.json.encode(assignment, order="sorted").decode()


def decode(text: str) -> Assignment:
    try:
        return msgspec.json.decode(text, type=Assignment)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedError(str(error)) from None
