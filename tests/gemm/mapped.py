"""What tests of the rungs with tensor maps share: small whole numbers, and kernels with a slip of the pen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.device.protocol import Device
from ptxlab.gemm import ALGORITHMS, Algorithm, Problem
from ptxlab.gemm.problem import LAYOUTS, Inputs, memory_type, uploaded
from ptxlab.gemm.run import compute, prepare
from ptxlab.gemm.tile import Sizes, require
from ptxlab.isa.targets import TARGETS
from ptxlab.machine.sass import SassFunction, sass
from ptxlab.observe import check
from ptxlab.observe.check_report import CheckReport
from ptxlab.toolchain import Cubin, assemble_cuda

_SHARED = ("panels", "hopper", "gemm")
HEADERS = {
    method: [f"kernels/{name}.cuh" for name in (*own, *_SHARED)]
    for method, own in (("wgmma", ("wgmma",)), ("tcgen05", ("tcgen05", "blackwell")))
} | {"mma": [f"kernels/{name}.cuh" for name in ("scales", "operand", "result", "gemm")]}


RESIDENT = 2
"""CTAs of the rungs that stay: each then has several tiles."""


def rung(name: str) -> Algorithm:
    algorithm = ALGORITHMS[name]
    return replace(algorithm, resident=RESIDENT) if algorithm.resident else algorithm


SIZES = ((1, 1, 1), (17, 9, 33), (129, 131, 65), (5, 3, 0), (264, 72, 136))


def problems(choice: int, turn: int) -> Iterator[Problem]:
    """Yield problems: layouts, types and epilogues by turns; rows that tensor maps take as they are, and others."""
    dtype, layout = ("bf16", "f16")[(choice + turn) % 2], LAYOUTS[choice % 4]
    epilogue = ("none", "bias+relu")[turn]
    for number, (m, n, k) in enumerate(SIZES):
        alpha, beta = ((1, 0), (2, -1))[(number + turn) % 2]
        tight = Problem(
            m, n, k, dtype, layout=layout, epilogue=epilogue, alpha=alpha, beta=beta, seed=number
        )
        room = (None, 1, 8)[number % 3]
        leading = [
            None if room is None else -(-leading // 8) * 8 + room for leading in tight.leading
        ]
        yield replace(tight, lda=leading[0], ldb=leading[1], ldd=leading[2])


def whole_numbers(problem: Problem) -> Inputs:
    """Small ones, of which no sum is rounded."""
    random = np.random.default_rng(problem.seed)
    m, n, k = problem.m, problem.n, problem.k

    def some(*shape: int, dtype: str = problem.dtype) -> Any:
        return random.integers(-4, 5, shape).astype(memory_type(dtype))

    bias = some(n, dtype="f32") if "bias" in problem.epilogue else None
    return Inputs(some(m, k), some(k, n), some(m, n, dtype="f32"), bias)


def expected(problem: Problem, inputs: Inputs) -> Any:
    d = problem.alpha * (inputs.a.astype(np.float64) @ inputs.b.astype(np.float64))
    d += problem.beta * inputs.d + (0 if inputs.bias is None else inputs.bias)
    return np.maximum(d, 0) if "relu" in problem.epilogue else d


def is_right(device: Device, problem: Problem, algorithm: Algorithm, sizes: Sizes) -> bool:
    inputs = whole_numbers(problem)
    result = compute(device, problem, inputs, algorithm, sizes)
    return not result.strays and np.array_equal(result.d, expected(problem, inputs))


def by_turns(rungs: Sequence[str]) -> list[Any]:
    """Pair rungs with turns. The first and the last always run, which has what those between have."""
    always = (rungs[0], 0), (rungs[-1], 0)
    return [
        pytest.param(name, turn, marks=[pytest.mark.thorough] * ((name, turn) not in always))
        for name in rungs
        for turn in range(2)
    ]


Rewrite = Callable[[Algorithm, str, str], Algorithm]


@pytest.fixture
def rewrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rewrite:
    """Return a rung with another text in one of its files."""
    shipped = resources.path

    def changed(rung: Algorithm, old: str, new: str) -> Algorithm:
        file, having = rung.file, 0
        for each in (file, *HEADERS[rung.method]):
            text = shipped(each).read_text()
            having += old in text
            (tmp_path / Path(each).name).write_text(text.replace(old, new))
        assert having == 1
        monkeypatch.setattr(
            resources, "path", lambda n: tmp_path / Path(n).name if n == file else shipped(n)
        )
        return rung

    return changed


PROBLEM = Problem(72, 136, 328, beta=1)
"""The edges of D, and for each CTA that stays two tiles, of more parts along k than a ring has stages."""


def assembled(algorithm: Algorithm, arch: str, turn: int) -> tuple[Cubin, SassFunction]:
    """Return what the compilers make of a rung, of one of its types and layouts by turns: all of it, and its kernel."""
    problem = Problem(1, 1, 1, *algorithm.types[turn % 2], layout=LAYOUTS[turn % 4])
    file, options = resources.path(algorithm.file), algorithm.options(problem, algorithm.tile)
    _, cubin = assemble_cuda(file.read_text(), path=str(file), arch=arch, options=options)
    require(algorithm.launch(problem, algorithm.tile), TARGETS[arch])
    used = cubin.kernels[algorithm.name]
    assert used.spill_stores == used.spill_loads == used.stack == used.shared == 0
    return cubin, sass(cubin)[algorithm.name]


def checked(
    device: Device, algorithm: Algorithm, sizes: Sizes, problem: Problem = PROBLEM
) -> tuple[CheckReport, Any]:
    """Return what a check says of a problem of small whole numbers, and D."""
    if device.kind != "emulator":
        pytest.skip("compute-sanitizer checks a GPU")
    with uploaded(device, problem, whole_numbers(problem)) as x:
        report = check(*prepare(device, x, algorithm, algorithm.cut(sizes, problem.dtype)))
        return report, x.result()[0]
