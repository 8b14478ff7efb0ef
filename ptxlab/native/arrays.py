"""Where machine code finds what a task names: numbers, and the data of arrays of numpy, of which it has the object."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

DATA = object.__basicsize__
"""The byte of the object at which the address of the data is: the first field of its own."""

FLAGS = DATA + 48
"""The byte at which its flags are, behind six fields of a word each."""


def load_word(name: str, word: int) -> list[str]:
    """Return the lines of LLVM's assembly that load a word of a task."""
    return [
        f"%{name}.w = getelementptr i64, ptr %args, i64 {word}",
        f"%{name} = load i64, ptr %{name}.w",
    ]


def load_array(name: str, word: int) -> list[str]:
    """Return the lines that find the data of an array, of which a word of the task is the object."""
    return [
        f"%{name}.w = getelementptr i64, ptr %args, i64 {word}",
        f"%{name}.o = load ptr, ptr %{name}.w",
        f"%{name}.f = getelementptr i8, ptr %{name}.o, i64 {DATA}",
        f"%{name} = load ptr, ptr %{name}.f",
    ]


@cache
def sees_arrays() -> bool:
    """Say whether both are there: this is how CPython and numpy lay objects out, and no promise of theirs."""
    for array in (np.arange(3), np.arange(8)[::2]):
        data = ctypes.c_uint64.from_address(id(array) + DATA).value
        flags = ctypes.c_uint32.from_address(id(array) + FLAGS).value
        if data != array.ctypes.data or flags != array.flags.num:
            return False
    return True
