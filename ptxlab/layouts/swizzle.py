"""Swizzles, layouts behind a swizzle or an offset, and tilings.

Source: NVIDIA CUTLASS, ``cute/swizzle.hpp`` and ``cute/layout_composed.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptxlab.isa.notebook import Pictured
from ptxlab.layouts.int_tuple import Coordinate, IntTuple, Offset, product

if TYPE_CHECKING:
    from ptxlab.layouts.layout import Layout


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


@dataclass(frozen=True, slots=True)
class ComposedLayout(Pictured):
    """``swizzle(offset + layout(coordinate))``: CuTe's ComposedLayout. ``print`` draws it.

    A tile of a layout is one without a swizzle: the layout of the tile, and the offset it starts at.
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
        """One more than the largest offset."""
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
        from ptxlab.layouts.layout import table

        return f"{self.notation}\n{table(self)}"

    def _behind(self, tiling: Tiling) -> Tiling:
        return Tiling(self.swizzle, self.offset + tiling.offset, tiling.element, tiling.grid)


@dataclass(frozen=True, slots=True)
class Tiling:
    """A layout cut into equal tiles. Called with the coordinate of a tile it returns that tile.

    ``element`` is the layout within a tile and ``grid`` that of the tiles' first elements, both
    before ``offset`` is added and ``swizzle`` is applied.

    >>> from ptxlab.layouts.layout import Layout
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
