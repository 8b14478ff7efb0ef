"""Layouts as CuTe writes them: a shape and a stride, nested alike; behind a swizzle; in tiles.

A layout maps a coordinate to an offset in elements. Shapes nest; a plain integer coordinate of a
nested shape counts colexicographically, first mode fastest.

Source: NVIDIA CUTLASS documentation, "CuTe Layouts" and "CuTe Layout Algebra"; ``cute/swizzle.hpp``
and ``cute/layout_composed.hpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptxlab.layouts import algebra
from ptxlab.layouts.int_tuple import (
    Coordinate,
    IntTuple,
    Modes,
    Offset,
    compact,
    congruent,
    leaves,
    notation,
    offset,
    product,
    reverse,
)
from ptxlab.layouts.reading import shape_and_stride
from ptxlab.pictured import Pictured

_OFFSET_BITS = 63


@dataclass(frozen=True, slots=True)
class Swizzle:
    """CuTe's ``Swizzle<bits, base, shift>``: xor ``bits`` bits of an offset into lower ones.

    The ``bits`` bits from bit ``base + shift`` up are xored into those from bit ``base`` up (for a
    negative shift the other way round), so it is its own inverse and a bijection. Raises ValueError
    for numbers that are no swizzle.

    >>> Swizzle(3, 3, 3)(64)
    72
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits:
            raise ValueError(
                f"{self.notation} is no swizzle: bits and base are 0 or more, |shift| is at least bits"
            )
        if self.bits + self.base + abs(self.shift) > _OFFSET_BITS:
            raise ValueError(f"{self.notation} reaches beyond the {_OFFSET_BITS} bits of an offset")

    def __call__(self, offset: Offset) -> Offset:
        """Return the swizzled offset; integer arrays work in place of ints."""
        mask = ((1 << self.bits) - 1) << self.base
        if self.shift >= 0:
            return offset ^ ((offset >> self.shift) & mask)
        return offset ^ ((offset & mask) << -self.shift)

    def compose(self, layout: Layout) -> ComposedLayout:
        """Return the layout whose offsets are those of ``layout``, swizzled."""
        return ComposedLayout(self, 0, layout)

    @property
    def notation(self) -> str:
        """The swizzle as CuTe prints it."""
        return f"Sw<{self.bits},{self.base},{self.shift}>"


IDENTITY = Swizzle(0, 0, 0)


