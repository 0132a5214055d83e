"""What the arbiter costs: `python -m bench.arbiter`, in percent of one core.

64 containers on 8 simulated GPUs, whose reports another process keeps fresh; the hosting thread's
CPU time over some seconds, with the scheduler's own clock.
"""

import ctypes
import json
import os
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path

from aliquot.arbitration import Arbitration, Member
from shim import limits, usage
from shim.limits import DeviceLimits, Kind, Limits, Policy
from simgpu.node import LIBRARIES, STATE_VARIABLE, Node

__all__ = ["measure"]

CONTAINERS = 64
SECONDS = 5.0
COUNTERS_AT = 64
"""Of the first device, behind the header of a usage file."""


def measure(active: int) -> float:
    """With so many containers of each GPU active."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-", dir="/dev/shm") as name:
        folder = Path(name)
        with Node.create(folder / "state", "8xH100-80G") as node:
            os.environ[STATE_VARIABLE] = str(node.path.absolute())
            ctypes.CDLL(str(LIBRARIES / "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
            gpus = [device.uuid for device in node.snapshot().devices]
            members = [_member(folder, number, gpus) for number in range(CONTAINERS)]
            busy = members[: active * len(gpus)]
            reporter = _report_from_another_process(busy)
            arbitration = Arbitration(folder / "lock", lambda: members)
            arbitration.start()
            try:
                time.sleep(1.0)
                before_ns = _cpu_ns(arbitration)
                time.sleep(SECONDS)
                return (_cpu_ns(arbitration) - before_ns) / SECONDS / 1e7
            finally:
                arbitration.stop()
                os.kill(reporter, signal.SIGKILL)
                os.waitpid(reporter, 0)


def _member(folder: Path, number: int, gpus: list[str]) -> Member:
    place = folder / f"run{number}"
    (place / "compute").mkdir(parents=True)
    member = Member.of_run(place.name, place, (gpus[number % len(gpus)],))
    share = Limits((DeviceLimits(member.gpus[0], None, 1000),), Policy.BURST)
    limits.create(member.limits, Kind.COMPUTE, share)
    usage.create(member.usage, Kind.COMPUTE, 1)
    return member


def _report_from_another_process(members: list[Member]) -> int:
    """Time in use, demand for all of it, and launches held."""
    descriptors = [os.open(member.usage, os.O_RDWR) for member in members]
    reporter = os.fork()
    while reporter == 0:
        now_ns = time.monotonic_ns()
        counters = struct.pack("5Q", now_ns, now_ns, now_ns, now_ns // 10, now_ns // 5)
        for descriptor in descriptors:
            os.pwrite(descriptor, counters, COUNTERS_AT)
        time.sleep(0.01)
    for descriptor in descriptors:
        os.close(descriptor)
    return reporter


def _cpu_ns(thread: Arbitration) -> int:
    return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0])


if __name__ == "__main__":
    found = {"idle": measure(0), "lending_everywhere": measure(1), "all_busy": measure(8)}
    json.dump({name: round(percent, 2) for name, percent in found.items()}, sys.stdout)
    print()
