"""tinygrad: several jitted training steps, which it runs as CUDA graphs."""

import numpy as np
from tinygrad import Context, Device, Tensor, TinyJit, nn

assert Device.DEFAULT == "CUDA"


class Network:
    def __init__(self) -> None:
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


network = Network()
optimizer = nn.optim.Adam(nn.state.get_parameters(network), lr=1e-3)


@TinyJit
def train(x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = network(x).sparse_categorical_crossentropy(y).backward()
    optimizer.step()
    return loss.realize()


random = np.random.default_rng(1)
with Context(TRAINING=1):
    for _ in range(6):
        x = Tensor(random.random((16, 32), dtype=np.float32)).realize()
        y = Tensor(random.integers(0, 10, 16, dtype=np.int32)).realize()
        assert train(x, y).numpy().shape == ()
data = random.random((100, 100), dtype=np.float32)
assert (Tensor(data).to("CUDA").realize().numpy() == data).all()
print("trained")
