"""Sums of histories, of a node's GPUs and of many nodes, whose steps need not meet; pure."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from aliquot.protocol.view import History

__all__ = ["total"]

_SHOWN_S = 3600
_MOST_STEP_S = 600
_CLOCKS_DIFFER_S = 120
"""A history that ends later than this from now would hide everybody else's."""

Steps = Sequence[float | None]


def total(histories: Iterable[History], now: float) -> History | None:
    """Of the last hour; None without any.

    A step counts where its middle lies. Where only some know, those count.
    """
    found = [each for each in histories if _is_plausible(each, now)]
    if not found:
        return None
    # The coarsest step: what was averaged over a minute cannot be told by the second.
    step_s = max(each.step_s for each in found)
    last = max(int(_places(each, 1, step_s)[0]) for each in found)
    first = last - _SHOWN_S // step_s + 1

    def summed(values_of: Callable[[History], Steps]) -> list[float | None]:
        sums = np.zeros(last - first + 1)
        known = np.zeros(len(sums), dtype=np.bool_)
        for each in found:
            averages = _averages(each, values_of(each), step_s, first, len(sums))
            there = np.isfinite(averages)
            sums[there] += averages[there]
            known |= there
        told = np.where(known, sums, np.nan).tolist()
        return [None if math.isnan(value) else value for value in told]

    return History(
        step_s=step_s,
        end_at=float((last + 1) * step_s),
        memory_held_bytes=summed(lambda each: each.memory_held_bytes),
        memory_used_bytes=summed(lambda each: each.memory_used_bytes),
        compute_held_percent=summed(lambda each: each.compute_held_percent),
        compute_used_percent=summed(lambda each: each.compute_used_percent),
    )


def _is_plausible(history: History, now: float) -> bool:
    return (
        0 < history.step_s <= _MOST_STEP_S
        and -_SHOWN_S < history.end_at - now < _CLOCKS_DIFFER_S
        and bool(history.memory_held_bytes)
    )


def _places(history: History, count: int, step_s: int) -> NDArray[np.int64]:
    """In which steps of the sum the middles of these lie, the latest first."""
    middles = history.end_at - (np.arange(count) + 0.5) * history.step_s
    return np.floor(middles / step_s).astype(np.int64)


def _averages(
    history: History, values: Steps, step_s: int, first: int, count: int
) -> NDArray[np.float64]:
    """By step of the sum; not a number where nothing is known."""
    latest_first = np.array(values[::-1], dtype=np.float64)
    places = _places(history, len(latest_first), step_s) - first
    usable = np.isfinite(latest_first) & (places >= 0) & (places < count)
    counts = np.bincount(places[usable], minlength=count)
    sums = np.bincount(places[usable], weights=latest_first[usable], minlength=count)
    with np.errstate(invalid="ignore"):
        averages: NDArray[np.float64] = sums / counts
    return averages
