"""What a launch costs over no shim: instructions by valgrind, nanoseconds side by side.

On the simulator's null mode, in which a launch only counts, with two GPUs and limits for both. The
share is the whole GPU, because in null mode there is no GPU time to wait for; the way of a launch
is the same under every cap for as long as there is budget.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.containers import compile_program, preloaded
from shim import limits, usage
from shim.limits import DeviceLimits, Kind, Limits
from simgpu.node import Node

__all__ = ["measure"]

COUNTED = 100_000
TIMED = 2_000_000


def measure() -> dict[str, float]:
    """`instructions_over` per launch, measurements and the ticker's thread included."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as name:
        folder = Path(name)
        program = compile_program("launches.c", folder)
        with Node.create(folder / "state", "2xH100-80G", null_mode=True) as node:
            gpus = tuple(DeviceLimits(device.uuid, 1 << 34) for device in node.snapshot().devices)
            for kind in Kind:
                half = folder / "run" / kind.name.lower()
                half.mkdir(parents=True)
                limits.create(half / "limits", kind, Limits(gpus))
                usage.create(half / "usage", kind, len(gpus))
            bare = node.environment()
            ours = preloaded(bare, folder / "run")
            over = _instructions(program, ours) - _instructions(program, bare)
            times = [(_nanoseconds(program, ours), _nanoseconds(program, bare)) for _ in range(5)]
    return {
        "instructions_over": round(over, 1),
        "ns": round(min(with_shim for with_shim, _ in times), 1),
        "ns_bare": round(min(without for _, without in times), 1),
    }


def _instructions(program: Path, environment: dict[str, str]) -> float:
    few, many = (_collected(program, environment, count) for count in (1000, 1000 + COUNTED))
    return (many - few) / COUNTED


def _collected(program: Path, environment: dict[str, str], count: int) -> int:
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, str(count)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1])


def _nanoseconds(program: Path, environment: dict[str, str]) -> float:
    done = subprocess.run(
        [program, str(TIMED)], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout) / TIMED


if __name__ == "__main__":
    json.dump(measure(), sys.stdout)
    print()
