"""The last hour of each GPU in a few numbers per half minute, kept in memory."""

import math
from array import array
from collections.abc import Mapping
from typing import NamedTuple

from aliquot.protocol.view import History

__all__ = ["STEPS", "STEP_S", "HourOfGpus", "Point"]

STEP_S = 30
STEPS = 120
UNKNOWN = math.nan


class Point(NamedTuple):
    """One GPU at one moment; None is not known."""

    memory_held_bytes: float | None
    memory_used_bytes: float | None
    compute_held_percent: float | None
    compute_used_percent: float | None


MEASURES = Point._fields


class HourOfGpus:
    """Averages over steps that end at whole multiples of their length, on every node alike, so that
    the steps of many nodes can be added. Not thread-safe."""

    def __init__(self) -> None:
        self._step: int | None = None
        """The number of the step that is not complete yet."""
        self._completed = 0
        self._gpus: dict[str, _Gpu] = {}

    def note(self, now_unix_s: float, points: Mapping[str, Point]) -> None:
        """How the GPUs are now, by uuid."""
        self._advance(now_unix_s)
        for uuid, point in points.items():
            if uuid not in self._gpus:
                self._gpus[uuid] = _Gpu(self._completed)
            self._gpus[uuid].add(point)

    def told(self, now_unix_s: float) -> dict[str, History]:
        """What is complete by now, by uuid."""
        self._advance(now_unix_s)
        end_at = float((self._step or 0) * STEP_S)
        return {uuid: gpu.told(end_at) for uuid, gpu in self._gpus.items()}

    def _advance(self, now_unix_s: float) -> None:
        step = int(now_unix_s // STEP_S)
        if self._step is not None and step < self._step:
            # The clock was set back, and nobody knows when all of this was.
            self._gpus.clear()
            self._completed, self._step = 0, None
        if self._step is not None and step > self._step:
            passed = min(step - self._step, STEPS)
            for gpu in self._gpus.values():
                gpu.complete(passed)
            self._completed = min(STEPS, self._completed + passed)
        self._step = step


class _Gpu:
    def __init__(self, completed: int) -> None:
        """Nothing is known of the steps that were complete before it was first seen."""
        self._past = [array("d", [UNKNOWN] * completed) for _ in MEASURES]
        self._sums = [0.0] * len(MEASURES)
        self._counts = [0] * len(MEASURES)

    def add(self, point: Point) -> None:
        for measure, value in enumerate(point):
            if value is not None:
                self._sums[measure] += value
                self._counts[measure] += 1

    def complete(self, passed: int) -> None:
        """Ends the present step; of further ones that have passed as well, nothing is known."""
        for measure, past in enumerate(self._past):
            count = self._counts[measure]
            past.append(self._sums[measure] / count if count else UNKNOWN)
            past.extend([UNKNOWN] * (passed - 1))
            del past[:-STEPS]
            self._sums[measure], self._counts[measure] = 0.0, 0

    def told(self, end_at: float) -> History:
        held, used, compute_held, compute_used = (
            [None if math.isnan(value) else value for value in past] for past in self._past
        )
        return History(
            step_s=STEP_S,
            end_at=end_at,
            memory_held_bytes=held,
            memory_used_bytes=used,
            compute_held_percent=compute_held,
            compute_used_percent=compute_used,
        )
