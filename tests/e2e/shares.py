"""How much GPU time pods get, by the simulator's own account, however busy this machine is."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tests.e2e.installation import Installation
from tests.e2e.sandbox import Sandbox

__all__ = ["assert_shares"]

SPAN_S, SPANS, PATIENCE_S = 4.0, 2, 600.0
WAITED_PART = 0.05
"""Of a span, for a processor: a program that waits longer may fail to keep its GPU busy."""


@dataclass(frozen=True, slots=True)
class Look:
    time_ns: int
    busy_ns: list[int]
    waited_ns: list[int]


@dataclass(frozen=True, slots=True)
class Span:
    percent: list[float]
    """Of the span, in which a GPU worked for each pod."""
    waited: float
    """The part of it in which the pods' programs wanted a processor and had none, at the most."""


def assert_shares(installed: Installation, asked: Mapping[str, int]) -> None:
    """That these pods, which never stop working, get what they asked for, within a point. Passing a
    share would be wrong in any span; missing it in every span in which programs could run."""
    with Sandbox.around_us().preferred():
        _assert_shares(installed, asked)


def _assert_shares(installed: Installation, asked: Mapping[str, int]) -> None:
    spans: list[Span] = []
    deadline = time.monotonic() + PATIENCE_S
    while sum(span.waited < WAITED_PART for span in spans) < SPANS:
        assert time.monotonic() < deadline, f"this machine is too busy to judge by: {spans}"
        before = _look(installed, asked)
        time.sleep(SPAN_S)
        spans.append(_between(before, _look(installed, asked)))
        for got, wanted in zip(spans[-1].percent, asked.values(), strict=True):
            assert got < wanted + 1, spans
            assert got > wanted - 1 or spans[-1].waited >= WAITED_PART, spans


def _look(installed: Installation, pods: Mapping[str, int]) -> Look:
    machine = installed.cluster.node_of(next(iter(pods))).machine
    pids = [process["host_pid"] for pod in pods for process in installed.processes(pod)]
    waited_ns = [int(machine.run("cat", f"/proc/{pid}/schedstat").split()[1]) for pid in pids]
    return Look(*installed.busy_ns(*pods), waited_ns)


def _between(before: Look, after: Look) -> Span:
    passed_ns = after.time_ns - before.time_ns
    busy = zip(before.busy_ns, after.busy_ns, strict=True)
    waited = zip(before.waited_ns, after.waited_ns, strict=True)
    return Span(
        [100 * (now - then) / passed_ns for then, now in busy],
        max(now - then for then, now in waited) / passed_ns,
    )
