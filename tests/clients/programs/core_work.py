"""cuda.core: device, memory, compiled code, streams, events and a graph, as its examples do it."""

import numpy as np
from cuda.core import (
    Device,
    EventOptions,
    LaunchConfig,
    Program,
    ProgramOptions,
    StreamOptions,
    launch,
)

SOURCE = """
extern "C" __global__ void scale(float *data, float factor, unsigned long long count)
{
    const unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        data[i] *= factor;
}
"""

device = Device(0)
device.set_current()
assert device.name.startswith("NVIDIA")
stream = device.create_stream(options=StreamOptions(nonblocking=True))

options = ProgramOptions(arch=f"sm_{device.arch}")
for kind in ("cubin", "ptx"):
    code = Program(SOURCE, code_type="c++", options=options).compile(kind)
    kernel = code.get_kernel("scale")
    assert kernel.num_arguments == 3
    assert kernel.attributes.max_threads_per_block == 1024

buffer = device.memory_resource.allocate(4096, stream=stream)
start, end = (device.create_event(options=EventOptions(timing_enabled=True)) for _ in range(2))
config = LaunchConfig(grid=8, block=128)
stream.record(start)
for _ in range(3):
    launch(stream, config, kernel, buffer, np.float32(2), np.uint64(1024))
stream.record(end)
stream.sync()
assert end - start > 0

builder = stream.create_graph_builder()
builder.begin_building()
for _ in range(4):
    launch(builder, config, kernel, buffer, np.float32(2), np.uint64(1024))
graph = builder.end_building().complete()
graph.upload(stream)
graph.launch(stream)
graph.launch(stream)
stream.sync()

other = device.create_stream()
event = stream.record()
other.wait(event)
other.sync()
assert event.is_done
buffer.close(stream)
stream.sync()
print("ran")
