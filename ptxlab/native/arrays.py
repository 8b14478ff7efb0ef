"""Where machine code finds what a task names: numbers, and the data of arrays of numpy, of which it has the object."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

DATA = object.__basicsize__
"""The byte of the object at which the address of the data is: the first field of its own."""

FLAGS = DATA + 48
"""The byte at which its flags are, behind six fields of a word each."""


@cache
def sees_arrays() -> bool:
    """Say whether both are there: this is how CPython and numpy lay objects out, and no promise of theirs."""
    for array in (np.arange(3), np.arange(8)[::2]):
        data = ctypes.c_uint64.from_address(id(array) + DATA).value
        flags = ctypes.c_uint32.from_address(id(array) + FLAGS).value
        if data != array.ctypes.data or flags != array.flags.num:
            return False
    return True
