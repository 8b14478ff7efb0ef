"""Modules whose kernels are launched by what calls the CUDA driver: Numba, CuTe DSL, tinygrad, cuda.core."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxlab import evaluate, evaluate_many
from ptxlab.judge.judgement import Judgement
from ptxlab.judge.limits import Limits
from tests.clients.needs import need

need("torch", "triton", "numba_cuda", "nvidia_cutlass_dsl", "tinygrad")
pytestmark = pytest.mark.thorough  # each client is imported once more for every candidate

REFERENCE = """
import torch
N = 1000
class Model(torch.nn.Module):
    def forward(self, x): return 2 * x + 1
def get_inputs(): return [torch.rand(N)]
def get_init_inputs(): return []
"""
FORWARD = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        n, y = x.numel(), torch.empty_like(x)
        {}
        return y
"""
NUMBA = """
import torch
from numba import cuda
@cuda.jit
def twice(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = 2 * x[i] + 1  # HERE
""" + FORWARD.format("twice[-(-n // 128), 128](cuda.as_cuda_array(x), cuda.as_cuda_array(y))")
CUTE = """
import cutlass, torch
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack
@cute.kernel
def twice(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < n:
        y[i] = 2 * x[i] + 1  # HERE
@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    n = cute.size(x)
    twice(x, y, n).launch(grid=[(n + 127) // 128, 1, 1], block=[128, 1, 1])
""" + FORWARD.format("launch(*(from_dlpack(each).mark_layout_dynamic() for each in (x, y)))")
TINYGRAD = """
import torch
from tinygrad import Tensor, dtypes
def lent(x): return Tensor.from_blob(x.data_ptr(), tuple(x.shape), dtype=dtypes.float32, device="CUDA")
""" + FORWARD.format("lent(y).assign(lent(x) * 2 + 1).realize()")
CORE = """
import numpy, torch
from cuda.core import Device, LaunchConfig, Program, launch
CODE = '''extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) y[i] = 2 * x[i] + 1;
}'''
device = Device()
device.set_current()
stream = device.create_stream()
kernel = Program(CODE, code_type="c++").compile("cubin").get_kernel("twice")
""" + FORWARD.format("""launch(
            stream, LaunchConfig(grid=-(-n // 128), block=128), kernel, x.data_ptr(), y.data_ptr(), numpy.int32(n)
        )""")
RIGHT = {"numba": NUMBA, "cute": CUTE, "tinygrad": TINYGRAD, "core": CORE}
OTHERS = {
    "numba wrong": NUMBA.replace("+ 1  #", "+ 1.001  #"),
    "numba reads on": NUMBA.replace("i < x.size", "i <= x.size"),
    "numba on the host": NUMBA.replace("cuda.as_cuda_array(x), cuda.as_cuda_array(y)", "x.cpu().numpy(), y.cpu().numpy()"),
    "cute reads on": CUTE.replace("i < n", "i <= n"),
    "core wrong": CORE.replace("+ 1;", "+ 1.001f;"),
}  # fmt: skip


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    folder = tmp_path_factory.mktemp("clients")
    reference = folder / "reference.py"
    reference.write_text(REFERENCE)
    files = []
    for name, text in (RIGHT | OTHERS).items():
        files.append(folder / f"{name}.py")
        files[-1].write_text(text)
    limits = Limits(elements=1 << 8, seconds=300)
    told = evaluate_many(files, reference, gpus=("a100",), limits=limits)
    return {Path(each.candidate).stem: each for each in told}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_of_any_client_passes(judged: dict[str, Judgement], name: str) -> None:
    judgement = judged[name]
    assert judgement.passed, (judgement, judgement.error, judgement.tricks)
    (speed,) = judgement.speeds
    assert speed.seconds is not None, speed.unknown
    assert 2e-6 < speed.seconds < 5e-6


def test_a_wrong_element_is_told_with_its_thread_and_line(judged: dict[str, Judgement]) -> None:
    for name in ("numba wrong", "core wrong"):
        assert judged[name].verdict == "not right"
        writer = judged[name].trials[0].writer
        assert writer is not None
        assert writer.thread == "thread (0, 0, 0) of CTA (0, 0, 0)"
        assert all(trial.writer is None for trial in judged[name].trials[1:])
        if name == "numba wrong":
            assert writer.line == _marked(judged[name])


@pytest.mark.parametrize("name", ["numba reads on", "cute reads on"])
def test_a_fault_is_told_by_the_line_of_its_source(judged: dict[str, Judgement], name: str) -> None:
    error = judged[name].error
    assert judged[name].verdict == "not launched"
    assert error is not None
    assert error.location is not None
    assert "is out of bounds" in error.message
    assert Path(error.location.path).name == f"{name}.py"
    assert error.location.line == _marked(judged[name])


def test_what_a_client_copies_by_itself_is_memory_too(judged: dict[str, Judgement]) -> None:
    judgement = judged["numba on the host"]
    assert judgement.verdict == "not right"
    assert judgement.speeds[0].seconds is not None


def _marked(judgement: Judgement) -> int:
    text = Path(judgement.candidate).read_text(encoding="utf-8")
    return text[: text.index("# HERE")].count("\n") + 1


def test_integers_that_are_given_decide_what_is_predicted(tmp_path: Path) -> None:
    text = """
import torch
N, K = 16, 64
class Model(torch.nn.Module):
    def forward(self, x, lengths):
        return (x * (torch.arange(x.shape[1]) < lengths[:, None])).sum(1)
def get_inputs(): return [torch.rand(N, K), torch.full((N,), 50) + torch.randint(0, 9, (N,))]
def get_init_inputs(): return []
"""
    candidate = tmp_path / "candidate.py"
    candidate.write_text("""
import torch, triton, triton.language as tl
@triton.jit
def rows(x, lengths, y, K):
    row, total = tl.program_id(0), 0.0
    for column in range(tl.minimum(tl.load(lengths + row), K)):
        total += tl.load(x + row * K + column)
    tl.store(y + row, total)
class ModelNew(torch.nn.Module):
    def forward(self, x, lengths):
        y = torch.empty(x.shape[:1], device=x.device)
        rows[(x.shape[0],)](x, lengths, y, x.shape[1])
        return y
""")
    limits, seconds = Limits(elements=1 << 11, seconds=300), []
    for name, longest in (("many", text), ("few", text.replace("(N,), 50)", "(N,), 0)"))):
        reference = tmp_path / f"{name}.py"
        reference.write_text(longest)
        judgement = evaluate(candidate, reference, gpus=("a100",), limits=limits)
        assert judgement.passed, (judgement, judgement.error, judgement.tricks)
        assert judgement.speeds[0].seconds is not None, judgement.speeds[0].unknown
        seconds.append(judgement.speeds[0].seconds)
    assert seconds[0] > seconds[1] + 50 * 4 / 1.41e9  # a sum waits 4 cycles for the one before
