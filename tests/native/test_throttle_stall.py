"""Work that is queued behind what only its own program lets go on must not wait for itself."""

import sys
import time
from pathlib import Path

import pytest

from shim import limits
from shim.limits import DeviceLimits, Kind, Limits, Policy
from tests.capped import Share
from tests.simulated import simulated_node

# As programs do that want to measure a queue without the time of its making: a stream is held, all
# is launched on it, and then it is let go. 300 ms of work, where a tenth of it fills the queue.
PROGRAM = r"""
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
PTX = b'''.version 8.0
.target sm_70
.address_size 64
.visible .entry aliquot_spin_us_1000() { ret; }
'''
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
stream, flag, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()

def launch(count):
    for _ in range(count):
        assert cuda.cuLaunchKernel(kernel, 132, 1, 1, 32, 1, 1, 0, stream, None, None) == 0

assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"aliquot_spin_us_1000") == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
assert cuda.cuMemHostAlloc(ctypes.byref(flag), ctypes.c_size_t(4), 2) == 0
assert cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(address), flag, 0) == 0
word = ctypes.c_uint32.from_address(flag.value)
word.value = 0
launch(20)
assert cuda.cuStreamSynchronize(stream) == 0
assert cuda.cuStreamWaitValue32_v2(stream, address, ctypes.c_uint32(1), 0) == 0
launch(300)
word.value = 1
assert cuda.cuStreamSynchronize(stream) == 0
print("let go", flush=True)
"""


@pytest.mark.parametrize("grant", [0, 9000], ids=["its share", "borrowed time"])
def test_a_held_stream_is_let_go(tmp_path: Path, grant: int) -> None:
    with simulated_node("1xH100-80G") as node:
        share = Share.make(node, tmp_path, {0: None})
        path = share.directory / "compute" / "limits"
        (device,) = limits.read(path, Kind.COMPUTE).devices
        until_ns = time.monotonic_ns() + 10**12
        granted = DeviceLimits(device.uuid, None, 3000, grant=grant, grant_until_ns=until_ns)
        fixed = DeviceLimits(device.uuid, None, 3000)
        limits.update(path, Limits((granted if grant else fixed,), Policy.BURST))
        done = share.run([sys.executable, "-c", PROGRAM])
    assert done.stdout == "let go\n", done.stderr
