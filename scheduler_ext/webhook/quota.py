"""A ResourceQuota counts memory in units: one that was written in bytes would limit nothing."""

from typing import Any

from aliquot.protocol import names
from aliquot.protocol.quantity import QuantityError, parse_quantity
from scheduler_ext.webhook.amounts import LEAST_BYTES, units_of

__all__ = ["quota_warnings"]

_KEY = f"requests.{names.MEMORY_RESOURCE}"


def quota_warnings(quota: Any, unit_mib: int) -> list[str]:
    spec = quota.get("spec") if isinstance(quota, dict) else None
    hard = spec.get("hard") if isinstance(spec, dict) else None
    text = str(hard.get(_KEY, "0")) if isinstance(hard, dict) else "0"
    try:
        value = parse_quantity(text)
    except QuantityError:
        return []
    if value < LEAST_BYTES:
        return []
    units = units_of(names.MEMORY_RESOURCE, text, unit_mib)
    return [
        f"{_KEY} counts units of {unit_mib} MiB, not bytes: {text} limits nothing; write {units}"
    ]
