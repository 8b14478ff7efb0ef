# mypy: ignore-errors
"""Triton's kernels here and elsewhere: how long Triton's own interpreter takes, and who sees what is wrong.

python scripts/bench_interpreter.py times       matmul and attention on the emulator and in the interpreter
python scripts/bench_interpreter.py faults      ten faulty kernels: here, in the interpreter, and in triton-viz
python scripts/bench_interpreter.py run TOOL WHAT    one of them in this process: what the others are made of

triton-viz is asked where it can be imported. Times are seconds of the processor, as both are of one core; what both
compute is compared with PyTorch in float64.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

TOOLS = ("ptxlab", "interpreter", "triton-viz")
REPEATS = {"ptxlab": 60, "interpreter": 2}
"""Launches behind the first: the emulator is at its best when what is launched often has become machine code."""

tool = sys.argv[2] if sys.argv[1:2] == ["run"] else ""
if tool == "interpreter":
    os.environ["TRITON_INTERPRET"] = "1"

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

DEVICE = "cuda" if tool == "ptxlab" else "cpu"


@triton.jit
def matmul(a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The kernel of Triton's tutorial 03 without its order of programs."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


@triton.jit
def attention(q, k, v, out, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """The forward pass of Triton's tutorial 06, of one head a program in y."""
    head = tl.program_id(1) * N * D
    rows, inner, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + head + rows[:, None] * D + d[None, :])
    top = tl.full((BM,), float("-inf"), dtype=tl.float32)
    norm = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, N, BN):
        keys = tl.load(k + head + (start + inner)[None, :] * D + d[:, None])
        scores = tl.dot(queries, keys) * scale
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.math.exp2(scores - higher[:, None])
        shrunk = tl.math.exp2(top - higher)
        values = tl.load(v + head + (start + inner)[:, None] * D + d[None, :])
        total = tl.dot(weights.to(tl.float16), values, total * shrunk[:, None])
        norm, top = norm * shrunk + tl.sum(weights, 1), higher
    tl.store(out + head + rows[:, None] * D + d[None, :], (total / norm[:, None]).to(tl.float16))


def halves(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float16).to(DEVICE)


Prepared = tuple[Callable[[], Any], Callable[[], Any]]
"""What launches and returns the result, and what computes it in float64."""


