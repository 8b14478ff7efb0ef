"""An operation's numpy function as machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxlab.native.text import FunctionText
from ptxlab.native.tracing import intrinsics  # noqa: F401  (fills the table)
from ptxlab.native.tracing.array import TracedArray
from ptxlab.native.tracing.ufuncs import NotTraced, constant
from ptxlab.native.value import VectorValue


def trace(
    compute: Callable[..., Any],
    dtypes: Sequence[np.dtype[Any]],
    code: FunctionText,
    *values: VectorValue,
) -> tuple[VectorValue, ...] | None:
    """Write what ``compute`` does to arrays of these dtypes, of which ``values`` are one element a thread.

    Return the results; None where they have no machine code.
    """
    if any(dtype.itemsize > 8 for dtype in dtypes):
        return None
    try:
        with np.errstate(all="ignore"):
            traced = compute(*map(TracedArray, values, dtypes))
        results = traced if isinstance(traced, tuple | list) else (traced,)
        return tuple(
            x.value if isinstance(x, TracedArray) else constant(code, x, np.asarray(x).dtype)
            for x in results
        )
    except NotTraced:
        return None


def applied(function: Callable[..., Any], dtype: Any, *values: VectorValue) -> VectorValue:
    """Return what a function that can be written makes of values of one dtype."""
    result: VectorValue = function(*(TracedArray(value, dtype) for value in values)).value
    return result
