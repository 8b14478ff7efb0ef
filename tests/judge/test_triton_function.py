# mypy: disable-error-code="no-untyped-def,untyped-decorator,name-defined"
"""Functions of Triton judged by themselves, right and wrong."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab import LaunchConfig, evaluate, open_device
from ptxlab.isa.targets import TARGETS
from ptxlab.judge.arguments import Array
from ptxlab.judge.carrying_kernel import CarryingKernel
from ptxlab.judge.comparison import wrong
from ptxlab.judge.judgement import Judgement
from ptxlab.judge.triton_function import compiled, pickle_by_file
from tests.clients.needs import need

need("triton")
pytestmark = pytest.mark.thorough  # Triton compiles each

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

SM_80 = TARGETS["sm_80"]


@triton.jit
def rows(x, y, factor, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    numbers = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(y + row, factor * tl.sum(numbers, 0))


@triton.jit
def too_far(x, y, factor, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    tl.store(y + row, factor * tl.sum(tl.load(x + row * n + i), 0))  # HERE


@triton.jit
def too_large(x, y, factor, n, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    numbers = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(y + row, 1.001 * factor * tl.sum(numbers, 0))


@triton.jit
def unknown(x, y, factor, n, B: tl.constexpr):
    tl.store(y, nothing)  # noqa: F821  # THERE


def reference(x: Any) -> Any:
    return {"y": 1.5 * x.sum(axis=1)}


def judged(function: Any, **more: Any) -> Judgement:
    task: dict[str, Any] = {
        "sizes": {"m": 3, "n": 70}, "grid": lambda m, n: m, "block": 64, "gpus": ("a100",), "seed": 1,
        "arguments": lambda m, n: {
            "x": Array((m, n)), "y": Array(m), "factor": 1.5, "n": n, "B": 128,
        },
    }  # fmt: skip
    return evaluate(function, more.pop("reference", reference), **{**task, **more})


def line(mark: str) -> int:
    return Path(__file__).read_text(encoding="utf-8").split(mark)[0].count("\n") + 1


def test_a_right_function_is_all_that_it_has_to_be() -> None:
    judgement = judged(rows)
    assert judgement.passed, (judgement.error, judgement.trials)
    assert judgement.score["robust"] == 1
    assert judgement.speeds[0].seconds is not None
    assert 1e-6 < judgement.speeds[0].seconds < 6e-6


def test_others_are_told_by_their_line() -> None:
    wrong, far, refused = (judged(each, gpus=()) for each in (too_large, too_far, unknown))
    assert wrong.verdict == "not right"
    assert wrong.trials[0].writer is not None
    assert wrong.trials[0].writer.path.endswith(Path(__file__).name)
    assert far.verdict == "not launched"
    assert far.error is not None
    assert far.error.location is not None
    assert far.error.location.line == line("  # HERE")
    assert refused.verdict == "not compiled"
    assert refused.error is not None
    assert refused.error.location is not None
    assert refused.error.location.line == line("  # noqa: F821  # THERE")


@triton.jit
def attention(Q, K, V, out, N: tl.constexpr, H: tl.constexpr):
    n, h = tl.arange(0, N)[:, None], tl.arange(0, H)[None, :]
    q, k, v = tl.load(Q + n * H + h), tl.load(K + n * H + h), tl.load(V + n * H + h)
    s = tl.dot(q, tl.trans(k)) * 0.25
    e = tl.exp(s - tl.max(s, 1)[:, None])
    tl.store(out + n * H + h, tl.dot((e / tl.sum(e, 1)[:, None]).to(tl.float16), v))


def test_a_function_is_a_trusted_kernel_of_others_and_of_itself() -> None:
    """Its constants are its own where candidates have others, and it is what they are compared with."""
    launch = {"block": 32, "constants": {"B": 256}}
    right, other = (judged(f, reference=rows, trusted_launch=launch) for f in (rows, too_large))
    assert right.passed, right.trials
    assert right.score["speedup"] is not None
    assert 0.5 < right.score["speedup"] < 2
    assert other.verdict == "not right"


def test_products_on_tensor_cores_carry_their_bounds() -> None:
    """Two products with a softmax between, in halves: the kernel itself is inside, 1% is not, the values are those of float64."""
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((32, 16)).astype(np.float16) for name in "QKV"}
    given["out"] = np.zeros((32, 16), np.float32)
    launch = {"grid": 1, "block": 128, "shared": 0}
    trusted = CarryingKernel(attention, [*given], lambda sizes: launch, SM_80, {"N": 32, "H": 16})
    want = trusted.expected(given, SM_80, {})["out"]
    assert trusted.takes == ["Q", "K", "V"]
    q, k, v = (given[name].astype(float) for name in "QKV")
    e = np.exp(0.25 * q @ k.T)
    np.testing.assert_allclose(
        want.value, e @ v / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-6
    )
    program = compiled(attention, {**given, "N": 32, "H": 16}, 128, SM_80)
    device = open_device("emulator", arch="sm_80")
    buffers = [device.upload(array) for array in given.values()]
    kernel = device.load(program.text).kernel()
    kernel.run(LaunchConfig.of(1, 128, program.shared), [*buffers, 0, 0])
    left = buffers[3].numpy()
    assert not wrong(left, want)[0].any()
    assert wrong(1.01 * left, want)[0].mean() > 0.8


def test_a_function_is_sent_to_workers_as_its_file_and_name() -> None:
    """As Dask's workers are sent candidates and references; elsewhere it is the same function of that file."""
    pickle_by_file()
    sent: Any = pickle.loads(pickle.dumps({"reference": too_large}))["reference"]
    assert sent.fn.__code__.co_firstlineno == too_large.fn.__code__.co_firstlineno
    assert judged(sent, gpus=()).verdict == "not right"


def test_arguments_that_do_not_fit_are_told() -> None:
    few = judged(rows, arguments={"x": Array((1, 1)), "y": Array(1)}, gpus=(), sizes=None, grid=1)
    assert "takes x, y, factor, n, B" in str(few.error)
    sized = judged(
        rows, gpus=(), arguments=lambda m, n: {"x": Array((m, n)), "y": Array(m), "factor": 1.5, "n": n, "B": 64 + n // 70 * 64}
    )  # fmt: skip
    assert "B is a constexpr, and depends on the sizes" in str(sized.trials[3].fault), sized
