"""tinygrad's allocator and tensors: too much, then a little, then some steps of training."""

from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.helpers import Context

allocator = Device["CUDA"].allocator


def outcome(call):
    try:
        call()
    except MemoryError:
        return "CUDA_ERROR_OUT_OF_MEMORY"
    return "CUDA_SUCCESS"


print(
    "allocator", outcome(lambda: allocator.alloc(2 << 30)), outcome(lambda: allocator.alloc(4096))
)
print(
    "tensor",
    outcome(lambda: (Tensor.empty(1 << 29) + 1).realize()),
    outcome(lambda: (Tensor.empty(1 << 10) + 1).realize()),
)

layer = nn.Linear(16, 4)
optimizer = nn.optim.SGD([layer.weight, layer.bias])


@TinyJit
def step(batch):
    optimizer.zero_grad()
    loss = layer(batch).square().mean().backward()
    return loss.realize(*optimizer.schedule_step())


with Context(TRAINING=1):
    for _ in range(4):
        step(Tensor.ones(8, 16).contiguous().realize())
Device["CUDA"].synchronize()
print("trained")
