"""Measures compute shares on the simulated GPU: `python -m bench.throttle [--json] [--full]`."""

import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import figure
from bench.cases import NAMED, Case, Container, Load, full
from bench.containers import Running, compile_program, start
from bench.priority import ahead_of_others
from bench.truth import Trace, record
from simgpu.node import LIBRARIES, STATE_VARIABLE, Node

__all__ = ["Bench", "Result", "main"]

SETTLE_S = 3.0
MEASURE_S = 20.0
REACHABLE_S = 3.0
RETURNS = 3
"""How often a lender's return is watched."""
RETURN_WITHIN = 3.0
"""Points of share in the 100 ms that follow the first 100 ms: what single windows may deviate."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came out of a case; lists where there are several containers."""

    case: Case
    shares: tuple[float, ...]
    reachable: tuple[float, ...]
    window_sd: float
    longest_block_ms: float
    target: tuple[float, ...]
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.faults

    def record(self) -> dict[str, Any]:
        loads = [container.loads[0] for container in self.case.containers]
        sizes = [
            load.kernel_us[0] if len(load.kernel_us) == 1 else list(load.kernel_us)
            for load in loads
        ]
        return {
            "case": self.case.name,
            "cap": _plain([container.cap for container in self.case.containers]),
            "kernel_us": _plain(sizes),
            "blocks": _plain([load.blocks for load in loads]),
            "per_sync": _plain([load.per_sync for load in loads]),
            "api": _plain([load.api for load in loads]),
            "share": _plain([round(share, 2) for share in self.shares]),
            "reachable": _plain([round(share, 2) for share in self.reachable]),
            "window_sd": round(self.window_sd, 2),
            "longest_block_ms": round(self.longest_block_ms, 1),
            "target": _plain([round(share, 2) for share in self.target]),
            "ok": self.ok,
            "faults": list(self.faults),
        }


@dataclass(frozen=True, slots=True)
class Return:
    """One return of a lender: what was lent before, and both shares after it."""

    lent: float
    soon: tuple[float, ...]
    later: tuple[float, ...]
    window_sd: float
    longest_block_ms: float


