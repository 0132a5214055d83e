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

LIBRARY = "libaliquot.so"
COUNTED = 500_000
TIMED = 2_000_000


def measure() -> dict[str, float]:
    """Instructions over no shim per launch: of one that is not measured, and of all on average,
    measurements and the ticker's thread included."""
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
            with_shim, short_way = _instructions(program, ours, folder)
            over = with_shim - _instructions(program, bare, folder)[0]
            times = [(_nanoseconds(program, ours), _nanoseconds(program, bare)) for _ in range(5)]
    return {
        "instructions_unmeasured": round(short_way, 1),
        "instructions_over": round(over, 1),
        "ns": round(min(ours_ns for ours_ns, _ in times), 1),
        "ns_bare": round(min(without for _, without in times), 1),
    }


def _instructions(program: Path, environment: dict[str, str], folder: Path) -> tuple[float, float]:
    """Per launch: in all, and in the shim's cuLaunchKernel itself."""
    few, many = (
        _collected(program, environment, count, folder) for count in (1000, 1000 + COUNTED)
    )
    return (many[0] - few[0]) / COUNTED, (many[1] - few[1]) / COUNTED


def _collected(
    program: Path, environment: dict[str, str], count: int, folder: Path
) -> tuple[int, int]:
    profile = folder / "profile"
    done = subprocess.run(
        [
            "valgrind",
            "--tool=callgrind",
            # Else the launching thread keeps the ticker from ever running on a quiet machine.
            "--fair-sched=yes",
            "--compress-strings=no",
            "--compress-pos=no",
            f"--callgrind-out-file={profile}",
            program,
            str(count),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1]), _own_instructions(profile.read_text())


def _own_instructions(profile: str) -> int:
    """What cuLaunchKernel of the shim executes itself, without what it calls.

    On the short way that is all of it: it ends in a jump to the driver.
    """
    total = 0
    is_ours = is_wanted = is_call = False
    for line in profile.splitlines():
        if line.startswith("ob="):
            is_ours = line.endswith(LIBRARY)
        elif line.startswith("fn="):
            is_wanted = is_ours and line == "fn=cuLaunchKernel"
        elif line.startswith("calls="):
            is_call = True  # the next line is the cost of the call
        elif is_wanted and line[:1].isdigit():
            total += 0 if is_call else int(line.split()[1])
            is_call = False
        elif line[:1].isdigit():
            is_call = False
    return total


def _nanoseconds(program: Path, environment: dict[str, str]) -> float:
    done = subprocess.run(
        [program, str(TIMED)], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout) / TIMED


if __name__ == "__main__":
    json.dump(measure(), sys.stdout)
    print()
