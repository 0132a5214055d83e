"""What programs on cuda-bindings do: memory, code, streams, events, graphs, and their errors."""

import sys

import numpy as np
from cuda.bindings import driver

from simgpu.kernels import TEST_PTX


def ok(answer: tuple) -> object:
    error, *values = answer
    assert error == driver.CUresult.CUDA_SUCCESS, driver.cuGetErrorString(error)[1]
    return values[0] if len(values) == 1 else tuple(values)


ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
context = ok(driver.cuDevicePrimaryCtxRetain(device))
ok(driver.cuCtxSetCurrent(context))

source = np.arange(1 << 20, dtype=np.uint32)
target = np.zeros_like(source)
memory = ok(driver.cuMemAlloc(source.nbytes))
ok(driver.cuMemcpyHtoD(memory, source.ctypes.data, source.nbytes))
ok(driver.cuMemcpyDtoH(target.ctypes.data, memory, target.nbytes))
assert (source == target).all()

module = ok(driver.cuModuleLoadData(TEST_PTX.encode()))
spin = ok(driver.cuModuleGetFunction(module, b"aliquot_spin"))
stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value))


def launch(duration_ns: int) -> None:
    value = np.array([duration_ns], dtype=np.uint64)
    arguments = np.array([value.ctypes.data], dtype=np.uint64)
    ok(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments.ctypes.data, 0))


start, end = (ok(driver.cuEventCreate(0)) for _ in range(2))
launch(30_000_000)  # so that the rest is queued behind it
ok(driver.cuEventRecord(start, stream))
for _ in range(10):
    launch(2_000_000)
ok(driver.cuEventRecord(end, stream))
ok(driver.cuEventSynchronize(end))
measured_ms = ok(driver.cuEventElapsedTime(start, end))

ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode(0)))
launch(1_000_000)
launch(1_000_000)
graph = ok(driver.cuStreamEndCapture(stream))
executable = ok(driver.cuGraphInstantiate(graph, 0))
for _ in range(5):
    ok(driver.cuGraphLaunch(executable, stream))
ok(driver.cuStreamSynchronize(stream))
ok(driver.cuGraphExecDestroy(executable))
ok(driver.cuGraphDestroy(graph))

error, _ = driver.cuModuleGetFunction(module, b"nothing")
assert error == driver.CUresult.CUDA_ERROR_NOT_FOUND
(error,) = driver.cuEventQuery(driver.CUevent(12345))
assert error == driver.CUresult.CUDA_ERROR_INVALID_HANDLE
error, _ = driver.cuMemAlloc(1 << 50)
assert error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY

ok(driver.cuMemFree(memory))
ok(driver.cuModuleUnload(module))
ok(driver.cuDevicePrimaryCtxRelease(device))
print(measured_ms)
sys.exit(0)
