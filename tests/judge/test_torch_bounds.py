"""Bounds of modules of PyTorch: what f32 computes is inside, what f16 computes is not, and what has no rule is refused."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.judge.comparison import wrong
from ptxlab.judge.references import ReferenceFunction
from ptxlab.judge.rounding import Bounded, Rounding
from tests.clients.needs import need

need("torch")


@pytest.fixture(scope="module")
def torch() -> Any:
    return import_module("torch")


def expected(torch: Any, module: Callable[..., Any], *inputs: Any) -> Bounded:
    from ptxlab.judge.torch_bounds import expected as bounds

    rules = Rounding(TARGETS["sm_80"], np.dtype(np.float32), torch)
    doubles = [each.double() if each.is_floating_point() else each for each in inputs]
    (answer,) = bounds(module, doubles, rules)
    return Bounded(answer.value.numpy(), answer.error.numpy())


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda nn, x: nn.functional.log_softmax(x, 1),
    "gelu": lambda nn, x: nn.functional.gelu(x, approximate="tanh"),
    "elu": lambda nn, x: nn.functional.elu(x - x.mean()),
    "layer norm": lambda nn, x: nn.functional.layer_norm(x, x.shape[1:]),
    "group norm": lambda nn, x: nn.functional.group_norm(x, 2),
    "convolution": lambda nn, x: nn.functional.conv2d(x, x[:, :, :3, :3], x[:, 0, 0, 0]),
    "pools": lambda nn, x: nn.functional.max_pool2d(x, 2) + nn.functional.avg_pool2d(x, 2),
    "reductions": lambda nn, x: x.std(1) + x.norm(dim=1) + x.max(1)[0] - x.cumsum(2)[:, 0],
    "products": lambda nn, x: (x @ x.transpose(2, 3)).prod(3),
    "loss": lambda nn, x: nn.functional.huber_loss(x, 2 * x),
    "attention": lambda nn, x: nn.functional.scaled_dot_product_attention(x, x, x),
}
REDUCED = ("softmax", "layer norm", "convolution", "products", "attention")


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_what_f32_computes_is_inside(torch: Any, name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 8, 6, 6)

    def module(x: Any) -> Any:
        return FUNCTIONS[name](torch.nn, x)

    want = expected(torch, module, x)
    mistaken, units = wrong(module(x).numpy(), want)
    assert not mistaken.any()
    assert units.max() < 1
    if name in REDUCED:
        assert wrong(module(x.half()).float().numpy(), want)[0].any()


def test_a_mask_is_a_factor(torch: Any) -> None:
    x, lengths = torch.randn(5, 7), torch.tensor([0, 3, 7, 1, 2])

    def masked(x: Any, lengths: Any) -> Any:
        return (x * (torch.arange(7) < lengths[:, None]) * (x > 0)).sum(1)

    want = expected(torch, masked, x, lengths)
    exact = [
        row[:length][row[:length] > 0].sum()
        for row, length in zip(x.double(), lengths, strict=True)
    ]
    np.testing.assert_allclose(want.value, exact, rtol=1e-12)
    assert not wrong(masked(x, lengths).numpy(), want)[0].any()


def test_a_kernel_may_have_a_reference_in_pytorch() -> None:
    module = import_module("torch")
    rng = np.random.default_rng(3)
    given: dict[str, Any] = {
        "x": rng.standard_normal((3, 40)).astype(np.float16), "w": rng.standard_normal((40, 5)).astype(np.float16),
        "count": np.zeros(3, np.int32), "y": np.zeros((3, 5), np.float32), "alpha": 1.5,
    }  # fmt: skip
    names: dict[str, Any] = {"torch": module}
    exec(  # a function as it stands in a file that imports PyTorch
        "def in_torch(x, w, alpha):\n"
        "    return {'y': alpha * torch.nn.functional.softmax(x, 1) @ w, 'count': x.argmax(1)}\n"
        "def alone(x, w): return torch.matmul(x, w)",
        names,
    )

    def in_numpy(x: Any, w: Any, alpha: float) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return {"y": (alpha * (e / e.sum(axis=1, keepdims=True))) @ w}

    target = TARGETS["sm_80"]
    told = ReferenceFunction(names["in_torch"], list(given)).expected(given, target, {})
    same = ReferenceFunction(in_numpy, list(given)).expected(given, target, {})["y"]
    np.testing.assert_allclose(told["y"].value, same.value, rtol=1e-12)
    assert 0.7 < (told["y"].error / same.error).min() < (told["y"].error / same.error).max() < 1.5
    assert (told["count"].value == given["x"].argmax(1)).all()
    only = {name: given[name] for name in ("x", "w", "y")}
    alone = ReferenceFunction(names["alone"], list(only)).expected(only, target, {})
    np.testing.assert_allclose(alone["y"].value, only["x"].astype(float) @ only["w"], rtol=1e-12)


def test_indices_are_exact(torch: Any) -> None:
    x = torch.randn(5, 7)
    want = expected(torch, lambda x: x.argmax(1), x)
    assert (want.value == x.argmax(1).numpy()).all()
    assert not want.error.any()
    with pytest.raises(Unsupported, match="argmax of rounded numbers"):
        expected(torch, lambda x: (x * x).argmax(1), x)


def test_what_has_no_rule_is_refused(torch: Any) -> None:
    with pytest.raises(Unsupported, match="digamma"):
        expected(torch, torch.digamma, torch.ones(3))
