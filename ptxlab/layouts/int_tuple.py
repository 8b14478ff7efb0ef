"""Nested tuples of integers: the shapes, strides and coordinates of layouts.

Source: NVIDIA CUTLASS documentation, "CuTe Layouts", on IntTuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

IntTuple = int | tuple["IntTuple", ...]
Coordinate = (
    Any  # an int or integer array, or a tuple of coordinates nested no deeper than the shape
)
Offset = Any  # an int, or an integer array when the coordinate held arrays
Modes = tuple[tuple[int, int], ...]
"""The (size, stride) of each integer of a shape, first and fastest first: a layout made flat."""


def product(value: IntTuple) -> int:
    """Return the product of all integers."""
    size = 1
    for part in leaves(value):
        size *= part
    return size


def leaves(value: IntTuple) -> Iterator[int]:
    """Yield all integers from left to right."""
    if isinstance(value, int):
        yield value
    else:
        for part in value:
            yield from leaves(part)


def notation(value: IntTuple) -> str:
    """Write ints and nested tuples as CuTe does, without blanks."""
    if isinstance(value, int):
        return str(value)
    return "(" + ",".join(notation(part) for part in value) + ")"


def congruent(first: IntTuple, second: IntTuple) -> bool:
    """Say whether both nest alike."""
    if isinstance(first, int) or isinstance(second, int):
        return isinstance(first, int) and isinstance(second, int)
    return len(first) == len(second) and all(map(congruent, first, second))


def reverse(value: IntTuple) -> IntTuple:
    """Return the mirror image, at every depth."""
    return value if isinstance(value, int) else tuple(reverse(part) for part in value[::-1])


def compact(shape: IntTuple, stride: int = 1) -> IntTuple:
    """Return the strides, in elements from ``stride`` up, that put the integers of ``shape`` side by side."""
    if isinstance(shape, int):
        return stride
    parts = []
    for part in shape:
        parts.append(compact(part, stride))
        stride *= product(part)
    return tuple(parts)


def offset(coordinate: Coordinate, shape: IntTuple, stride: IntTuple) -> Offset:
    """Return the offset of a coordinate; a plain integer counts first mode fastest.

    Raises ValueError when the coordinate does not nest as the shape does.
    """
    if isinstance(shape, int) or isinstance(stride, int):
        if isinstance(coordinate, tuple):
            raise ValueError(f"coordinate {coordinate} is nested deeper than the shape")
        return coordinate * stride
    if isinstance(coordinate, tuple):
        if len(coordinate) != len(shape):
            raise ValueError(f"coordinate {coordinate} does not have {len(shape)} modes")
        return sum(offset(*mode) for mode in zip(coordinate, shape, stride, strict=True))
    total: Offset = 0
    for i, (part, step) in enumerate(zip(shape, stride, strict=True)):
        size = product(part)
        here = coordinate if i == len(shape) - 1 else coordinate % size
        total = total + offset(here, part, step)
        coordinate = coordinate // size
    return total
