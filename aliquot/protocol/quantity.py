"""Kubernetes quantities (`4Gi`, `500m`, `1e3`) as exact numbers."""

import re
from decimal import Context, Decimal

__all__ = ["QuantityError", "parse_quantity"]

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"(?:(?P<exponent>[eE][+-]?[0-9]{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)"
)

# The usual 28 digits would round what Ei makes of longer numbers.
_EXACT = Context(prec=1000)


class QuantityError(ValueError):
    """Not a quantity as Kubernetes writes them."""


def parse_quantity(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity; write it like 4Gi, 512Mi or 16")
    number = Decimal(match["sign"] + match["number"] + (match["exponent"] or ""))
    return _EXACT.multiply(number, _SUFFIXES[match["suffix"] or ""])
