"""Products of matrices whose blocks along k have scales (mxfp8, nvfp4), which a CPU has not.

Sources: torch._scaled_mm of PyTorch, ATen/native/cuda/ScaledBlas.cpp, by whose conditions it takes scales for those of
blocks; cuBLAS, "1D Block Scaling Factors Layout", for where the scale of a block lies. Of groups each has tiles of its own,
which follow each other: torch.nn.functional.scaled_grouped_mm.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
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
_RECIPES = {
    int(torch.nn.functional.ScalingType.BlockWise1x16): 16,
    int(torch.nn.functional.ScalingType.BlockWise1x32): 32,
}
"""Numbers of a block, by the first of the recipes: another, for nvfp4, says that groups have a scale besides."""
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
    _require_scales()
    product = _scaled(self, scale_a, blocks[0]) @ _scaled(mat2.t(), scale_b, blocks[1]).t()
    if bias is not None:
        product += bias
    return product.to(out_dtype or self.dtype)


def scaled_grouped_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    scale_a: Sequence[torch.Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[torch.Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """Multiply groups of rows by matrices of their own, or groups along k, each a product of its own."""
    block = _RECIPES.get(recipe_a[0], 0)
    if not block or list(recipe_a) != list(recipe_b) or offs is None or bias is not None:
        refused: torch.Tensor = _SCALED_GROUPED_MM(
            self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs, bias, out_dtype,
            contraction_dim, use_fast_accum,
        )  # fmt: skip
        return refused
    _require_scales()
    a, b = _Groups(scale_a, block), _Groups(scale_b, block)
    products = []
    for group, (begin, end) in enumerate(pairwise([0, *offs.tolist()])):
        if mat2.dim() == 3:
            left, right = self[begin:end], mat2[group].t()
        else:
            of_k = slice(begin // _packed(self), end // _packed(self))
            left, right = self[:, of_k], mat2[of_k].t()
        products.append(a.scaled(left, group) @ b.scaled(right, group).t())
    whole = torch.cat(products) if mat2.dim() == 3 else torch.stack(products)
    return whole.to(out_dtype or torch.bfloat16)


_SCALED_MM = Kernel(torch.ops.aten._scaled_mm.default)
_SCALED_GROUPED_MM = Kernel(torch.ops.aten._scaled_grouped_mm_v2.default)


def _require_scales() -> None:
    """Raise RuntimeError, as cuBLAS does, for a GPU whose products have no scales of blocks."""
    if torch.cuda.get_device_capability() < _FROM:
        raise RuntimeError(
            "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmulAlgoGetHeuristic`"
        )


class _Groups:
    """The scales of all groups of an operand, and maybe one of each ``group``."""

    def __init__(self, scales: Sequence[torch.Tensor], block: int) -> None:
        self._tiles, *self._of_groups = (each.flatten() for each in scales)
        self._block = block
        self._taken = 0

    def scaled(self, matrix: torch.Tensor, group: int) -> torch.Tensor:
        """Return the numbers of the next group times their scales."""
        down, across = _tiles(matrix, self._block)
        begin, self._taken = self._taken, self._taken + down * across * _ROWS * _COLUMNS
        numbers = _scaled(matrix, self._tiles[begin : self._taken], self._block)
        for scales in self._of_groups:
            numbers = numbers * scales[group]
        return numbers


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


SCALED: dict[str, Any] = {"_scaled_mm": scaled_mm, "_scaled_grouped_mm_v2": scaled_grouped_mm}
"""The functions by the operation whose kernel on "cuda" they are."""
