"""Every way numba-cuda has of allocating: too much of it, then a little, then a kernel."""

import warnings

import numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

warnings.simplefilter("ignore")
TOO_MUCH = (2 << 30) // 8
LITTLE = 1000

context = cuda.current_context()
print("sees", context.get_memory_info().total >> 20)

CALLS = {
    "device_array": lambda count: cuda.device_array(count, numpy.float64),
    "managed_array": lambda count: cuda.managed_array(count, numpy.float64),
    "to_device": lambda count: cuda.to_device(numpy.empty(count)),
    "device_array_like": lambda count: cuda.device_array_like(numpy.empty(count)),
    "memalloc": lambda count: context.memalloc(count * 8),
    "memallocmanaged": lambda count: context.memallocmanaged(count * 8),
}


def outcome(call, count):
    try:
        call(count)
    except CudaAPIError as error:
        return error.code.name
    return "CUDA_SUCCESS"


for name, call in CALLS.items():
    print(name, outcome(call, TOO_MUCH), outcome(call, LITTLE))


@cuda.jit
def increase(numbers):
    place = cuda.grid(1)
    if place < numbers.size:
        numbers[place] += 1


increase[8, 128](cuda.device_array(LITTLE, numpy.float64))
cuda.synchronize()
print("sees", context.get_memory_info().total >> 20)
