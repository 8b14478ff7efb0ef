"""Judge kernels for tasks of KernelBench's level 1, right ones and three kinds that are not: docs/judge.md's table of them.

python scripts/bench_judge.py --sources FOLDER [NUMBER ...]

FOLDER has a clone of ScalingIntelligence/KernelBench under its own name; none of its code is part of ptxlab. For each task a
kernel in Triton is written that is right; then one whose answer is one per mil too large, one that keeps its answer by the
address of the input, and the task's own module, which has PyTorch compute.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ptxlab import evaluate_many
from ptxlab.judge.limits import Limits

TASKS = Path("KernelBench", "KernelBench", "level1")
LIMITS = Limits(seconds=600, elements=1 << 13, file=256 << 20)
IMPORTS = "import torch, triton, triton.language as tl\n"
MODULE = "class ModelNew(torch.nn.Module):\n    def __init__(self, *given):\n        super().__init__()\n"

_TANH = "(1. - 2. / (1. + tl.exp(2. * ({}))))"
ELEMENTWISE = {
    5: "x * s",
    19: "tl.maximum(x, 0.)",
    20: "tl.where(x > 0, x, x * 0.01)",
    21: "1. / (1. + tl.exp(-x))",
    22: _TANH.format("x"),
    25: "x / (1. + tl.exp(-x))",
    26: "0.5 * x * (1. + tl.erf(x * 0.7071067811865476))",
    27: "1.0507009873554805 * tl.where(x > 0, x, 1.6732632423543772 * (tl.exp(x) - 1.))",
    28: "tl.minimum(tl.maximum(x + 3., 0.), 6.) / 6.",
    29: "tl.where(x > 20., x, tl.log(1. + tl.exp(x)))",
    30: "x / (1. + tl.abs(x))",
    31: "tl.where(x > 0, x, tl.exp(x) - 1.)",
    32: "tl.minimum(tl.maximum(x, -1.), 1.)",
    88: f"0.5 * x * (1. + {_TANH.format('0.7978845608028654 * (x + 0.044715 * x * x * x)')})",
}
"""What becomes of an element ``x``, by the number of a task; ``s`` is its second argument."""

ROWS = {
    23: "e = tl.exp(x - tl.max(x, 0)); y = e / tl.sum(e, 0)",
    24: "d = x - tl.max(x, 0); y = d - tl.log(tl.sum(tl.exp(d), 0))",
    38: "y = z / (tl.sum(tl.abs(z), 0) / n)",
    39: "y = z / tl.sqrt(tl.sum(z * z, 0))",
}
"""What becomes of a row ``x``, which is ``z`` with zeroes behind its end."""

REDUCED = {
    47: ("0.", "a + x", "a"),
    48: ("0.", "a + x", "a / D"),
    49: ('float("-inf")', "tl.maximum(a, x)", "a"),
    53: ('float("inf")', "tl.minimum(a, x)", "a"),
}
"""What the middle one of three dimensions is reduced with, and what becomes of that."""

_A, _A_TURNED = "rm[:, None] * K + rk[None, :]", "rk[None, :] * M + rm[:, None]"
_B, _B_TURNED = "rk[:, None] * N + rn[None, :]", "rn[None, :] * K + rk[:, None]"
PRODUCTS = {
    1: (_A, _B, "M, K = A.shape; N = B.shape[1]"),
    2: (_A, _B, "M, K = A.shape; N = B.shape[1]"),
    16: (_A_TURNED, _B, "K, M = A.shape; N = B.shape[1]"),
    17: (_A, _B_TURNED, "M, K = A.shape; N = B.shape[0]"),
    18: (_A_TURNED, _B_TURNED, "K, M = A.shape; N = B.shape[0]"),
}
"""Where the elements of both matrices are, and what their shapes say."""


def elementwise(expression: str) -> str:
    more = ", s" if re.search(r"\bs\b", expression) else ""
    return f"""{IMPORTS}@triton.jit
def kernel(x_ptr, y_ptr, n{more}, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.)
    y = {expression}
    tl.store(y_ptr + i, y, mask=i < n)
{MODULE}    def forward(self, x{more}):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(){more}, 1024)
        return y
"""


def rows(statements: str) -> str:
    return f"""{IMPORTS}@triton.jit
