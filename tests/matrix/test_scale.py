"""The scale operands of block-scaled mma, by the selectors of "Block Scaling for mma.sync"."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.matrix.mma import MMA_BLOCK_SCALED, MMA_SPARSE_BLOCK_SCALED
from ptxlab.matrix.scale import Scale


@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("operand", ["A", "B"])
def test_places(operand: Literal["A", "B"], blocks: int) -> None:
    scale = Scale(operand, blocks, "ue8m0")
    for byte in scale.byte_ids:
        for thread in scale.thread_ids:
            seen = set()
            for line in range(scale.lines):
                for block in range(blocks):
                    lane, at = scale.place(line, block, byte, thread)
                    assert at == byte + block < 4
                    assert lane // 4 == line % 8
                    if operand == "A":  # thread 0: lanes 0 and 1 of the quad, thread 1: 2 and 3
                        assert lane % 4 == (2 * thread if line < 8 else 2 * thread + 1)
                    else:
                        assert lane % 4 == thread
                    seen.add((lane, at))
            assert len(seen) == scale.lines * blocks


def test_ids() -> None:
    assert [[*Scale("A", n, "ue8m0").byte_ids] for n in (1, 2, 4)] == [[0, 1, 2, 3], [0, 2], [0]]
    assert [*Scale("A", 1, "ue8m0").thread_ids] == [0, 1]
    assert [*Scale("B", 1, "ue8m0").thread_ids] == [0, 1, 2, 3]
    for byte, thread in ((1, 0), (0, 2), (4, 0)):
        with pytest.raises(ValueError, match="takes byte-id in"):
            Scale("A", 2, "ue8m0").place(0, 0, byte, thread)


def packed(scale: Scale, scales: Array, byte_id: int, thread_id: int) -> Any:
    """Return registers [..., 32] that hold the scales [..., lines, blocks]; all else is zero."""
    words = np.zeros((*scales.shape[:-2], 32), np.uint32)
    for line, block in np.ndindex(scales.shape[-2:]):
        lane, byte = scale.place(line, block, byte_id, thread_id)
        words[..., lane] |= scales[..., line, block].astype(np.uint32) << np.uint32(8 * byte)
    return words


def test_unpack_undoes_packing() -> None:
    random = np.random.default_rng(1)
    scale = Scale("A", 2, "ue8m0")
    scales = random.integers(0, 256, (3, 16, 2))
    assert (scale.unpack(packed(scale, scales, 2, 1), 2, 1) == scales).all()
    assert (scale.unpack(packed(scale, scales, 2, 1), 0, 1) == 0).all()


def test_kinds() -> None:
    for form in (*MMA_BLOCK_SCALED, *MMA_SPARSE_BLOCK_SCALED):
        blocks, dtype = form.scales[0].blocks, form.scales[0].dtype
        assert form.name.endswith(dtype)
        if ".scale_vec::" in form.name:
            assert f".scale_vec::{blocks}X" in form.name
        else:
            assert blocks == (2 if "mxf4" in form.name else 1)
        assert [scale.operand for scale in form.scales] == ["A", "B"]
