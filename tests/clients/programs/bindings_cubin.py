"""Code that NVIDIA's own compiler made: names, parameters, limits and variables of a cubin."""

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = b"""
__device__ int counter = 42;
__constant__ float table[4] = {1, 2, 3, 4};
struct Record { char bytes[5]; };
extern "C" __global__ void __launch_bounds__(128) mixed(float *x, char c, double d, Record r)
{
    __shared__ float scratch[64];
    scratch[threadIdx.x] = x[c];
    __syncthreads();
    x[0] = scratch[1] * table[2] + d + r.bytes[3] + counter;
}
"""
ATTRIBUTE = driver.CUfunction_attribute


def ok(answer: tuple) -> object:
    error, *values = answer
    assert int(error) == 0, error
    return values[0] if len(values) == 1 else tuple(values)


ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
context = ok(driver.cuCtxCreate(None, 0, device))
major, minor = (
    ok(driver.cuDeviceGetAttribute(driver.CUdevice_attribute(number), device))
    for number in (75, 76)
)
program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"code.cu", 0, [], []))
ok(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=sm_{major}{minor}".encode()]))
cubin = b" " * ok(nvrtc.nvrtcGetCUBINSize(program))
ok(nvrtc.nvrtcGetCUBIN(program, cubin))
text = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
ok(nvrtc.nvrtcGetPTX(program, text))

for image in (cubin, text):
    module = ok(driver.cuModuleLoadData(image))
    function = ok(driver.cuModuleGetFunction(module, b"mixed"))
    parameters = [ok(driver.cuFuncGetParamInfo(function, index)) for index in range(4)]
    assert parameters == [(0, 8), (8, 1), (16, 8), (24, 5)], parameters
    most = ATTRIBUTE.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert ok(driver.cuFuncGetAttribute(most, function)) == 128
    shared = ATTRIBUTE.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    assert ok(driver.cuFuncGetAttribute(shared, function)) == 256
    address, size = ok(driver.cuModuleGetGlobal(module, b"table"))
    values = np.zeros(4, dtype=np.float32)
    assert size == values.nbytes
    ok(driver.cuMemcpyDtoH(values.ctypes.data, address, size))
    assert values.tolist() == [1, 2, 3, 4]
    address, size = ok(driver.cuModuleGetGlobal(module, b"counter"))
    counter = np.zeros(1, dtype=np.int32)
    ok(driver.cuMemcpyDtoH(counter.ctypes.data, address, size))
    assert counter[0] == 42

other = ok(driver.cuDeviceGet(1))
ok(driver.cuCtxCreate(None, 0, other))
error, _ = driver.cuModuleLoadData(cubin)
assert error == driver.CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, error
print("read")
