"""What others published of kernels like the ladder's rungs, and of cuBLAS: one table.

Two chips, two libraries, two sizes: such a speed says where a rung of ours ought to be, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ptxlab.isa.gpus import GPUS

CUBLAS = "cublas"
"""The rung that the others are a part of."""

_NEARLY = 1.02
"""How far the size of a figure may be from the problem's: some round 4096 to 4092."""


@dataclass(frozen=True, slots=True)
class Figure:
    """``tflops``, maybe ``up_to`` so many, of the kernel that ``source`` calls ``kernel``: one like ``rung``.

    A, B and D are ``size`` x ``size`` of ``types`` (dtype of A and B, type of sums),
    where that is said; ``gpu`` is a name of ``isa.gpus`` or other hardware.
    """

    rung: str
    gpu: str
    source: str
    tflops: float
    kernel: str = ""
    size: int | None = 4096
    types: tuple[str, str] = ("f32", "f32")
    up_to: float | None = None

    @property
    def of_peak(self) -> float | None:
        """The part of the hardware's peak that this is, at most, None where that is not known.

        A speed on another chip says little, but what it is of that chip's peak can be compared.
        """
        gpu = next((gpu for gpu in GPUS if gpu.name == self.gpu), None)
        flop = gpu and (gpu.fp32 if self.types[0] == "f32" else gpu.tensor.get(self.types))
        return (self.up_to or self.tflops) / gpu.tflops(flop) if gpu and flop else None

    @property
    def where(self) -> str:
        """Who says so, of what hardware and size."""
        return ", ".join(str(part) for part in (self.source, self.gpu, self.size) if part)

    @property
    def rate(self) -> str:
        """The speed in TFLOP/s as text."""
        return " to ".join(three_digits(rate) for rate in (self.tflops, self.up_to) if rate)

    def __str__(self) -> str:
        of_peak = "" if self.of_peak is None else f", {100 * self.of_peak:.1f} % of its peak"
        return f"{self.where}: {self.rate} TFLOP/s{of_peak}"


def three_digits(number: float) -> str:
    """Return a number with three digits at least, and none behind the point from 1000 on."""
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"


def published(
    rung: str,
    gpu: str | None = None,
    size: int | None = None,
    types: tuple[str, str] | None = None,
) -> Iterator[Figure]:
    """Yield the figures of a rung, of a GPU, of nearly a size, of types, as far as these are given.

    Tensor cores take bf16 and f16 at one rate, so figures of the one stand for the other too.
    """
    for figure in FIGURES:
        if (
            figure.rung == rung
            and gpu in (None, figure.gpu)
            and (size is None or _near(size, figure.size))
            and (types is None or _alike(types) == _alike(figure.types))
        ):
            yield figure


def _near(size: int, other: int | None) -> bool:
    return other is not None and 1 / _NEARLY < size / other < _NEARLY


def _alike(types: tuple[str, str]) -> tuple[str, str]:
    dtype, acc = types
    return ("f16" if dtype == "bf16" else dtype, acc)


def _ladder(
    gpu: str, source: str, speeds: dict[str, tuple[str, float]], types: tuple[str, str]
) -> Iterator[Figure]:
    """Yield one author's figures at 4096, by rung: what theirs is called, and TFLOP/s."""
    for rung, (kernel, tflops) in speeds.items():
        yield Figure(rung, gpu, source, tflops, kernel, types=types)


