"""What a prediction says of rates and caches, of kernels that are counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.prediction.chip import find
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict

# Each thread of a warp loads the same word a turn, the next one in the next: of eight in a sector L1 has seven.
LOOPS = """\
extern "C" __global__ void uniform(const float* x, int n, float* y) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    y[blockIdx.x * 32 + threadIdx.x] = sum;
}
extern "C" __global__ void doubles(double* x, int n) {
    double sum = x[threadIdx.x];
    for (int i = 0; i < n; i++) sum = fma(sum, 1.5, 0.5);
    x[threadIdx.x] = sum;
}
extern "C" __global__ void products(unsigned* x, int n) {
    unsigned a = x[threadIdx.x], d = a, e = a;
    for (int i = 0; i < n; i++)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %2, %2, %2}, {%2, %2}, {%0, %1};"
                     : "+r"(d), "+r"(e) : "r"(a));
    x[threadIdx.x] = d + e;
}
"""
TURNS, CTAS = 256, 64


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Prediction]:
    file = tmp_path_factory.mktemp("rates") / "loops.cu"
    file.write_text(LOOPS)
    x, y = np.zeros(TURNS, np.float32), np.zeros(32 * CTAS, np.float32)
    kernels: tuple[tuple[str, list[Any]], ...] = (
        ("doubles", []),
        ("products", []),
        ("uniform", [y]),
    )
    warm = {
        name: predict(file, "a100", CTAS, 32, [x, TURNS, *more], kernel=name)
        for name, more in kernels
    }
    cold = predict(file, "a100", CTAS, 32, [x, TURNS, y], kernel="uniform", cold=True)
    return warm | {"cold": cold}


@pytest.mark.parametrize(
    ("name", "flop", "peak"),
    [("doubles", 2 * 32, 9.7), ("products", 2 * 16 * 8 * 16, 312)],
)
def test_what_is_computed_stands_beside_what_could_be(
    name: str, flop: int, peak: float, told: dict[str, Prediction]
) -> None:
    """NVIDIA A100 data sheet: 9.7 TFLOP/s of FP64, 312 of FP16 on tensor cores."""
    prediction = told[name]
    assert prediction.peak_tflops == pytest.approx(peak, rel=0.01)
    assert prediction.tflops == pytest.approx(
        flop * TURNS * CTAS / prediction.seconds / 1e12, rel=1e-3
    )


def test_caches_have_what_was_loaded_before(told: dict[str, Prediction]) -> None:
    """Of all turns, those that are not run too; each CTA has an SM and its L1 to itself."""
    cold, warm = told["cold"], told["uniform"]
    assert cold.hits["L1"] == warm.hits["L1"] == pytest.approx(7 / 8, abs=0.01)
    assert cold.hits["L2"] == pytest.approx(1 - 1 / CTAS, abs=0.01)
    assert cold.dram_bytes == pytest.approx(4 * TURNS + 4 * 32 * CTAS)
    assert (warm.hits["L2"], warm.dram_bytes) == (1, 0)
    assert cold.peak_bandwidth == 2039


MANY = """\
extern "C" __global__ void many(TYPE *x, int n, TYPE a, TYPE b) {
    TYPE s[8];
    for (int i = 0; i < 8; i++) s[i] = x[threadIdx.x + i];
    #pragma unroll 16
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 8; i++) asm volatile("PTX" : "+LETTER"(s[i]) : "LETTER"(a), "LETTER"(b));
    for (int i = 0; i < 8; i++) x[threadIdx.x + i] = s[i];
}
"""


@pytest.mark.parametrize(
    ("gpu", "kind", "letter", "ptx", "opcode", "lanes"),
    [
        ("b200", "float", "f", "fma.rn.f32 %0, %0, %1, %2;", "FFMA", 128),
        ("b200", "unsigned long long", "l", "fma.rn.f32x2 %0, %0, %1, %2;", "FFMA2", 64),
        ("b200", "float", "f", "max.f32 %0, %0, %1, %2;", "FMNMX3", 64),
        ("h100", "int", "r", "{.reg .s32 t; max.s32 t, %0, %1; max.s32 %0, t, %2;}", "VIMNMX3", 64),
        ("a100", "int", "r", "dp4a.s32.s32 %0, %1, %2, %0;", "IDP", 64),
        ("rtx3090", "int", "r", "dp4a.s32.s32 %0, %1, %2, %0;", "IDP", 64),
        ("t4", "int", "r", "sad.s32 %0, %1, %2, %0;", "VABSDIFF", 64),
    ],
)
def test_an_sm_has_so_many_results_a_clock(
    gpu: str, kind: str, letter: str, ptx: str, opcode: str, lanes: int, tmp_path: Path
) -> None:
    """Half as many pairs as numbers; else one for each lane of a half, as ptxas leaves two clocks between these."""
    file, turns, threads = tmp_path / "many.cu", 4096, 512
    file.write_text(MANY.replace("TYPE", kind).replace("PTX", ptx).replace("LETTER", letter))
    x = np.zeros(threads + 8, {"float": "f4", "int": "i4"}.get(kind, "u8"))
    prediction = predict(file, gpu, find(gpu).gpu.sms, threads, [x, turns, x[0], x[0]])
    each = prediction.cycles / (8 * turns * threads / lanes)
    assert each == pytest.approx(1, abs=0.06)
    held = {"FMNMX3": "alu", "VIMNMX3": "alu", "VABSDIFF": "alu"}.get(opcode, "fma")
    most = 0.5 if opcode == "IDP" and gpu == "rtx3090" else 1
    assert prediction.used[held] == pytest.approx(most, abs=0.06)
    if opcode.startswith("FFMA"):
        assert prediction.tflops is not None
        assert prediction.peak_tflops == pytest.approx(148 * 256 * 1.965e-3, rel=1e-6)
        flop = 148 * 8 * turns * threads * 256 / lanes
        assert prediction.tflops * prediction.seconds == pytest.approx(flop / 1e12, rel=1e-3)
