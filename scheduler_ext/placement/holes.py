"""What the free part of a GPU is worth: dual prices of the cutting-stock problem of the sizes seen.

The linear program cuts the sizes that were asked for out of as few GPUs as possible. Its dual
price of a size is the part of a GPU that one pod of that size stands for; a hole is worth the
most that pods fitting into it together stand for. 190 milli beside an 810 milli pod are worth
nothing when hardly anyone asks for less than 190.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FULL_MILLI = 1000
_TWO_DIMENSIONAL_STEP_MILLI = 5
_MOST_PATTERNS = 600
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class HoleValues:
    """Values in milli GPU: a line for free compute, a column for free memory, in steps of so many
    thousandths; with a single column, of the smaller of both."""

    table: NDArray[np.float64]
    step: int


def unlearned_hole_values() -> HoleValues:
    """Convex, so that the tightest hole is the cheapest: best fit, until sizes were seen."""
    milli = np.arange(FULL_MILLI + 1, dtype=np.float64)
    return HoleValues((milli * milli / FULL_MILLI)[:, None], step=1)


def learned_hole_values(sizes_milli: NDArray[np.int64], demand: NDArray[np.float64]) -> HoleValues:
    """Sizes are rows of (compute, memory) in milli, 1 to 1000; demand counts GPUs asked for."""
    flat = bool((sizes_milli[:, 0] == sizes_milli[:, 1]).all())
    step = 1 if flat else _TWO_DIMENSIONAL_STEP_MILLI
    if flat:
        steps = np.stack([sizes_milli[:, 0], np.zeros(len(sizes_milli), dtype=np.int64)], axis=1)
        shape = (FULL_MILLI + 1, 1)
    else:
        steps = -(-sizes_milli // step)
        shape = (FULL_MILLI // step + 1,) * 2
    # Sizes that round to the same steps are one size; a basis cannot hold the same column twice.
    steps, where = np.unique(steps, axis=0, return_inverse=True)
    together = np.zeros(len(steps))
    np.add.at(together, where.ravel(), demand)
    return HoleValues(FULL_MILLI * _priced_holes(steps, together, shape), step)


def _priced_holes(
    steps: NDArray[np.int64], demand: NDArray[np.float64], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Column generation: patterns are added while the prices find one worth more than a GPU."""
    room = np.array(shape) - 1
    alone = np.where(steps > 0, room // np.maximum(steps, 1), FULL_MILLI).min(axis=1)
    basis = np.diag(alone.astype(np.float64))
    used = demand / alone
    table = np.zeros(shape)
    for _ in range(_MOST_PATTERNS):
        # Rounding can leave a price a hair below zero; a pod never adds value by not coming.
        prices = np.maximum(np.linalg.solve(basis.T, np.ones(len(steps))), 0.0)
        table = _knapsack(steps, prices, shape)
        if table[-1, -1] <= 1 + 1e-7:
            break
        pattern = _best_pattern(table, steps, prices)
        change = np.linalg.solve(basis, pattern)
        limits = np.where(change > _TOLERANCE, used / np.maximum(change, _TOLERANCE), np.inf)
        leaving = int(limits.argmin())
        if not np.isfinite(limits[leaving]):
            break
        used = np.maximum(used - limits[leaving] * change, 0.0)
        used[leaving] = limits[leaving]
        basis[:, leaving] = pattern
    # A table stopped early over-values the whole GPU; scaled, it is still in proportion.
    scaled: NDArray[np.float64] = table / max(float(table[-1, -1]), _TOLERANCE)
    return scaled


def _knapsack(
    steps: NDArray[np.int64], prices: NDArray[np.float64], shape: tuple[int, int]
) -> NDArray[np.float64]:
    best = np.zeros(shape)
    width = shape[1]
    for (compute, memory), price in zip(steps.tolist(), prices.tolist(), strict=True):
        # Blocks as long as the size: within one, no cell depends on another of the same block.
        for start in range(compute, shape[0], compute):
            stop = min(start + compute, shape[0])
            into = best[start:stop, memory:]
            np.maximum(
                into, best[start - compute : stop - compute, : width - memory] + price, out=into
            )
    return best


def _best_pattern(
    table: NDArray[np.float64], steps: NDArray[np.int64], prices: NDArray[np.float64]
) -> NDArray[np.float64]:
    pattern = np.zeros(len(steps))
    left = np.array(table.shape) - 1
    while True:
        fits = np.flatnonzero((steps <= left).all(axis=1) & (prices > 0))
        if not len(fits):
            return pattern
        rest = left - steps[fits]
        gap = np.abs(table[rest[:, 0], rest[:, 1]] + prices[fits] - table[left[0], left[1]])
        nearest = int(gap.argmin())
        if gap[nearest] > 1e-7:
            return pattern
        pattern[fits[nearest]] += 1
        left = rest[nearest]
