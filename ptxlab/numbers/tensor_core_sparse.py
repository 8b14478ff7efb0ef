"""Sparse matrix multiply-add: A stores only some of each few numbers along k, and says which.

What it says is read by ``ptxlab.matrix.sparse``; here it is carried out. A stored number of A is
multiplied with the number of B at its place, and the numbers of B that have none are never looked at,
so that an infinity among them does no harm. The picked numbers differ from row to row of A, so every
row becomes a product of its own with k halved, and the functions for dense products compute all of
them.

So a step here fuses as many *stored* products as a dense step does products, in the order in which
they are stored: HMMA.SP and QMMA.SP take twice the k of the dense instruction with the same registers
of A, and so do those of wgmma. No published measurement settles the bits of sparse products but those of
``tcgen05.mma.sp``, of which each is one step: elsewhere it is an assumption where steps end. (Where ptxas itself unpacks sparse 8-bit numbers, on sm_90 and sm_100,
SASS confirms which go into which half.)

Source: PTX ISA, "Sparse matrix storage".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array


@dataclass(frozen=True, slots=True)
class SparseRows:
    """Rows of A as separate products: their m joins the warps, in the last axis.

    ``places`` are the k of the stored numbers, [m, stored, warps]. The dense functions take
    ``left(a)``, ``picked(b)`` and ``accumulator(c)``, and ``restore`` undoes that for their result.
    """

    places: Array

    def left(self, x: Array) -> Array:
        """Turn [m, j, warps], stored A or its scales, into [1, j, m * warps]."""
        return x.transpose(1, 0, 2).reshape(1, x.shape[1], -1)

    def picked(self, b: Array) -> Array:
        """Turn B [k, n, warps] into [stored, n, m * warps]: for each row its own numbers."""
        chosen = np.take_along_axis(b[None], self.places[:, :, None], axis=1)
        return chosen.transpose(1, 2, 0, 3).reshape(chosen.shape[1], b.shape[1], -1)

    def repeated(self, x: Array) -> Array:
        """Turn [blocks, n, warps], the scales of B, into [blocks, n, m * warps]."""
        return np.tile(x, (1, 1, self.places.shape[0]))

    def accumulator(self, c: Array) -> Array:
        """Turn C [m, n, warps] into [1, n, m * warps]."""
        return self.left(c)

    def restore(self, d: Array) -> Array:
        """Turn D [1, n, m * warps] back into [m, n, warps]."""
        m, _, warps = self.places.shape
        return np.ascontiguousarray(d.reshape(d.shape[1], m, warps).transpose(1, 0, 2))
