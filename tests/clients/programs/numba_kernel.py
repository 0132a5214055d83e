"""numba-cuda: compiles a kernel, launches it on a stream, times it with events."""

import numpy as np
from numba import cuda


@cuda.jit
def axpy(factor, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = factor * x[i] + y[i]


x = np.arange(10_000, dtype=np.float32)
stream = cuda.stream()
start, end = cuda.event(), cuda.event()
on_device = cuda.to_device(x, stream=stream)
result = cuda.device_array_like(on_device)
start.record(stream)
for _ in range(5):
    axpy[100, 100, stream](2.0, on_device, result)
end.record(stream)
end.synchronize()
assert cuda.event_elapsed_time(start, end) > 0
assert (on_device.copy_to_host(stream=stream) == x).all()
stream.synchronize()

pinned = cuda.pinned_array(100, dtype=np.int32)
pinned[:] = 7
assert cuda.to_device(pinned).copy_to_host().sum() == 700
with cuda.pinned(x):
    assert (cuda.to_device(x).copy_to_host() == x).all()
free, total = cuda.current_context().get_memory_info()
assert 0 < free < total
print("ran")
