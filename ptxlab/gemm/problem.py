"""A GEMM problem: its size, its types, and its random inputs."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.errors import PtxlabError
from ptxlab.isa.types import TYPES

DTYPES = ("f32", "bf16", "f16")
ACCUMULATORS = ("f32", "f16")

LARGEST = 2**30
"""Sizes are ``int`` in the kernels, and a tile may reach over the edge."""


@dataclass(frozen=True, slots=True)
class Problem:
    """D = A * B with A m x k and B k x n of ``dtype``, added up in and D of type ``acc``.

    Raises PtxlabError for a size below 0 or above 2^30, and for a type that is none.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    acc: str = "f32"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise PtxlabError(f"{name} = {getattr(self, name)} is not between 0 and 2^30")
        for name, known in (("dtype", DTYPES), ("acc", ACCUMULATORS)):
            given = getattr(self, name)
            if given not in known:
                close = get_close_matches(given, known, n=1)
                raise PtxlabError(
                    f"{name} is one of {', '.join(known)}, not {given!r}",
                    hint=f"did you mean {close[0]}?" if close else None,
                )

    @property
    def flops(self) -> int:
        """Multiplications and additions, 2 m n k."""
        return 2 * self.m * self.n * self.k

    def inputs(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return A and B: standard normal numbers rounded to ``dtype``, row-major.

        Zeros or small integers would be easier on a GPU's power supply, and so run faster.
        """
        generator = np.random.default_rng(self.seed)
        kind = TYPES[self.dtype].dtype
        a = generator.standard_normal((self.m, self.k), np.float32).astype(kind)
        b = generator.standard_normal((self.k, self.n), np.float32).astype(kind)
        return a, b