def _plain(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


class Bench:
    """A simulated node with one GPU, on which cases run one after the other."""

    def __init__(self, node: Node, folder: Path, program: Path) -> None:
        self.node = node
        self._folder = folder
        self._program = program
        self._runs = 0
        self._reachable: dict[Load, float] = {}

    @classmethod
    @contextmanager
    def open(cls) -> Iterator["Bench"]:
        # In memory: the state file is written to all the time.
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryDirectory(prefix="aliquot-bench-", dir=place) as name:
            folder = Path(name)
            with ahead_of_others(), Node.create(folder / "state", "1xH100-80G") as node:
                # So that pynvml finds the simulated NVML by its soname, on this node.
                os.environ[STATE_VARIABLE] = str(node.path.absolute())
                ctypes.CDLL(str(LIBRARIES / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
                yield cls(node, folder, compile_program("load.c", folder))

    def run(
        self, containers: tuple[Container, ...], *, shim: bool = True, arbitrated: bool = True
    ) -> Running:
        self._runs += 1
        folder = self._folder / f"case{self._runs}"
        return start(self.node, self._program, folder, containers, shim=shim, arbitrated=arbitrated)

    def reachable(self, load: Load) -> float:
        """The share that a loop reaches alone and without the shim."""
        steady = replace(load, start_after_s=0, idle_after_s=0, idle_s=0)
        if steady not in self._reachable:
            self._reachable[steady] = self._reach(steady)
        return self._reachable[steady]

    def _reach(self, load: Load) -> float:
        trace = Trace()
        with self.run((Container(100, (load,)),), shim=False) as running:
            record(trace, self.node, REACHABLE_S, 0.1)
        assert not running.shares[0].broken
        return trace.share(running.shares[0].pids, 0.5, trace.seconds)

    # --- the kinds of cases ------------------------------------------------------------------

    def measure(self, case: Case, seconds: float = MEASURE_S, settle: float = SETTLE_S) -> Result:
        match case.kind:
            case "start":
                return self._start(case)
            case "burst":
                return self._burst(case)
            case "whole":
                return self._whole(case, seconds, settle)
            case _:
                return self._steady(case, seconds, settle)

    def _steady(self, case: Case, seconds: float, settle: float) -> Result:
        killed = next((c.killed_after_s for c in case.containers if c.killed_after_s), None)
        reachable = tuple(self._reachable_by(container) for container in case.containers)
        trace = Trace()
        with self.run(case.containers) as running:
            record(trace, self.node, killed if killed else settle + seconds)
            end = trace.seconds
            if killed:
                for share in running.shares:
                    if share.container.killed_after_s is not None:
                        share.kill()
                record(trace, self.node, settle + seconds - killed)
        reachable = tuple(
            self._reachable_again(container, alone)
            for container, alone in zip(case.containers, reachable, strict=True)
        )
        groups = [share.pids for share in running.shares]
        shares = tuple(trace.share(pids, settle, end) for pids in groups)
        target = tuple(
            min(container.cap, alone)
            for container, alone in zip(case.containers, reachable, strict=True)
        )
        faults = _faults(case, shares, target)
        if killed:
            later = tuple(trace.share(pids, end + 0.2, trace.seconds) for pids in groups)
            faults += [
                f"after the kill: {share:.2f} instead of {aim:.2f}"
                for share, aim, container in zip(later, target, case.containers, strict=True)
                if container.killed_after_s is None and abs(share - aim) > case.within
            ]
        faults += self._split_faults(trace, running, settle, end)
        faults += [f"a program failed: {code}" for each in running.shares for code in each.broken]
        smooth = max(trace.window_sd(pids, settle, end) for pids in groups)
        longest = _longest_ms(running)
        if case.window_sd_most and smooth >= case.window_sd_most:
            faults.append(f"100 ms windows deviate by {smooth:.2f}")
        if case.longest_block_ms_most and longest >= case.longest_block_ms_most:
            faults.append(f"a launch was blocked for {longest:.0f} ms")
        return Result(case, shares, reachable, smooth, longest, target, tuple(faults))

    def _reachable_by(self, container: Container) -> float:
        """Several processes reach what is left by the others; one after the other they sum up."""
        if len(container.loads) + len(container.late) > 1:
            return 100.0
        return self.reachable(container.loads[0])

    def _reachable_again(self, container: Container, alone: float) -> float:
        """Where the loop's own pace may be the limit, it is measured before and after the case:
        the pace of a loop that waits for every kernel is the machine's, and that may change."""
        if alone > 1.2 * container.cap:
            return alone
        return (alone + self._reach(container.loads[0])) / 2

    def _split_faults(self, trace: Trace, running: Running, settle: float, end: float) -> list[str]:
        faults = []
        for share in running.shares:
            count = len(share.processes)
            if count == 1:
                continue
            fair = share.container.cap / count
            parts = [trace.share([pid], settle, end) for pid in share.pids]
            if max(abs(part - fair) for part in parts) > 3.0:
                faults.append("split " + "/".join(f"{part:.1f}" for part in parts))
        return faults

    def _start(self, case: Case) -> Result:
        """The first second, and the first second after a pause, may not be far above the cap."""
        load = case.containers[0].loads[0]
        trace = Trace()
        with self.run(case.containers) as running:
            record(trace, self.node, load.idle_after_s + load.idle_s + 2.0)
        pids = running.shares[0].pids
        first = trace.begins(pids) or 0.0
        again = trace.begins(pids, load.idle_after_s + load.idle_s / 2) or 0.0
        shares = (
            trace.share(pids, max(first - 0.02, 0.0), first + 0.98),
            trace.share(pids, again - 0.02, again + 0.98),
        )
        cap = case.containers[0].cap
        faults = [
            f"{share:.2f} in the first second {when}"
            for share, when in zip(shares, ("after the start", "after the pause"), strict=True)
            if share > cap + case.within
        ]
        return Result(
            case,
            (max(shares),),
            (self.reachable(load),),
            0.0,
            _longest_ms(running),
            (cap,),
            tuple(faults),
        )

    def _burst(self, case: Case) -> Result:
        """What is idle is lent; a lender is back at its share within 100 ms, each time."""
        borrower, lender = case.containers
        alone = self.reachable(borrower.loads[0])
        returns = [self._return_of_a_lender(case) for _ in range(RETURNS)]
        lent = statistics.mean(each.lent for each in returns)
        shares = tuple(
            statistics.mean(pair) for pair in zip(*(each.later for each in returns), strict=True)
        )
        faults = _faults(case, shares, (borrower.cap, lender.cap))
        if lent <= 0.97 * alone:
            faults.append(f"borrowed {lent:.2f} of {alone:.2f}")
        for each in returns:
            for share, container in zip(each.soon, case.containers, strict=True):
                if abs(share - container.cap) > RETURN_WITHIN:
                    faults.append(f"{share:.1f} instead of {container.cap} after 100 ms")
        return Result(
            case,
            (lent, *shares),
            (alone,),
            max(each.window_sd for each in returns),
            max(each.longest_block_ms for each in returns),
            (alone, borrower.cap, lender.cap),
            tuple(faults),
        )

    def _return_of_a_lender(self, case: Case) -> "Return":
        away = case.containers[1].loads[0]
        trace = Trace()
        with self.run(case.containers) as running:
            record(trace, self.node, away.idle_after_s + away.idle_s + 2.5, 0.004)
        mine, theirs = (share.pids for share in running.shares)
        back = trace.begins(theirs, away.idle_after_s + away.idle_s / 2) or trace.seconds - 2.0
        return Return(
            lent=trace.share(mine, away.idle_after_s + 1.0, back - 0.1),
            soon=tuple(trace.share(pids, back + 0.1, back + 0.2) for pids in (mine, theirs)),
            later=tuple(trace.share(pids, back + 0.1, trace.seconds) for pids in (mine, theirs)),
            window_sd=trace.window_sd(mine, back + 0.1, trace.seconds),
            longest_block_ms=_longest_ms(running),
        )

    def _whole(self, case: Case, seconds: float, settle: float) -> Result:
        """A container with the whole GPU loses nothing; measured in turns, against drift."""
        load = case.containers[0].loads[0]
        with_shim: list[float] = []
        without: list[float] = []
        for _ in range(4):
            for shim, found in ((True, with_shim), (False, without)):
                trace = Trace()
                with self.run(case.containers, shim=shim) as running:
                    record(trace, self.node, max(1.0, (seconds + settle) / 8), 0.1)
                found.append(trace.share(running.shares[0].pids, 0.5, trace.seconds))
        best, alone = max(with_shim), max(without)
        self._reachable[load] = alone
        faults = () if best >= 0.99 * alone else (f"{best:.2f} instead of {alone:.2f}",)
        return Result(case, (best,), (alone,), 0.0, _longest_ms(running), (alone,), faults)


def _faults(case: Case, shares: tuple[float, ...], target: tuple[float, ...]) -> list[str]:
    return [
        f"{share:.2f} instead of {aim:.2f}"
        for share, aim in zip(shares, target, strict=True)
        if abs(share - aim) > case.within
    ]


def _longest_ms(running: Running) -> float:
    said = [line.get("longest_ns", 0) for share in running.shares for line in share.said]
    return max(said, default=0) / 1e6


def _row(result: Result) -> str:
    shares = "/".join(f"{share:.2f}" for share in result.shares)
    target = "/".join(f"{share:.2f}" for share in result.target)
    verdict = "ok" if result.ok else "; ".join(result.faults)
    return (
        f"{result.case.name:34} {shares:>20} {target:>20} {result.window_sd:9.2f}"
        f" {result.longest_block_ms:9.1f}  {verdict}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="a list of objects instead of a table")
    parser.add_argument("--full", action="store_true", help="all combinations: hours")
    parser.add_argument("--only", metavar="TEXT", help="cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=MEASURE_S, help="how long to measure")
    parser.add_argument("--figure", type=Path, metavar="SVG", help="draws shares over time instead")
    options = parser.parse_args(arguments)
    cases = [
        case for case in (full() if options.full else NAMED) if (options.only or "") in case.name
    ]
    results = []
    with Bench.open() as bench:
        if options.figure:
            options.figure.write_text(figure.draw(bench))
            return 0
        if not options.json:
            print(f"{'case':34} {'share':>20} {'target':>20} {'window sd':>9} {'longest ms':>10}")
        for case in cases:
            results.append(bench.measure(case, options.seconds))
            if not options.json:
                print(_row(results[-1]), flush=True)
    if options.json:
        json.dump([result.record() for result in results], sys.stdout, indent=1)
        print()
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
