"""What was promised, what came out, and whether it was kept; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simcluster.demo.account import Window

__all__ = [
    "TOLERANCE_POINTS",
    "Promise",
    "borrows",
    "exit_code",
    "has_reason",
    "keeps_cap",
    "keeps_share",
    "lacks",
    "misses",
    "starts_late",
    "survives_refusal",
]

TOLERANCE_POINTS = 1.0
"""Of the GPU's time: how far a share may be off."""
EDGE_BYTES = 4 << 20
"""A cap is reached when no more than this is left: programs take memory in pieces of 1 MiB."""
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of the summary."""

    pod: str
    what: str
    asked: str
    got: str
    error: str
    kept: bool


def keeps_cap(pod: str, cap_bytes: int, seen_bytes: int, peak_bytes: int) -> Promise:
    """`seen_bytes`: how large the program was told that its GPU is."""
    return Promise(
        pod,
        "memory cap",
        f"{cap_bytes / _GIB:g} GiB",
        f"{peak_bytes / _GIB:.3f} GiB",
        f"{(peak_bytes - cap_bytes) / (1 << 20):+.0f} MiB",
        seen_bytes == cap_bytes and cap_bytes - EDGE_BYTES <= peak_bytes <= cap_bytes,
    )


def survives_refusal(pod: str, result: int, is_alive: bool, worked_on: bool) -> Promise:
    """At its cap a program hears CUDA_ERROR_OUT_OF_MEMORY, which is 2, and goes on."""
    heard = "out of memory" if result == 2 else f"answer {result}"
    became = "works on" if is_alive and worked_on else "works no more" if is_alive else "has died"
    return Promise(
        pod,
        "refused at its cap",
        "out of memory, works on",
        f"{heard}, {became}",
        "",
        result == 2 and is_alive and worked_on,
    )


def keeps_share(
    pod: str, what: str, asked_percent: int, got_percent: float, attempts: int
) -> Promise:
    """`attempts`: windows that were measured, the last of which counts."""
    error = got_percent - asked_percent
    return Promise(
        pod,
        what + (f" (window {attempts})" if attempts > 1 else ""),
        f"{asked_percent} %",
        f"{got_percent:.2f} %",
        f"{error:+.2f} points",
        abs(error) <= TOLERANCE_POINTS,
    )


def borrows(pod: str, asked_percent: int, got_percent: float, attempts: int) -> Promise:
    return Promise(
        pod,
        "borrows idle time" + (f" (window {attempts})" if attempts > 1 else ""),
        f"more than {asked_percent} %",
        f"{got_percent:.2f} %",
        "",
        got_percent > asked_percent + TOLERANCE_POINTS,
    )


def has_reason(pod: str, message: str, expected: str) -> Promise:
    """What the pod's condition says, and the extender's sentence that must be in it."""
    return Promise(
        pod, "waits with its reason", "the extender's sentence", message, "", expected in message
    )


def starts_late(pod: str, phase: str, started_before_room: bool) -> Promise:
    return Promise(
        pod,
        "starts when there is room",
        "not before",
        "before" if started_before_room else phase,
        "",
        phase == "Running" and not started_before_room,
    )


def misses(window: Window, asked_percent: Mapping[str, int]) -> list[str]:
    """Pods whose share in this window is off by more than was promised."""
    return [
        pod
        for pod, asked in asked_percent.items()
        if abs(window.share_percent(pod) - asked) > TOLERANCE_POINTS
    ]


def lacks(window: Window, own_percent: Mapping[str, int]) -> list[str]:
    """Pods that had no more than what is their own anyway."""
    return [
        pod
        for pod, own in own_percent.items()
        if window.share_percent(pod) <= own + TOLERANCE_POINTS
    ]


def exit_code(promises: Sequence[Promise]) -> int:
    """0 only if there were promises and every one was kept."""
    return 0 if promises and all(each.kept for each in promises) else 1
