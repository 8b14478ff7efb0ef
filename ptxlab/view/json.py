"""Results as JSON: every number written in one way, by whatever verb.

Integers keep all their bits. NaN and the infinities, which JSON lacks, are the strings ``nan``, ``inf``
and ``-inf``; null is what is not known or not there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_AS_IT_IS = {int, str, bool, type(None)}
_OF_NUMPY = (np.ndarray, np.generic)


def write(result: Mapping[str, Any]) -> str:
    """Return a result as one line of JSON."""
    return json.dumps(plain(result), allow_nan=False)


def plain(value: Any) -> Any:
    """Return ``value`` as JSON has it; arrays and numbers of numpy become lists and numbers."""
    if type(value) in _AS_IT_IS:  # most of what there is
        return value
    if isinstance(value, _OF_NUMPY):
        return _of_numpy(np.asarray(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(member) for member in value]
    return value


def members(thing: object, *names: str) -> dict[str, Any]:
    """Return attributes by name, all of them None where there is no ``thing``."""
    return {name: thing and getattr(thing, name) for name in names}


def _of_numpy(array: np.ndarray[Any, np.dtype[Any]]) -> Any:
    if array.dtype.kind in "biuU":
        return array.tolist()
    with np.errstate(invalid="ignore"):  # what a signaling NaN raises
        exact = array.astype(np.float64)
    return exact.tolist() if np.isfinite(exact).all() else plain(exact.tolist())
