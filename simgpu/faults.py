"""Faults as text: `xid=79`, `lost`, `alloc=3`, `launch=719`, `nvml-slow=50ms`, `clear`."""

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FAULTS", "ClearFaults", "Fault", "FaultError", "LoseDevice", "PendingFault", "PostXid"]

FAULTS = "xid=N, lost, alloc=N, launch=ERROR, nvml-slow=DURATION, clear"
"""What can be asked for, for help texts."""

_OUT_OF_MEMORY = 2
_ECC_UNCORRECTABLE = 214
_NVLINK_UNCORRECTABLE = 220

# What a driver's users see of an Xid beside the event. The others are events and nothing more;
# 79 takes the device away.
_XID_ERRORS = {
    48: _ECC_UNCORRECTABLE,  # double bit error
    74: _NVLINK_UNCORRECTABLE,
    94: _ECC_UNCORRECTABLE,  # contained
    95: _ECC_UNCORRECTABLE,  # uncontained
}
_FELL_OFF_THE_BUS = 79

_LAUNCH_ERRORS = {
    "illegal-address": 700,
    "out-of-resources": 701,
    "timeout": 702,
    "assert": 710,
    "misaligned-address": 716,
    "launch-failed": 719,
}
_UNITS_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class FaultError(ValueError):
    """A fault that cannot be injected; the text says what can."""


@dataclass(frozen=True, slots=True)
class PostXid:
    """An event, and for some numbers an error that stays."""

    xid: int

    @property
    def error(self) -> int:
        """The CUDA error of every call from now on; 0: none."""
        return _XID_ERRORS.get(self.xid, 0)

    @property
    def ecc_errors(self) -> int:
        return int(self.error == _ECC_UNCORRECTABLE)

    @property
    def loses_device(self) -> bool:
        return self.xid == _FELL_OFF_THE_BUS


@dataclass(frozen=True, slots=True)
class LoseDevice:
    """The device is gone, without an event."""


@dataclass(frozen=True, slots=True)
class ClearFaults:
    """The device is well again."""


@dataclass(frozen=True, slots=True)
class PendingFault:
    """The next calls of a kind fail, or take long."""

    call: str
    """alloc, launch or nvml."""
    error: int = 0
    uses: int | None = None
    """How many calls; None: until it is cleared."""
    delay_ns: int = 0


Fault = PostXid | LoseDevice | ClearFaults | PendingFault


def parse_fault(text: str) -> Fault:
    """The fault that a user has written."""
    kind, _, value = text.strip().partition("=")
    if kind not in _READERS:
        raise FaultError(f"no fault `{text}`; there are {FAULTS}")
    return _READERS[kind](value)


def _number(value: str, what: str, most: int) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= most:
        raise FaultError(f"{what} must be a number from 1 to {most}, not `{value}`")
    return int(value)


def _launch(value: str) -> Fault:
    error = _LAUNCH_ERRORS.get(value)
    if error is None and not value.isdigit():
        names = ", ".join(_LAUNCH_ERRORS)
        raise FaultError(f"no launch error `{value}`; write a CUDA error number or one of {names}")
    return PendingFault("launch", error or _number(value, "the error of launch=", 999), uses=1)


def _slow(value: str) -> Fault:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", value)
    if found is None:
        raise FaultError(f"cannot read the duration `{value}`; write one such as 50ms or 2s")
    return PendingFault("nvml", delay_ns=round(float(found[1]) * _UNITS_NS[found[2]]))


def _plain(fault: Fault) -> Callable[[str], Fault]:
    def read(value: str) -> Fault:
        if value:
            raise FaultError(f"this fault takes no value, so leave out `={value}`")
        return fault

    return read


_READERS: dict[str, Callable[[str], Fault]] = {
    "xid": lambda value: PostXid(_number(value, "the number of xid=", 999)),
    "lost": _plain(LoseDevice()),
    "alloc": lambda value: PendingFault(
        "alloc", _OUT_OF_MEMORY, uses=_number(value, "the count of alloc=", 10**9)
    ),
    "launch": _launch,
    "nvml-slow": _slow,
    "clear": _plain(ClearFaults()),
}
