"""Local memory: where the words lie that a warp's lanes have at addresses of their own.

The same word of all lanes lies in one line. Source: CUDA C++ Programming Guide, "Local Memory".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.isa.targets import WARP

WORD = 4


def places(addresses: npt.NDArray[Any], nbytes: int) -> npt.NDArray[Any]:
    """Return where in its warp's memory each word lies of items of ``nbytes`` at ``addresses`` [rows, lanes]: [rows, words, lanes]."""
    words = np.arange(max(nbytes // WORD, 1), dtype=addresses.dtype)[:, None]
    lane = np.arange(addresses.shape[1], dtype=addresses.dtype) % WARP
    at: npt.NDArray[Any] = ((addresses[:, None] // WORD + words) * WARP + lane) * WORD
    return at
