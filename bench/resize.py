"""How soon new limits hold in a running process: `python -m bench.resize`, in milliseconds.

A loop of 1 ms kernels goes from 20 to 80 percent and back. A share holds from the moment at which
40 ms in a row show it within a few points, by the simulator's account. (New memory limits need no
time: every allocation looks at them.)
"""

import json
import statistics
import sys
import time
from dataclasses import replace

from bench.cases import Container, Load
from bench.containers import Share
from bench.throttle import Bench
from bench.truth import Trace, record
from shim import limits
from shim.limits import Kind

__all__ = ["measure"]

ROUNDS = 5
LOW, HIGH = 20.0, 80.0
WINDOW_S = 0.04
NEAR = 6.0
"""Points; a window of 40 ms is that uneven."""


def measure() -> dict[str, float]:
    """The median and the worst of some changes in both directions."""
    up, down = [], []
    with Bench.open() as bench:
        for _ in range(ROUNDS):
            with bench.run((Container(LOW, (Load((1000,), per_sync=32),)),)) as running:
                (share,) = running.shares
                time.sleep(1.5)
                up.append(_change(bench, share, HIGH))
                down.append(_change(bench, share, LOW))
    return {
        "grow_ms": round(statistics.median(up), 1),
        "grow_worst_ms": round(max(up), 1),
        "shrink_ms": round(statistics.median(down), 1),
        "shrink_worst_ms": round(max(down), 1),
    }


def _change(bench: Bench, share: Share, percent: float) -> float:
    """Milliseconds from the update to the beginning of the first window with the new share."""
    trace = Trace()
    record(trace, bench.node, 0.1, 0.004)
    changed = trace.seconds
    _set(share, percent)
    record(trace, bench.node, 1.0, 0.004)
    at = changed
    while at < trace.seconds - WINDOW_S:
        if abs(trace.share(share.pids, at, at + WINDOW_S) - percent) < NEAR:
            return (at - changed) * 1e3
        at += 0.004
    return float("inf")


def _set(share: Share, percent: float) -> None:
    for kind in Kind:
        path = share.folder / kind.name.lower() / "limits"
        present = limits.read(path, kind)
        (device,) = present.devices
        fresh = replace(device, share=round(percent * 100), grant=0, grant_until_ns=0)
        limits.update(path, replace(present, devices=(fresh,)))


if __name__ == "__main__":
    json.dump(measure(), sys.stdout)
    print()
