"""Products of matrices whose blocks along k have scales (mxfp8, nvfp4), which a CPU has not.

Sources: torch._scaled_mm of PyTorch, ATen/native/cuda/ScaledBlas.cpp, by whose conditions it takes scales for those of
blocks; cuBLAS, "1D Block Scaling Factors Layout", for where the scale of a block lies.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from ptxlab.clients.torch.kernels import Kernel
from ptxlab.clients.torch.memory import allocations
from ptxlab.numbers.exact import decode
from ptxlab.numbers.formats import E2M1

_ROWS, _LANES, _COLUMNS = 128, 32, 4
"""A tile of scales: rows, of which every 32nd lie together, by blocks along k."""
_OF_BLOCKS = {
    (torch.float4_e2m1fn_x2, torch.float8_e4m3fn): 16,
    (torch.float8_e4m3fn, torch.float8_e8m0fnu): 32,
    (torch.float8_e5m2, torch.float8_e8m0fnu): 32,
}
"""Numbers of a block, by the types of numbers and scales."""
_FROM = (10, 0)
"""The first compute capability that multiplies by scales of blocks."""


def scaled_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """Multiply what numbers and scales stand for, in float32; other scales than of blocks are the CPU's."""
    blocks = _of_block(self, scale_a), _of_block(mat2.t(), scale_b)
    if self.dim() != 2 or mat2.dim() != 2 or 0 in blocks or blocks[0] != blocks[1]:
        product: torch.Tensor = _SCALED_MM(
            self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum
        )
        return product
    if torch.cuda.get_device_capability() < _FROM:
        raise RuntimeError(
            "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmulAlgoGetHeuristic`"
        )
    product = _scaled(self, scale_a, blocks[0]) @ _scaled(mat2.t(), scale_b, blocks[1]).t()
    if bias is not None:
        product += bias
    return product.to(out_dtype or self.dtype)


_SCALED_MM = Kernel(torch.ops.aten._scaled_mm.default)


def _of_block(matrix: torch.Tensor, scales: torch.Tensor) -> int:
    """Return how many numbers of a row share a scale, 0 where scales are not those of blocks."""
    block = _OF_BLOCKS.get((matrix.dtype, scales.dtype), 0)
    if not block or matrix.dim() != 2 or not scales.is_contiguous():
        return 0
    down, across = _tiles(matrix, block)
    return block if scales.numel() == down * across * _ROWS * _COLUMNS else 0


def _tiles(matrix: torch.Tensor, block: int) -> tuple[int, int]:
    """Return how many tiles of scales a matrix has, down and across."""
    rows, numbers = matrix.size(0), matrix.size(1) * _packed(matrix)
    return -(-rows // _ROWS), -(-numbers // (block * _COLUMNS))


def _packed(matrix: torch.Tensor) -> int:
    """Return how many numbers an element is."""
    return 2 if matrix.dtype is torch.float4_e2m1fn_x2 else 1


def _scaled(matrix: torch.Tensor, scales: torch.Tensor, block: int) -> torch.Tensor:
    """Return the numbers times their scales, which float32 has exactly."""
    down, across = _tiles(matrix, block)
    tiles = scales.view(down, across, _LANES, _ROWS // _LANES, _COLUMNS).float()
    of_blocks = tiles.permute(0, 3, 2, 1, 4).reshape(down * _ROWS, across * _COLUMNS)
    numbers = _numbers(matrix)
    of_numbers = of_blocks.repeat_interleave(block, 1)
    return numbers * of_numbers[: numbers.size(0), : numbers.size(1)]


def _numbers(matrix: torch.Tensor) -> torch.Tensor:
    if _packed(matrix) == 1:
        return matrix.float()
    pairs = matrix.contiguous().view(torch.uint8)
    codes = torch.stack((pairs & 15, pairs >> 4), -1).flatten(1)
    return _e2m1()[codes.int()]


@cache
def _e2m1() -> torch.Tensor:
    """Return what the codes of four bits stand for."""
    values = decode(np.arange(16, dtype=np.uint8), E2M1).astype(np.float32)
    return allocations.on_gpu(torch.from_numpy(values))


SCALED: dict[str, Any] = {"_scaled_mm": scaled_mm}
"""The function by the operation whose kernel on "cuda" it is."""
