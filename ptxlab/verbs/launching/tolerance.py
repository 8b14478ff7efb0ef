"""How far a value may be from what it should be: ``--tolerance RTOL[,ATOL]``."""

from __future__ import annotations

import numpy as np

from ptxlab.arrays import Array


def errors(value: Array, want: Array, tolerance: tuple[float, float]) -> tuple[Array, Array]:
    """Return which elements are right, |value - want| <= atol + rtol |want|, and all the errors.

    Equal values, infinities and NaNs included, need no tolerance and have no error.
    """
    rtol, atol = tolerance
    with np.errstate(all="ignore"):
        got64, want64 = value.astype(np.float64), want.astype(np.float64)
        error = np.abs(got64 - want64)
        equal = (value == want) | (np.isnan(got64) & np.isnan(want64))
        within = np.isfinite(error) & (error <= atol + rtol * np.abs(want64))
    error[equal] = 0
    return equal | within, error