@dataclass(frozen=True, slots=True, init=False)
class Layout(Pictured):
    """``shape`` and ``stride``: ints or nested tuples of the same profile, strides not negative.

    A shape alone is column-major, as in CuTe. Both may be one text, ``(2,6):(6,1)`` or ``2x6``, of which
    PtxlabError says where it cannot be read.

    Calling the layout with one coordinate (an int, or a tuple as the shape nests) or with one
    argument per mode returns the offset; integer arrays work in place of ints. ``print(layout)``
    draws it, first mode down and all others across. Raises ValueError for a shape and a stride that
    do not belong together.

    >>> Layout((2, 6), (6, 1))(1, 2)
    8
    >>> Layout("(2,6):(6,1)")(1, 2)
    8
    """

    shape: IntTuple
    stride: IntTuple

    def __init__(self, shape: IntTuple | str, stride: IntTuple | None = None) -> None:
        if isinstance(shape, str):
            shape, stride = shape_and_stride(shape)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "stride", compact(shape) if stride is None else stride)
        if self.shape == () or not congruent(self.shape, self.stride):
            raise ValueError(f"{self!r} has a shape and a stride of different profiles")
        if any(size < 1 or stride < 0 for size, stride in self.modes):
            raise ValueError(f"{self!r} needs sizes of 1 or more and strides of 0 or more")

    @classmethod
    def col_major(cls, shape: IntTuple) -> Layout:
        """Return the compact layout whose first mode is contiguous."""
        return cls(shape)

    @classmethod
    def row_major(cls, shape: IntTuple) -> Layout:
        """Return the compact layout whose last mode is contiguous."""
        return cls(shape, reverse(compact(reverse(shape))))

    @classmethod
    def of_offsets(cls, offsets: Sequence[int]) -> Layout:
        """Return the coalesced layout with these offsets in elements, in linear order.

        Raises ValueError when no layout has them.

        >>> Layout.of_offsets([0, 6, 1, 7, 2, 8]).notation
        '(2,3):(6,1)'
        """
        return _flat(algebra.of_offsets(offsets))

    @property
    def modes(self) -> Modes:
        """(size, stride) of each integer of the shape, from left to right."""
        return tuple(zip(leaves(self.shape), leaves(self.stride), strict=True))

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return product(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest offset: the elements of memory the layout spans."""
        return sum((size - 1) * stride for size, stride in self.modes) + 1

    def __call__(self, *coordinate: Coordinate) -> Offset:
        """Return the offset of a coordinate. Raises ValueError when its profile does not fit."""
        whole = coordinate[0] if len(coordinate) == 1 else coordinate
        return offset(whole, self.shape, self.stride)

    @property
    def parts(self) -> tuple[Layout, ...]:
        """The modes at the top, each as a layout: rows and columns of a matrix."""
        if isinstance(self.shape, int) or isinstance(self.stride, int):
            return (self,)
        return tuple(map(Layout, self.shape, self.stride))

    def coalesce(self) -> Layout:
        """Return the flat layout of the fewest modes with the same offsets in the same order."""
        return _flat(algebra.coalesce(self.modes))

    def compose(self, inner: Layout) -> Layout:
        """Return the layout of ``self(inner(i))``, with the shape of ``inner``, modes split where
        they must be. Raises ValueError when that is no layout.

        >>> Layout.row_major((4, 8)).compose(Layout((8, 2), (4, 2))).notation
        '(8,2):(1,16)'
        """
        composed = map(_flat, algebra.compose(self.modes, inner.modes))
        return _nested(inner.shape, composed)

    def complement(self, bound: int | None = None) -> Layout:
        """Return the layout that fills the gaps of this one up to ``bound`` elements, its cosize if
        left out. Raises ValueError when the gaps are no layout.
        """
        return _flat(algebra.complement(self.modes, self.cosize if bound is None else bound))

    def right_inverse(self) -> Layout:
        """Return R with ``self(R(i)) == i`` for every i below R's size: from offset to linear index.

        It reaches as far as the offsets go from 0 up without a gap.
        """
        return _flat(algebra.right_inverse(self.modes))

    def left_inverse(self) -> Layout:
        """Return R with ``R(self(i)) == i`` for every i. Raises ValueError when there is none."""
        return _flat(algebra.left_inverse(self.modes))

    def divide(self, tiler: Layout) -> Layout:
        """Return ``((tile), (rest))``: what ``tiler`` picks, and the repetitions that make it all.

        CuTe's logical_divide. Raises ValueError when they are no layout.
        """
        return self.compose(_joined([tiler, tiler.complement(self.size)]))

    def product(self, repeated: Layout) -> Layout:
        """Return ``(self, copies)``: this layout at each place ``repeated`` says, side by side.

        CuTe's logical_product. Raises ValueError when that is no layout.
        """
        free = self.complement(self.size * repeated.cosize)
        return _joined([self, free.compose(repeated)])

    def tile(self, shape: tuple[int, ...]) -> Tiling:
        """Divide mode by mode into tiles of ``shape``; ``layout.tile((2, 2))(0, 1)`` is one of them.

        Raises ValueError for a shape that does not divide the layout's.
        """
        if len(shape) != len(self.parts):
            raise ValueError(f"a tile of {len(shape)} modes for a layout of {len(self.parts)}")
        elements, grid = [], []
        for part, size in zip(self.parts, shape, strict=True):
            if size < 1 or part.size % size:
                raise ValueError(f"a tile of {size} does not divide a mode of {part.size}")
            elements.append(part.compose(Layout(size, 1)))
            grid.append(part.compose(Layout(part.size // size, size)))
        return Tiling(IDENTITY, 0, _joined(elements), _joined(grid))

    def vectorize(self, count: int) -> Tiling:
        """Divide the contiguous mode into vectors of ``count`` elements.

        Raises ValueError when no mode holds runs of ``count`` elements next to each other, or when
        a vector would not start at a multiple of ``count``.
        """
        if count < 1:
            raise ValueError(f"a vector has 1 element or more, not {count}")
        for i, part in enumerate(self.parts):
            run, stride = part.coalesce().modes[0]
            if stride == 1 and run % count == 0:
                vectors = self.tile(tuple(count if j == i else 1 for j in range(len(self.parts))))
                if any(stride % count for size, stride in vectors.grid.modes if size > 1):
                    raise ValueError(f"vectors of {count} do not start at multiples of {count}")
                return vectors
        raise ValueError(f"no mode is made of runs of {count} elements side by side")

    @property
    def notation(self) -> str:
        """The layout as CuTe prints it: shape, colon, stride."""
        return f"{notation(self.shape)}:{notation(self.stride)}"

    def __str__(self) -> str:
        return f"{self.notation}\n{table(self)}"


@dataclass(frozen=True, slots=True)
class ComposedLayout(Pictured):
    """``swizzle(offset + layout(coordinate))``: CuTe's ComposedLayout. ``print`` draws it.

    A tile of a layout is one without a swizzle: the layout of the tile, and the offset it starts at, in
    elements as all offsets.
    """

    swizzle: Swizzle
    offset: int
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
        """One more than the largest offset, swizzled: the elements of memory that it spans."""
        return max(int(self(i)) for i in range(self.size)) + 1

    def __call__(self, *coordinate: Coordinate) -> Offset:
        """Return the swizzled offset of a coordinate."""
        return self.swizzle(self.offset + self.layout(*coordinate))

    def tile(self, shape: tuple[int, ...]) -> Tiling:
        """Divide into tiles as Layout.tile does: swizzled offsets of the whole, tile by tile."""
        return self._behind(self.layout.tile(shape))

    def vectorize(self, count: int) -> Tiling:
        """Divide into vectors as Layout.vectorize does.

        Raises ValueError also when the swizzle or the offset would tear vectors apart.
        """
        vectors = self.layout.vectorize(count)
        if self.swizzle.bits and (1 << self.swizzle.base) % count:
            raise ValueError(f"{self.swizzle.notation} moves elements within vectors of {count}")
        if self.offset % count:
            raise ValueError(f"vectors of {count} do not start at multiples of {count}")
        return self._behind(vectors)

    @property
    def notation(self) -> str:
        """The composition as CuTe prints it, leaving out what is not there."""
        if self.swizzle.bits:
            return f"{self.swizzle.notation} o {self.offset} o {self.layout.notation}"
        return f"{self.offset} o {self.layout.notation}" if self.offset else self.layout.notation

    def __str__(self) -> str:
        return f"{self.notation}\n{table(self)}"

    def _behind(self, tiling: Tiling) -> Tiling:
        return Tiling(self.swizzle, self.offset + tiling.offset, tiling.element, tiling.grid)


@dataclass(frozen=True, slots=True)
class Tiling:
    """A layout cut into equal tiles. Called with the coordinate of a tile it returns that tile.

    ``element`` is the layout within a tile and ``grid`` that of the tiles' first elements, both
    before ``offset`` is added and ``swizzle`` is applied.

    >>> Layout.row_major((2, 6)).tile((2, 2))(0, 1).notation
    '2 o (2,2):(6,1)'
    """

    swizzle: Swizzle
    offset: int
    element: Layout
    grid: Layout

    def __call__(self, *coordinate: int) -> ComposedLayout:
        """Return a tile. Raises IndexError when there is none at ``coordinate``."""
        shape = self.grid.shape if isinstance(self.grid.shape, tuple) else (self.grid.shape,)
        sizes = [product(part) for part in shape]
        if len(coordinate) != len(sizes) or any(
            not 0 <= i < size for i, size in zip(coordinate, sizes, strict=True)
        ):
            count = "x".join(map(str, sizes))
            raise IndexError(f"no tile {coordinate}: there are {count}, counted from 0")
        return ComposedLayout(self.swizzle, self.offset + self.grid(coordinate), self.element)

    @property
    def origins(self) -> ComposedLayout:
        """The offset at which each tile starts."""
        return ComposedLayout(self.swizzle, self.offset, self.grid)


Mapping = Layout | ComposedLayout
"""What can be drawn and asked for offsets."""


def height(layout: Mapping) -> int:
    """Return the size of the first mode, which is drawn downwards."""
    return layout.size if isinstance(layout.shape, int) else product(layout.shape[0])


def table(layout: Mapping) -> str:
    """Draw offsets as CuTe's print_layout does: first mode down, all others across, in a grid."""
    tall = height(layout)
    width = layout.size // tall
    cells = [[str(layout(row + tall * col)) for col in range(width)] for row in range(tall)]
    digits = max(2, *(len(cell) for line in [*cells, [str(width - 1)]] for cell in line))
    edge = max(2, len(str(tall - 1)))
    rule = " " * (edge + 2) + f"+{'-' * (digits + 2)}" * width + "+"
    header = " " * (edge + 2) + " ".join(f"  {col:>{digits}}" for col in range(width))
    lines = [header, rule]
    for row, line in enumerate(cells):
        body = "".join(f"| {cell:>{digits}} " for cell in line)
        lines += [f"{row:>{edge}}  {body}|", rule]
    return "\n".join(lines)


def _flat(modes: Modes) -> Layout:
    """Return the layout of modes in one row; of a single one, without parentheses."""
    if len(modes) == 1:
        return Layout(*modes[0])
    return Layout(tuple(size for size, _ in modes), tuple(stride for _, stride in modes))


def _joined(modes: Sequence[Layout]) -> Layout:
    """Return the layout that has these at its top."""
    return Layout(tuple(mode.shape for mode in modes), tuple(mode.stride for mode in modes))


def _nested(shape: IntTuple, leaves: Iterator[Layout]) -> Layout:
    """Return the layout that nests as ``shape`` does and has a layout in place of each integer."""
    if isinstance(shape, int):
        return next(leaves)
    return _joined([_nested(part, leaves) for part in shape])
