"""Products with scales of blocks, beside float64; where a scale lies is told by cuBLAS's formula of one scale."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
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


def types(torch: Any, kind: str) -> tuple[Any, Any]:
    """Return the types of numbers and scales."""
    if kind == "nvfp4":
        return torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    return torch.float8_e4m3fn, torch.float8_e8m0fnu


def uploader(torch: Any) -> Callable[[Array, Any], Any]:
    """Return what makes a tensor of a type of bytes."""
    return lambda words, dtype: torch.from_numpy(words).cuda().view(dtype)


@pytest.mark.parametrize("kind", ["nvfp4", "mxfp8"])
def test_blocks_are_scaled(torch: Any, kind: str) -> None:
    packed, of_scales = types(torch, kind)
    (a, a_scales, a_numbers), (b, b_scales, b_numbers) = (
        operand(kind, rows, seed) for seed, rows in enumerate((ROWS, COLUMNS))
    )
    cuda = uploader(torch)
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


@pytest.mark.parametrize("along", ["rows", "k"])
@pytest.mark.parametrize("kind", ["nvfp4", "mxfp8"])
def test_groups_have_tiles_of_scales_of_their_own(torch: Any, kind: str, along: str) -> None:
    """Groups of rows, each with a matrix, and groups along k; one of each is empty."""
    packed, of_scales = types(torch, kind)
    cuda, functional = uploader(torch), torch.nn.functional
    a, a_scales, a_numbers = operand(kind, ROWS, 1)
    others = [operand(kind, COLUMNS, seed) for seed in (2, 3, 4)]
    block = K // a_scales.shape[1]
    of_groups = np.array([[2.0, 0.5, 3.0], [1.0, 7.0, 0.25]], np.float32)
    ends = [24, 24, ROWS] if along == "rows" else [64, 64, K]
    groups = [slice(*each) for each in pairwise([0, *ends])]
    if along == "rows":
        laid = [
            [laid_out(a_scales[each]) for each in groups],
            [laid_out(each[1]) for each in others],
        ]
        second = torch.stack([cuda(words, torch.uint8) for words, _, _ in others]).view(packed)
        expected = [
            a_numbers[rows] @ numbers.T
            for rows, (_, _, numbers) in zip(groups, others, strict=True)
        ]
    else:
        words, b_scales, b_numbers = others[0]
        laid = [
            [laid_out(scales[:, each.start // block : each.stop // block]) for each in groups]
            for scales in (a_scales, b_scales)
        ]
        second = cuda(words, packed)
        expected = [a_numbers[:, each] @ b_numbers[:, each].T for each in groups]
    scales = [[cuda(np.concatenate(each), of_scales)] for each in laid]
    recipes = [functional.ScalingType.BlockWise1x32]
    if kind == "nvfp4":
        scales = [
            [*each, cuda(of, torch.float32)] for each, of in zip(scales, of_groups, strict=True)
        ]
        recipes = [functional.ScalingType.BlockWise1x16, functional.ScalingType.TensorWise]
        expected = [each * of for each, of in zip(expected, of_groups.prod(0), strict=True)]
    product = functional.scaled_grouped_mm(
        cuda(a, packed),
        second.transpose(-2, -1),
        scales[0],
        recipes,
        scales[1],
        recipes,
        swizzle_a=functional.SwizzleType.SWIZZLE_32_4_4,
        swizzle_b=functional.SwizzleType.SWIZZLE_32_4_4,
        offs=torch.tensor(ends, dtype=torch.int32, device="cuda"),
        output_dtype=torch.float32,
    )
    whole = np.concatenate(expected) if along == "rows" else np.stack(expected)
    assert product.shape == whole.shape
    np.testing.assert_allclose(
        product.cpu().numpy(), whole, rtol=1e-4, atol=1e-4 * abs(whole).max()
    )


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
