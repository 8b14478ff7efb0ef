"""tinygrad on its own CUDA device: a product, a reduction, and a graph that is run again with other data."""

import numpy as np
from tinygrad import Device, Tensor, TinyJit

assert Device.DEFAULT == "CUDA"
rng = np.random.default_rng(4)
a, b = rng.integers(-8, 8, (2, 48, 32)).astype(np.float32)
assert np.array_equal((Tensor(a) @ Tensor(b.T)).numpy(), a @ b.T)  # integers: exact
assert np.array_equal(Tensor(a).max(axis=1).numpy(), a.max(axis=1))


@TinyJit  # type: ignore[untyped-decorator]
def step(x: Tensor) -> tuple[Tensor, Tensor]:
    return (x * 2 + 1).realize(), x.sum().realize()


for turn in range(4):
    doubled, total = step(Tensor(a + turn).realize())
    assert np.array_equal(doubled.numpy(), (a + turn) * 2 + 1)
    assert total.item() == (a + turn).sum()
