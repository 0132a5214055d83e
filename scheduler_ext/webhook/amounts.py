"""Amounts of a container: quantities become units, and limits and requests become equal."""

from decimal import Decimal

from aliquot.protocol import names
from aliquot.protocol.quantity import QuantityError, parse_quantity
from scheduler_ext.webhook.findings import Findings, memory_text
from scheduler_ext.webhook.pod import OURS, Json, amounts

__all__ = ["LEAST_BYTES", "settle_amounts", "units_of", "write_amount"]

LEAST_BYTES = 2**20
"""Numbers below are units already: nobody asks for less than 1 MiB of GPU memory."""
_MIB = 2**20
_KINDS = ("limits", "requests")


def units_of(resource: str, text: str, unit_mib: int) -> Decimal:
    """The amount as the node counts it; bytes are rounded up. Raises QuantityError."""
    value = parse_quantity(text)
    if resource == names.MEMORY_RESOURCE and value >= LEAST_BYTES:
        return Decimal(-(-int(value.to_integral_value("ROUND_CEILING")) // (unit_mib * _MIB)))
    return value


def settle_amounts(container: Json, unit_mib: int, findings: Findings) -> None:
    """Rewrites what the container asks of ours in units, the same in limits and requests."""
    name = container["name"]
    for resource in OURS:
        settled: dict[str, str] = {}
        for kind in _KINDS:
            text = amounts(container, kind).get(resource)
            if text is None:
                continue
            try:
                settled[kind] = _settled(name, resource, text, unit_mib, findings)
            except QuantityError as error:
                if resource == names.COMPUTE_RESOURCE:
                    findings.refuse(
                        f"container {name}: {resource}: {text!r} is not a number; write it like 30 "
                        f"for 30 percent of one GPU"
                    )
                else:
                    findings.refuse(f"container {name}: {resource}: {error}")
        if len(set(settled.values())) > 1:
            findings.refuse(
                f"container {name}: {resource} has the limit {settled['limits']} and the request "
                f"{settled['requests']}, but shares are never over-committed; leave the request out"
            )
        elif settled:
            write_amount(container, resource, next(iter(settled.values())))


def write_amount(container: Json, resource: str, text: str) -> None:
    if container.get("resources") is None:
        container["resources"] = {}
    for kind in _KINDS:
        if container["resources"].get(kind) is None:
            container["resources"][kind] = {}
        container["resources"][kind][resource] = text


def _settled(name: str, resource: str, text: str, unit_mib: int, findings: Findings) -> str:
    value, units = parse_quantity(text), units_of(resource, text, unit_mib)
    if resource == names.COMPUTE_RESOURCE or value < LEAST_BYTES:
        return text
    if value != units * unit_mib * _MIB:
        findings.warn(
            f"container {name}: {resource} {text} was rounded up to "
            f"{memory_text(int(units), unit_mib)}"
        )
    return str(units)
