"""Amounts of memory as people write them: `4Gi`, `4096Mi`, `1.5GiB`, `25%`, plain bytes."""

import re
from decimal import Decimal

from aliquot.errors import UserError

__all__ = ["format_size", "parse_cap", "parse_size"]

_FACTORS = {
    "": 1,
    **{prefix: 1000 ** (power + 1) for power, prefix in enumerate(("k", "M", "G", "T", "P"))},
    **{prefix: 1024 ** (power + 1) for power, prefix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"))},
}
_SIZE = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?:(?P<percent>%)|(?P<prefix>[kMGTP]|[KMGTP]i)?B?)"
)


def parse_size(text: str, whole_bytes: int) -> int:
    """The bytes that a size means; a percentage is of `whole_bytes`. Fractions are rounded down."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UserError(
            f"{text!r} is not a size; write it like 4Gi, 4096Mi, 1.5Gi, 25% or a number of bytes"
        )
    number = Decimal(match["number"])
    if match["percent"]:
        if number > 100:
            raise UserError(f"{text} is more than the whole GPU")
        return int(whole_bytes * number / 100)
    return int(number * _FACTORS[match["prefix"] or ""])


def parse_cap(text: str, whole_bytes: int) -> int:
    """The same for a cap of GPU memory. In manifests 16 are 16 units: nobody means 16 bytes."""
    size_bytes = parse_size(text, whole_bytes)
    if not size_bytes:
        raise UserError(f"{text} of GPU memory is none at all")
    if size_bytes < _FACTORS["Mi"]:
        raise UserError(f"{text} is less than 1Mi; write the unit as well, like 4Gi or 512Mi")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """A size for people: `4Gi`, `1.5Gi`, `300Mi`, `12` for what is smaller than a Ki."""
    for prefix in ("Ti", "Gi", "Mi", "Ki"):
        if size_bytes >= _FACTORS[prefix]:
            return f"{size_bytes / _FACTORS[prefix]:.2f}".rstrip("0").rstrip(".") + prefix
    return str(size_bytes)
