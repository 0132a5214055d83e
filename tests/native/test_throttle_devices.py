"""A container with several GPUs has a share of each, whatever runs on the others.

Shares are the simulator's own accounts; what a busy machine can keep a program from is tried again.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.priority import ahead_of_others
from shim import limits, usage
from shim.limits import DeviceLimits, Kind, Limits, Policy
from tests.capped import PATIENCE_S, Share
from tests.simulated import simulated_node

pytestmark = pytest.mark.serial

CAPS = (60, 20)
MEASURE_S = 3.0
ATTEMPTS = 4

# One kernel of a library, which has the same handle in every context, on both GPUs at once.
PROGRAM = r"""
import ctypes, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
PTX = b'''.version 8.0
.target sm_70
.address_size 64
.visible .entry aliquot_spin_us_1000() { ret; }
'''
library, kernel = ctypes.c_void_p(), ctypes.c_void_p()

def launch_on(number):
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    if sys.argv[1] == "own":
        assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    while True:
        for _ in range(16):
            assert cuda.cuLaunchKernel(kernel, 132, 1, 1, 32, 1, 1, 0, stream, None, None) == 0
        assert cuda.cuStreamSynchronize(stream) == 0

assert cuda.cuInit(0) == 0
assert cuda.cuLibraryLoadData(ctypes.byref(library), PTX, None, None, 0, None, None, 0) == 0
assert cuda.cuLibraryGetKernel(ctypes.byref(kernel), library, b"aliquot_spin_us_1000") == 0
for number in range(2):
    threading.Thread(target=launch_on, args=(number,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("stream", ["default", "own"])
def test_each_gpu_has_a_budget_of_its_own(tmp_path: Path, stream: str) -> None:
    for attempt in range(ATTEMPTS):
        shares = measured(tmp_path / f"{attempt}", stream)
        assert shares[0] < CAPS[0] + 6
        assert shares[1] < CAPS[1] + 6
        if shares[0] > CAPS[0] - 15 and shares[1] > CAPS[1] - 8:
            return
    pytest.fail(f"never came near {CAPS}: {shares}")


def measured(folder: Path, stream: str) -> list[float]:
    """Percent of each GPU's time, from a second after the start."""
    with ahead_of_others(), simulated_node("2xH100-80G") as node:
        share = Share(node, folder)
        gpus = [device.uuid for device in node.snapshot().devices]
        caps = tuple(
            DeviceLimits(gpu, None, share=100 * cap) for gpu, cap in zip(gpus, CAPS, strict=True)
        )
        for kind in Kind:
            half = folder / kind.name.lower()
            half.mkdir(parents=True)
            limits.create(half / "limits", kind, Limits(caps, Policy.FIXED))
            usage.create(half / "usage", kind, len(caps))
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, stream],
            env=share.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

        def account() -> tuple[list[int], list[int]]:
            snapshot = node.snapshot()
            (mine,) = (each for each in snapshot.processes if each.pid == process.pid)
            used = {each.device: each.busy_ns for each in mine.usages}
            times = [device.time_ns for device in snapshot.devices]
            return times, [used.get(number, 0) for number in range(len(times))]

        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(1.0)
            since, before = account()
            time.sleep(MEASURE_S)
            until, after = account()
        finally:
            process.kill()
            process.communicate(timeout=PATIENCE_S)
    return [
        100 * (used - had) / (end - start)
        for start, end, had, used in zip(since, until, before, after, strict=True)
    ]