_F32, _BF16, _F16, _ALL_F16 = ("f32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("f16", "f16")

_RECIPE = {
    "naive": 0.292, "coalescing": 2.936, "tiled": 3.943, "tiled_register": 7.078,
    "block_tiled": 10.661, "block_tiled_vectorized": 10.663,
}  # fmt: skip
_SIBOEHM = {
    "naive": ("Naive", 0.309),
    "coalescing": ("GMEM Coalescing", 1.9865),
    "tiled": ("SMEM Caching", 2.9803),
    "tiled_register": ("1D Blocktiling", 8.4747),
    "block_tiled": ("2D Blocktiling", 15.9717),
    "block_tiled_vectorized": ("Vectorized Mem Access", 18.2373),
    "warp_tiled": ("Warptiling", 21.7793),
    CUBLAS: ("", 23.2496),
}
# His A100 has 40 GB, of which products of f32 need little.
_XUDOONG = {
    "block_tiled": ("SGEMM_CUDA 2D Blocktiling", 13.4),
    "block_tiled_vectorized": ("SGEMM_CUDA Vectorized Mem Access", 14.2),
    "warp_tiled": ("SGEMM_CUDA Warptiling", 16.2),
    CUBLAS: ("", 17.6),
}
# A warp of v1 reads whole lines already. Durations by ncu in milliseconds, one SGEMM of 4096.
_LEARN_SIMT = {
    rung: (kernel, 2 * 4096**3 / milliseconds / 1e9)
    for rung, kernel, milliseconds in (
        ("coalescing", "v1", 56.21), ("tiled", "v2", 48.14), ("block_tiled", "v4", 8.92),
        ("block_tiled_vectorized", "v6b", 5.16), (CUBLAS, "", 4.77),
    )
}  # fmt: skip
# v6 is persistent too, and v4 is not.
_LEARN_TCGEN05 = {
    "tensor_core": ("v0", 409.06), "tcgen05": ("v2a", 699.39), "tcgen05_pipelined": ("v3", 914.42),
    "tcgen05_specialised": ("v4", 1053.61), "tcgen05_pair": ("v6", 1273.32), CUBLAS: ("", 1358.69),
}  # fmt: skip
_FAST = {
    "wgmma": 423, "wgmma_pipelined": 498, "wgmma_specialised": 631, "wgmma_cluster": 734,
    "wgmma_persistent": 758,
}  # fmt: skip

FIGURES: tuple[Figure, ...] = (
    *(Figure(rung, "A100 SXM", "MAX recipe", tflops) for rung, tflops in _RECIPE.items()),
    # Read off a plot, by pixel: within half a percent.
    Figure("warp_tiled", "RTX 3090", "salykova/sgemm.cu", 24.574, "128x256x8"),
    Figure("thread_tiled_4x4", "M1 Max", "Metal study", 3.155, size=None),
    Figure("thread_tiled_8x4", "M1 Max", "Metal study", 3.766, size=None),
    Figure(CUBLAS, "H100 SXM", "several", 50, up_to=54, size=None),
    Figure("tensor_core", "H100 SXM", "best public mma.sync", 375, up_to=396, size=None, types=_BF16),
    *(
        Figure(rung, "H100 SXM", "fast.cu", tflops, size=None, types=_BF16)
        for rung, tflops in _FAST.items()
    ),
    *_ladder("RTX A6000", "siboehm/SGEMM_CUDA", _SIBOEHM, _F32),
    *_ladder("A100 SXM", "xudoong/GEMM", _XUDOONG, _F32),
    *_ladder("RTX 4070 Ti SUPER", "gau-nernst/learn-cuda", _LEARN_SIMT, _F32),
    *_ladder(
        "A100 SXM", "gau-nernst/learn-cuda", {"tensor_core": ("v6b", 220.66), CUBLAS: ("", 244.4)}, _BF16
    ),
    *_ladder("B200", "gau-nernst/learn-cuda", _LEARN_TCGEN05, _BF16),
    *_ladder(
        "RTX 5090", "gau-nernst/learn-cuda, 400 W", {"tensor_core": ("v6b", 177.4), CUBLAS: ("", 177.05)},
        _BF16,
    ),
    *_ladder(
        "RTX 4090", "spatters/mma-matmul, 2520 MHz",
        {"tensor_core_ptx": ("1.0", 29.4), "tensor_core": ("3.1", 153.6), CUBLAS: ("", 153.6)}, _F16,
    ),
    *_ladder(
        "H100 SXM", "waynehacking8/blackwell-tensorcore-kernels",
        {"coalescing": ("naive", 5.38), "tiled": ("tiled", 9.1), CUBLAS: ("", 45.5)}, _F32,
    ),
    *_ladder(
        "RTX PRO 6000 Max-Q", "waynehacking8/blackwell-tensorcore-kernels, 300 W",
        {"coalescing": ("naive", 5.72), "tiled": ("tiled", 8.3), CUBLAS: ("", 56.15)}, _F32,
    ),
    *_ladder(
        "RTX PRO 6000 Max-Q", "waynehacking8/blackwell-tensorcore-kernels, 300 W",
        {"tensor_core": ("mma_warptile", 241.4), CUBLAS: ("", 235.13)}, _F16,
    ),
    Figure("wgmma_persistent", "H100 SXM", "fast.cu", 763.0, "11", types=_BF16),
    Figure(CUBLAS, "H100 SXM", "fast.cu", 716.0, types=_BF16),
    Figure(CUBLAS, "RTX 3090", "salykova/sgemm.cu", 24.1),
    Figure(CUBLAS, "H200 SXM", "PyTorch", 750, up_to=790, size=8192, types=_BF16),
    # Read off a plot, by pixel.
    Figure("tensor_core", "T4", "alexarmbr/matmul-playground", 43.1, "kernel 6", types=_ALL_F16),
    Figure(CUBLAS, "T4", "alexarmbr/matmul-playground", 49.4, types=_ALL_F16),
)  # fmt: skip
"""Of a rung the first stands for all."""
