"""What arrays of numpy are called in types."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""An array of any type; where it matters, a docstring says which, and what its dimensions are."""

Doubles = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
"""The bits of registers, a word each, however many of them a register has."""
