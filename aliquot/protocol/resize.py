"""Changing a running pod: what its user asks for, and what the node agent answers."""

import hashlib
from collections.abc import Mapping
from decimal import ROUND_CEILING

import msgspec

from aliquot.protocol.assignment import MalformedError
from aliquot.protocol.quantity import QuantityError, parse_quantity

__all__ = [
    "AMOUNT_MOST",
    "Amounts",
    "ResizeAnswer",
    "ResizeRequest",
    "counts_units",
    "decode_answer",
    "decode_request",
    "encode",
    "id_of_unreadable",
    "units_for",
]

MIB = 1 << 20
AMOUNT_MOST = 1 << 31
"""More than any GPU has of anything, and few enough to reckon with."""
ID_MOST = 64
REQUEST_MOST = 16 << 10
REFUSAL_MOST = 1024
"""Characters, as the next: annotations of a pod have 256 KiB together, and others need some."""


class Amounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Totals of a container over all its GPUs; None stays as it is."""

    memory_units: int | None = None
    compute_percent: int | None = None


class ResizeRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """By container name. `id` is new each time, so that the same wish can be uttered twice."""

    id: str
    containers: Mapping[str, Amounts]
    unit_mib: int = 256

    def in_units_of(self, unit_mib: int) -> "ResizeRequest":
        """The same for a node that counts in other units; never less memory than was asked."""
        if unit_mib == self.unit_mib:
            return self
        return msgspec.structs.replace(
            self,
            unit_mib=unit_mib,
            containers={
                name: msgspec.structs.replace(
                    each, memory_units=_convert(each.memory_units, self.unit_mib, unit_mib)
                )
                for name, each in self.containers.items()
            },
        )


class ResizeAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    """Of the request that it answers."""
    refusal: str = ""
    """Why nothing was changed, what is free, and what to do; empty when all of it was done."""
    containers: Mapping[str, Amounts] = {}
    """What those that were named have now."""
    unit_mib: int = 256


def encode(value: ResizeRequest | ResizeAnswer) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def decode_request(text: str) -> ResizeRequest:
    """Anybody may write the annotation, so that amounts are checked here, too."""
    if len(text) > REQUEST_MOST:
        raise MalformedError(f"it has {len(text)} characters; {REQUEST_MOST} are the most")
    try:
        request = msgspec.json.decode(text, type=ResizeRequest)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedError(str(error)) from None
    if not 0 < len(request.id) <= ID_MOST:
        raise MalformedError(f"id must have 1 to {ID_MOST} characters, and differ each time")
    if not request.containers:
        raise MalformedError("it names no container")
    for name, each in request.containers.items():
        amounts = (each.memory_units, each.compute_percent)
        if amounts == (None, None):
            raise MalformedError(f"container {name}: neither memory_units nor compute_percent")
        if any(amount is not None and not 0 < amount <= AMOUNT_MOST for amount in amounts):
            raise MalformedError(f"container {name}: amounts must be from 1 to {AMOUNT_MOST}")
    if not 0 < request.unit_mib <= AMOUNT_MOST:
        raise MalformedError(f"unit_mib must be from 1 to {AMOUNT_MOST}")
    return request


def id_of_unreadable(text: str) -> str:
    """What an answer names that answers a request without a usable id: the same for the same text,
    and short, whatever somebody wrote."""
    return f"sha256:{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"


def decode_answer(text: str) -> ResizeAnswer:
    try:
        return msgspec.json.decode(text, type=ResizeAnswer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedError(str(error)) from None


def units_for(quantity: str, unit_mib: int) -> int:
    """Whole units that hold `quantity` of memory; raises QuantityError. As in manifests, numbers
    below 1 MiB are units."""
    amount = parse_quantity(quantity)
    size_bytes = int(amount.to_integral_value(ROUND_CEILING))
    if counts_units(quantity):
        if size_bytes != amount:
            raise QuantityError(f"{quantity} is no whole number of units; write it like 6Gi or 24")
        units = size_bytes
    else:
        units = -(-size_bytes // (unit_mib * MIB))
    if not 0 < units <= AMOUNT_MOST:
        raise QuantityError(f"{quantity} is {'nothing' if units < 1 else 'more than any GPU has'}")
    return units


def counts_units(quantity: str) -> bool:
    """Whether a quantity of memory is a number of units already."""
    return parse_quantity(quantity) < MIB


def _convert(units: int | None, from_mib: int, to_mib: int) -> int | None:
    return None if units is None else -(-units * from_mib // to_mib)