def run_matmul(size: int = 512) -> Prepared:
    a, b, c = (halves(size, size) for _ in range(3))
    grid = (size // 64, size // 64)

    def launch() -> Any:
        matmul[grid](a, b, c, size, size, BM=64, BN=64, BK=32)
        return c

    return launch, lambda: a.cpu().double() @ b.cpu().double()


def run_attention(heads: int = 4, n: int = 512, d: int = 64) -> Prepared:
    q, k, v, out = (halves(heads, n, d) for _ in range(4))
    exact = [each.cpu().double() for each in (q, k, v)]
    scale = d**-0.5 * 1.44269504

    def launch() -> Any:
        attention[(n // 64, heads)](q, k, v, out, scale, n, D=d, BM=64, BN=64)
        return out

    return launch, lambda: torch.softmax(exact[0] @ exact[1].mT * d**-0.5, -1) @ exact[2]


SPEED: dict[str, Callable[[], Prepared]] = {"matmul": run_matmul, "attention": run_attention}


# ---- ten mistakes ---------------------------------------------------------------------------


@triton.jit
def read_past_the_end(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at + 1), mask=at < n)


@triton.jit
def no_mask(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, mask=at < n))


@triton.jit
def mask_too_wide(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at <= n)


@triton.jit
def before_the_beginning(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, tl.load(x + at - 1, mask=at < n), mask=at < n)


@triton.jit
def wrong_stride(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)  # of a matrix of B rows, and B / 2 columns
    j = tl.arange(0, B // 2)
    tl.store(out + i[:, None] * (B // 2) + j[None, :], tl.load(x + i[:, None] * B + j[None, :]))


@triton.jit
def lost_counts(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    count = out + tl.load(x + at, mask=at < n, other=0).to(tl.int32)
    tl.store(count, tl.load(count) + 1)


@triton.jit
def lost_sums(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out, tl.load(out) + tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


@triton.jit
def shifted_in_place(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at + 1, mask=at + 1 < n, other=0.0), mask=at < n)


@triton.jit
def promised_alignment(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    second = tl.multiple_of(n - B + 1 + at, 4)
    tl.store(out + at, tl.load(x + second))


@triton.jit
def sum_of_nothing(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n)))


class Fault(NamedTuple):
    """A faulty kernel, how many programs it has, the elements of the two tensors it is given, and its ``n``."""

    kernel: Any
    grid: int
    x: int
    out: int
    n: int


B = 128
FAULTS = {
    "reads past the end": Fault(read_past_the_end, 2, 2 * B, 2 * B, 2 * B),
    "stores without a mask": Fault(no_mask, 2, 200, 200, 200),
    "masks one too many": Fault(mask_too_wide, 2, 200, 200, 200),
    "reads before the beginning": Fault(before_the_beginning, 2, 2 * B, 2 * B, 2 * B),
    "has a wrong stride": Fault(wrong_stride, 1, B * B // 2, B * B // 2, B),
    "counts without atomics": Fault(lost_counts, 2, 2 * B, 4, 2 * B),
    "adds to one place from all programs": Fault(lost_sums, 2, 2 * B, 1, 2 * B),
    "shifts in place over programs' borders": Fault(shifted_in_place, 2, 2 * B, 1, 2 * B),
    "promises an alignment that is not there": Fault(promised_alignment, 1, 2 * B, B, B),
    "adds up masked lanes without a value": Fault(sum_of_nothing, 2, 200, 2, 200),
}


def faulty(name: str) -> str:
    """Launch a faulty kernel in this process and return who complains, in a line."""
    fault, kernel = FAULTS[name], FAULTS[name].kernel
    if tool == "triton-viz":
        import triton_viz

        kernel = triton_viz.trace(client="sanitizer")(kernel)
    x = torch.zeros(fault.x).to(DEVICE)
    out = torch.zeros(fault.out).to(DEVICE)
    kernel[(fault.grid,)](x, out, fault.n, B=B, num_warps=1)
    if tool == "ptxlab":
        import ptxlab.triton

        errors = [f for f in ptxlab.triton.last_launch().check().findings if f.severity == "error"]
        return "; ".join(
            dict.fromkeys(f"{f.kind}, line {f.source.line}" for f in errors if f.source)
        )
    return ""


def measured(name: str) -> dict[str, float]:
    """Return the seconds of the fastest launch, and the largest error."""
    launch, reference = SPEED[name]()
    times = []
    for _ in range(REPEATS[tool] + 1):  # the first compiles
        began = process_time()
        result = launch()
        times.append(process_time() - began)
    error = float((result.cpu().double() - reference()).abs().max())
    return {"seconds": min(times[1:]), "error": error}


def main() -> None:
    if tool == "ptxlab":
        import ptxlab.triton

        ptxlab.triton.use_emulator("sm_80")
    torch.manual_seed(0)
    if tool:
        what = sys.argv[3]
        print(json.dumps(measured(what) if what in SPEED else faulty(what)))
        return
    for what in SPEED if sys.argv[1:] == ["times"] else FAULTS:
        told = {each: asked(each, what) for each in TOOLS[: 2 if sys.argv[1] == "times" else 3]}
        print(what, json.dumps(told), flush=True)


def asked(each: str, what: str) -> Any:
    done = subprocess.run(
        [sys.executable, __file__, "run", each, what], capture_output=True, text=True, check=False
    )
    lines = [*done.stdout.strip().splitlines(), *done.stderr.strip().splitlines()[-1:]]
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return f"{done.returncode}: {lines[-1] if lines else ''}"


if __name__ == "__main__":
    main()
