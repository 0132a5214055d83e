"""Parts of time from counters that only grow, read twice."""

__all__ = ["percent_of_time"]


def percent_of_time(
    before_s: float | None, after_s: float | None, elapsed_s: float
) -> float | None:
    """How much of the time between two readings a counter of seconds has grown, in percent.

    None when either reading is missing or the counter began anew. Work is counted when it is known
    to be done, so a long kernel can come all at once; there is never more than all of the time.
    """
    if before_s is None or after_s is None or elapsed_s <= 0 or after_s < before_s:
        return None
    return min(100.0, (after_s - before_s) / elapsed_s * 100)
