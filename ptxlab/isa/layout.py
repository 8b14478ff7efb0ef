"""Layouts as CuTe writes them: a shape and a stride, and the swizzles that permute their offsets.

A layout maps a coordinate to an offset in elements. Shapes nest; a plain integer coordinate of a
nested shape counts colexicographically, first mode fastest.

Source: NVIDIA CUTLASS documentation, "CuTe Layouts" and "CuTe Layout Algebra".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

IntTuple = int | tuple["IntTuple", ...]
Coordinate = (
    Any  # an int or integer array, or a tuple of coordinates nested no deeper than the shape
)
Offset = Any  # an int, or an integer array when the coordinate held arrays


@dataclass(frozen=True, slots=True)
class Layout:
    """``shape`` and ``stride``: ints or nested tuples of the same profile, strides not negative.

    Calling the layout with one coordinate (an int, or a tuple as the shape nests) or with one
    argument per mode returns the offset; integer arrays work in place of ints. ``print(layout)``
    draws it, first mode down and all others across. Raises ValueError for a shape and a stride that
    do not belong together.

    >>> Layout((2, 6), (6, 1))(1, 2)
    8
    """

    shape: IntTuple
    stride: IntTuple

    def __post_init__(self) -> None:
        _check(self.shape, self.stride, self)

    @classmethod
    def col_major(cls, shape: IntTuple) -> Layout:
        """Return the compact layout whose first mode is contiguous."""
        return cls(shape, _compact(shape, 1)[0])

    @classmethod
    def row_major(cls, shape: IntTuple) -> Layout:
        """Return the compact layout whose last mode is contiguous."""
        return cls(shape, _reversed(_compact(_reversed(shape), 1)[0]))

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return _product(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest offset: the elements of memory the layout spans."""
        return int(self(self.size - 1)) + 1

    def __call__(self, *coordinate: Coordinate) -> Offset:
        """Return the offset of a coordinate. Raises ValueError when its profile does not fit."""
        whole = coordinate[0] if len(coordinate) == 1 else coordinate
        return _offset(whole, self.shape, self.stride)

    def __str__(self) -> str:
        return f"{notation(self.shape)}:{notation(self.stride)}\n{table(self)}"


@dataclass(frozen=True, slots=True)
class Swizzle:
    """CuTe's ``Swizzle<bits, base, shift>``: xor ``bits`` bits of an offset into lower ones.

    The ``bits`` bits from bit ``base + shift`` up are xored into those from bit ``base`` up (for a
    negative shift the other way round), so it is its own inverse and a bijection.

    >>> Swizzle(3, 3, 3)(64)
    72
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits:
            raise ValueError(f"{self} needs bits >= 0, base >= 0 and |shift| >= bits")

    def __call__(self, offset: Offset) -> Offset:
        """Return the swizzled offset; integer arrays work in place of ints."""
        mask = ((1 << self.bits) - 1) << self.base
        if self.shift >= 0:
            return offset ^ ((offset >> self.shift) & mask)
        return offset ^ ((offset & mask) << -self.shift)

    def compose(self, layout: Layout) -> SwizzledLayout:
        """Return the layout whose offsets are those of ``layout``, swizzled."""
        return SwizzledLayout(self, layout)


@dataclass(frozen=True, slots=True)
class SwizzledLayout:
    """A swizzle after a layout. ``print`` draws it as it draws a Layout."""

    swizzle: Swizzle
    layout: Layout

    @property
    def shape(self) -> IntTuple:
        """The shape of the layout inside."""
        return self.layout.shape

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return self.layout.size

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return max(int(self(i)) for i in range(self.size)) + 1

    def __call__(self, *coordinate: Coordinate) -> Offset:
        """Return the swizzled offset of a coordinate."""
        return self.swizzle(self.layout(*coordinate))

    def __str__(self) -> str:
        s, inner = self.swizzle, self.layout
        head = f"S<{s.bits},{s.base},{s.shift}> o {notation(inner.shape)}:{notation(inner.stride)}"
        return f"{head}\n{table(self)}"


class Mapping(Protocol):
    """What can be drawn: a shape, and offsets by coordinate."""

    @property
    def shape(self) -> IntTuple:
        """The shape, nested or not."""
        ...

    def __call__(self, *coordinate: Coordinate) -> Offset:
        """Return the offset of a coordinate."""
        ...


def notation(value: IntTuple) -> str:
    """Write ints and nested tuples as CuTe does, without blanks."""
    if isinstance(value, int):
        return str(value)
    return "(" + ",".join(notation(part) for part in value) + ")"


def table(layout: Mapping) -> str:
    """Draw offsets as text: the first mode counts down, all others across, indices on both axes."""
    shape = layout.shape
    rows, cols = (shape, 1) if isinstance(shape, int) else (shape[0], shape[1:])
    height, width = _product(rows), _product(cols)
    cells = [[str(layout(row + height * col)) for col in range(width)] for row in range(height)]
    digits = max(len(cell) for line in [*cells, [str(width - 1)]] for cell in line)
    edge = len(str(height - 1))
    lines = [" " * edge + " |" + "".join(f" {col:>{digits}}" for col in range(width))]
    lines.append("-" * edge + "-+" + "-" * (width * (digits + 1)))
    for row, line in enumerate(cells):
        lines.append(f"{row:>{edge}} |" + "".join(f" {cell:>{digits}}" for cell in line))
    return "\n".join(lines)


def _product(shape: IntTuple) -> int:
    if isinstance(shape, int):
        return shape
    size = 1
    for part in shape:
        size *= _product(part)
    return size


def _reversed(value: IntTuple) -> IntTuple:
    return value if isinstance(value, int) else tuple(_reversed(part) for part in value[::-1])


def _compact(shape: IntTuple, stride: int) -> tuple[IntTuple, int]:
    """Return column-major strides of ``shape`` from ``stride`` up, and the stride that follows."""
    if isinstance(shape, int):
        return stride, stride * shape
    parts = []
    for part in shape:
        inner, stride = _compact(part, stride)
        parts.append(inner)
    return tuple(parts), stride


def _check(shape: IntTuple, stride: IntTuple, layout: Layout) -> None:
    if isinstance(shape, int) and isinstance(stride, int):
        if shape < 1 or stride < 0:
            raise ValueError(f"{layout!r} needs sizes of 1 or more and strides of 0 or more")
    elif isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride):
        for part, step in zip(shape, stride, strict=True):
            _check(part, step, layout)
    else:
        raise ValueError(f"{layout!r} has a shape and a stride of different profiles")


def _offset(coordinate: Coordinate, shape: IntTuple, stride: IntTuple) -> Offset:
    if isinstance(shape, int) or isinstance(stride, int):
        if isinstance(coordinate, tuple):
            raise ValueError(f"coordinate {coordinate} is nested deeper than the shape")
        return coordinate * stride
    if isinstance(coordinate, tuple):
        if len(coordinate) != len(shape):
            raise ValueError(f"coordinate {coordinate} does not have {len(shape)} modes")
        return sum(_offset(*mode) for mode in zip(coordinate, shape, stride, strict=True))
    total: Offset = 0
    for i, (part, step) in enumerate(zip(shape, stride, strict=True)):
        size = _product(part)
        here = coordinate if i == len(shape) - 1 else coordinate % size
        total = total + _offset(here, part, step)
        coordinate = coordinate // size
    return total
