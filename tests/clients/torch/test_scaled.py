"""Products with scales of blocks, beside float64; where a scale lies is told by cuBLAS's formula of one scale."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array

ROWS, COLUMNS, K = 160, 48, 192


@pytest.fixture(scope="module")
def session(kernels: Any) -> Any:
    return import_module("ptxlab.triton").use_emulator("sm_100a")


def laid_out(scales: Array) -> Array:
    """Return scales where cuBLAS's "1D Block Scaling Factors Layout" has them, others of a whole tile NaN."""
    rows, blocks = scales.shape
    across = -(-blocks // 4)
    laid = np.full(-(-rows // 128) * across * 512, 0xFF, np.uint8)
    for row in range(rows):
        for block in range(blocks):
            tile = row // 128 * across + block // 4
            laid[tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4] = scales[row, block]
    return laid


def operand(kind: str, rows: int, seed: int) -> tuple[Array, Array, Array]:
    """Return the bytes of random numbers and of their scales, and what they stand for."""
    rng = np.random.default_rng(seed)
    if kind == "nvfp4":
        pairs = rng.integers(0, 256, (rows, K // 2)).astype(np.uint8)
        codes = np.stack((pairs % 16, pairs // 16), -1).reshape(rows, K)
        scales = rng.integers(0, 0x7F, (rows, K // 16)).astype(np.uint8)
        of_blocks = scales.view(ml_dtypes.float8_e4m3fn).astype(float)
        numbers = codes.view(ml_dtypes.float4_e2m1fn).astype(float)
        return pairs, scales, numbers * np.repeat(of_blocks, 16, 1)
    words = rng.integers(0, 0x7F, (rows, K)).astype(np.uint8)
    scales = rng.integers(120, 134, (rows, K // 32)).astype(np.uint8)
    numbers = words.view(ml_dtypes.float8_e4m3fn).astype(float)
    return words, scales, numbers * np.repeat(2.0 ** (scales.astype(int) - 127), 32, 1)


@pytest.mark.parametrize("kind", ["nvfp4", "mxfp8"])
def test_blocks_are_scaled(torch: Any, kind: str) -> None:
    packed, of_scales = {
        "nvfp4": (torch.float4_e2m1fn_x2, torch.float8_e4m3fn),
        "mxfp8": (torch.float8_e4m3fn, torch.float8_e8m0fnu),
    }[kind]
    (a, a_scales, a_numbers), (b, b_scales, b_numbers) = (
        operand(kind, rows, seed) for seed, rows in enumerate((ROWS, COLUMNS))
    )

    def cuda(words: Array, dtype: Any) -> Any:
        return torch.from_numpy(words).cuda().view(dtype)

    given = (
        cuda(a, packed),
        cuda(b, packed).t(),
        cuda(laid_out(a_scales), of_scales),
        cuda(laid_out(b_scales), of_scales),
    )
    expected = a_numbers @ b_numbers.T
    errors = np.abs(a_numbers) @ np.abs(b_numbers.T) * K * 2.0**-24
    product = torch._scaled_mm(*given, out_dtype=torch.float32)
    assert product.is_cuda
    assert np.all(np.abs(product.cpu().numpy() - expected) <= errors)
    bias = torch.arange(COLUMNS, dtype=torch.bfloat16, device="cuda") * 2.0**10
    biased = torch._scaled_mm(*given, bias=bias, out_dtype=torch.bfloat16)
    assert torch.equal(biased, (product + bias).bfloat16())


def test_other_scales_are_as_ever(torch: Any) -> None:
    a = torch.randn(16, 32, device="cuda").to(torch.float8_e4m3fn)
    two, three = torch.tensor(2.0, device="cuda"), torch.tensor(3.0, device="cuda")
    product = torch._scaled_mm(a, a.t(), two, three, out_dtype=torch.float32)
    assert torch.allclose(product, 6 * (a.float() @ a.float().t()))
    short = torch.ones(511, device="cuda").to(torch.float8_e8m0fnu)
    with pytest.raises(ValueError, match="Invalid scaling configuration"):
        torch._scaled_mm(a, a.t(), short, short, out_dtype=torch.float32)


def test_a_gpu_that_multiplies_without_scales_refuses_them(torch: Any) -> None:
    scales = torch.ones(512, device="cuda").to(torch.float8_e8m0fnu)
    a = torch.ones(16, 32, device="cuda").to(torch.float8_e4m3fn)
    assert torch._scaled_mm(a, a.t(), scales, scales, out_dtype=torch.float32)[3, 4] == 32
    import_module("ptxlab.triton").use_emulator("sm_90a")
    try:
        with pytest.raises(RuntimeError, match="CUBLAS_STATUS_NOT_SUPPORTED"):
            torch._scaled_mm(a, a.t(), scales, scales, out_dtype=torch.float32)
    finally:
        import_module("ptxlab.triton").use_emulator("sm_100a")