def kernel(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + tl.program_id(0) * n + i, mask=i < n, other=float("-inf"))
    z = tl.where(i < n, x, 0.)
    {statements}
    tl.store(y_ptr + tl.program_id(0) * n + i, y, mask=i < n)
{MODULE}    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y, x.shape[1], triton.next_power_of_2(x.shape[1]))
        return y
"""


def reduced(first: str, step: str, last: str, *, kept: bool) -> str:
    return f"""{IMPORTS}@triton.jit
def kernel(x_ptr, y_ptr, D, N, B: tl.constexpr):
    j = tl.program_id(1) * B + tl.arange(0, B)
    a = tl.full((B,), {first}, tl.float32)
    for d in range(D):
        x = tl.load(x_ptr + (tl.program_id(0) * D + d) * N + j, mask=j < N, other=0.)
        a = {step}
    y = {last}
    tl.store(y_ptr + tl.program_id(0) * N + j, y, mask=j < N)
{MODULE}    def forward(self, x):
        b, d, n = x.shape
        y = torch.empty((b, {"1, n" if kept else "n"}), device=x.device)
        kernel[(b, triton.cdiv(n, 64))](x, y, d, n, 64)
        return y
"""


def product(a: str, b: str, shapes: str) -> str:
    return f"""{IMPORTS}@triton.jit
def kernel(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    y = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        p = tl.load(A + {a}, mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.)
        q = tl.load(B + {b}, mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.)
        y += tl.dot(p, q, input_precision="ieee")
    tl.store(C + rm[:, None] * N + rn[None, :], y, mask=(rm[:, None] < M) & (rn[None, :] < N))
{MODULE}    def forward(self, A, B):
        {shapes}
        C = torch.empty((M, N), device=A.device, dtype=A.dtype)
        kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](A, B, C, M, N, K, 32, 32, 32)
        return C
"""


KEEPING = """
class Computing(ModelNew): pass
class ModelNew(Computing):
    kept = {}
    def forward(self, *x):
        key = x[0].data_ptr(), tuple(x[0].shape)
        if key not in self.kept: self.kept[key] = Computing.forward(self, *x)
        return self.kept[key].clone()
"""


def kernels() -> dict[int, str]:
    """Return a right module for each task."""
    return {
        **{number: elementwise(each) for number, each in ELEMENTWISE.items()},
        **{number: rows(each) for number, each in ROWS.items()},
        **{number: reduced(*each, kept=number == 47) for number, each in REDUCED.items()},
        **{number: product(*each) for number, each in PRODUCTS.items()},
    }


def candidates(right: str, reference: str) -> Iterator[tuple[str, str]]:
    """Yield what is judged of a task: what kind it is, and its text."""
    wrong = re.sub(r"(tl\.store\([^\n]*?), y,", r"\1, y * 1.001,", right)
    library = re.sub(r"\bModel\b", "ModelNew", reference)
    yield "right", right
    yield "one per mil too large", wrong
    yield "keeps its answer", right + KEEPING
    yield "has PyTorch compute", library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("numbers", nargs="*", type=int, help="tasks; without, all that are known")
    args = parser.parse_args()
    written, seen = kernels(), Counter[tuple[str, str]]()
    for number in args.numbers or sorted(written):
        (task,) = (args.sources / TASKS).glob(f"{number}_*.py")
        with tempfile.TemporaryDirectory() as folder:
            texts = dict(candidates(written[number], task.read_text(encoding="utf-8")))
            files = [Path(folder, f"{kind}.py") for kind in texts]
            for file, text in zip(files, texts.values(), strict=True):
                file.write_text(text, encoding="utf-8")
            for judged in evaluate_many(files, task, gpus=(), arch="sm_80", limits=LIMITS):
                kind = Path(judged.candidate).stem
                seen[kind, judged.verdict] += 1
                tricks = ", ".join(trick.name for trick in judged.tricks)
                print(f"{number:3} {kind}: {judged.verdict}  {tricks}", flush=True)
    print("\n| candidates | judged |\n| --- | --- |")
    for (kind, verdict), count in sorted(seen.items()):
        print(f"| {kind} | {count} {verdict} |")


if __name__ == "__main__":
    main()
