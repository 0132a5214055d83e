"""What the shim costs: a launch, an allocation, a question for memory, the start of a process.

On a simulated GPU in null mode, whose calls only count, so that nothing hides the shim. Every
figure is measured with and without it, side by side. `python -m bench.shim --json` prints one
object; without `--json` a table. Instructions are counted by valgrind in user space, as the
difference between a long and a short loop.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from shim import limits, usage
from simgpu.node import LIBRARIES, Node

ROOT = Path(__file__).parents[1]
SHIM = ROOT / "shim" / "libaliquot.so"
GIB = 1 << 30

ALLOCATION_BYTES = 2 << 20
"""What frameworks ask for, and a block of the device's."""

INFO_CAP = 40 * GIB
ALLOC_CAP = 1024 * GIB
"""Room for 100,000 living allocations: null mode has no end of memory, and a cap costs the same."""

LOOP = 200_000
PASSES = 5
"""Of each loop, bare and with the shim in turn; the fastest counts."""

COUNTED = (2_000, 12_000)
"""Lengths of the two loops whose instructions are compared."""

STARTS = 200
DEADLINE_S = 300


class BenchError(Exception):
    """The measurement cannot be made; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Call:
    """The cost of one call."""

    instructions_over: float
    ns: float
    ns_bare: float


@dataclass(frozen=True, slots=True)
class Allocation(Call):
    """The cost of an allocation and its free, also with much alive and among many."""

    ns_live_1: float
    ns_live_100000: float
    ns_procs_1: float
    ns_procs_64: float


@dataclass(frozen=True, slots=True)
class Start:
    """The start and end of a program that does nothing."""

    ms: float
    ms_bare: float


@dataclass(frozen=True, slots=True)
class Costs:
    """Everything that is measured."""

    launch: Call
    alloc_free: Allocation
    meminfo: Call
    process_start: Start


class Stage:
    """Two simulated GPUs in null mode, and a share of both."""

    def __init__(self, folder: Path, cap_bytes: int) -> None:
        self.program = folder / "loops"
        self._compile()
        self.node = Node.create(folder / "node", "2xA100-80G", null_mode=True)
        self.run = folder / "run"
        devices = tuple(
            limits.DeviceLimits(device.uuid, cap_bytes) for device in self.node.snapshot().devices
        )
        for name, kind in (("memory", limits.Kind.MEMORY), ("compute", limits.Kind.COMPUTE)):
            (self.run / name).mkdir(parents=True)
            limits.create(self.run / name / "limits", kind, limits.Limits(devices))
            usage.create(self.run / name / "usage", kind, len(devices))

    def _compile(self) -> None:
        command = ["cc", "-O2", f"-I{ROOT / 'shim' / 'abi'}", str(ROOT / "bench" / "loops.c")]
        command += ["-o", str(self.program), f"-L{LIBRARIES}", "-l:libcuda.so.1"]
        subprocess.run(command, check=True)

    def environment(self, with_shim: bool) -> dict[str, str]:
        environment = self.node.environment(
            {name: value for name, value in os.environ.items() if "CUDA" not in name}
        )
        if with_shim:
            environment |= {"LD_PRELOAD": str(SHIM), "ALIQUOT_RUN": str(self.run)}
        return environment

    def ns(self, call: str, with_shim: bool, live: int = 0) -> float:
        words = [self.program, call, LOOP, live, ALLOCATION_BYTES]
        return float(self._run(words, with_shim).stdout)

    def instructions(self, call: str, with_shim: bool, count: int) -> int:
        words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        words += [str(self.program), call, str(count), "0", str(ALLOCATION_BYTES)]
        found = re.search(r"Collected : (\d+)", self._run(words, with_shim).stderr)
        if found is None:
            raise BenchError("valgrind did not say how many instructions it saw")
        return int(found[1])

    def _run(self, words: Sequence[object], with_shim: bool) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(word) for word in words],
            env=self.environment(with_shim),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        if done.returncode != 0:
            raise BenchError(f"{' '.join(map(str, words))} failed:\n{done.stderr}")
        return done

    @contextmanager
    def neighbours(self, count: int) -> Iterator[None]:
        """Further processes in the container, each with an allocation."""
        with ExitStack() as stack:
            for _ in range(count):
                process = stack.enter_context(
                    subprocess.Popen(
                        [self.program, "wait", "0", "1", str(ALLOCATION_BYTES)],
                        env=self.environment(with_shim=True),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
                assert process.stdin is not None
                assert process.stdout is not None
                stack.callback(process.stdin.close)
                if process.stdout.readline() != "waiting\n":
                    raise BenchError("a process of the container did not start")
            yield


@contextmanager
def staged(cap_bytes: int) -> Iterator[Stage]:
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-", dir=folder) as directory:
        stage = Stage(Path(directory), cap_bytes)
        try:
            yield stage
        finally:
            stage.node.close()


def instructions_over(stage: Stage, name: str) -> float:
    """How many more instructions a call takes with the shim."""
    bare, capped = (
        stage.instructions(name, shim, COUNTED[1]) - stage.instructions(name, shim, COUNTED[0])
        for shim in (False, True)
    )
    # Less than nothing is what the unevenness of counting makes of nothing.
    return max(0.0, round((capped - bare) / (COUNTED[1] - COUNTED[0]), 1))


def _call(stage: Stage, name: str) -> Call:
    bare, capped = zip(
        *((stage.ns(name, False), stage.ns(name, True)) for _ in range(PASSES)), strict=True
    )
    return Call(instructions_over(stage, name), min(capped), min(bare))


def _allocation(stage: Stage) -> Allocation:
    call = _call(stage, "alloc")
    few, many = zip(
        *((stage.ns("alloc", True, 1), stage.ns("alloc", True, 100_000)) for _ in range(PASSES)),
        strict=True,
    )
    with staged(ALLOC_CAP) as crowded:
        alone = min(crowded.ns("alloc", True) for _ in range(PASSES))
        with crowded.neighbours(63):
            among = min(crowded.ns("alloc", True) for _ in range(PASSES))
    return Allocation(
        **asdict(call),
        ns_live_1=min(few),
        ns_live_100000=min(many),
        ns_procs_1=alone,
        ns_procs_64=among,
    )


def _start(stage: Stage) -> Start:
    program = shutil.which("true") or "/bin/true"
    environments = [stage.environment(shim) for shim in (False, True)]
    times: list[list[float]] = [[], []]
    for _ in range(STARTS):
        for which, environment in enumerate(environments):
            begin = time.perf_counter()
            os.waitpid(os.posix_spawn(program, [program], environment), 0)
            times[which].append((time.perf_counter() - begin) * 1000)
    bare, capped = map(min, times)
    return Start(round(capped, 3), round(bare, 3))


def measure() -> Costs:
    if shutil.which("valgrind") is None:
        raise BenchError("valgrind is not installed (Debian: valgrind)")
    with staged(ALLOC_CAP) as stage:
        alloc_free = _allocation(stage)
        launch = _call(stage, "launch")
    with staged(INFO_CAP) as stage:
        return Costs(launch, alloc_free, _call(stage, "info"), _start(stage))


def _table(costs: Costs) -> str:
    lines = ["| call | instructions over | ns | ns without |", "|---|---|---|---|"]
    for name, call in (
        ("launch", costs.launch),
        ("alloc and free", costs.alloc_free),
        ("memory info", costs.meminfo),
    ):
        lines.append(f"| {name} | {call.instructions_over:g} | {call.ns:g} | {call.ns_bare:g} |")
    alloc = costs.alloc_free
    lines += [
        "",
        f"alloc and free, 1 and 100,000 alive: {alloc.ns_live_1:g} and {alloc.ns_live_100000:g} ns",
        f"alloc and free, 1 and 64 processes: {alloc.ns_procs_1:g} and {alloc.ns_procs_64:g} ns",
    ]
    start = costs.process_start
    lines.append(f"start of a process: {start.ms:g} ms, {start.ms_bare:g} ms without")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    try:
        costs = measure()
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(costs)) if options.json else _table(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
