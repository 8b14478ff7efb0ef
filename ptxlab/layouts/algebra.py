"""The algebra of layouts, on modes: (size, stride) pairs, the first one running fastest.

Everything here is a function from modes to modes, so that each rule stands alone; the class Layout
gives the results their nesting back. What is no layout is refused with ValueError.

Source: NVIDIA CUTLASS documentation, "CuTe Layout Algebra".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptxlab.layouts.int_tuple import Modes


def coalesce(modes: Modes) -> Modes:
    """Return the fewest modes with the same offsets in the same order; a single element is (1, 0)."""
    merged: list[tuple[int, int]] = []
    for size, stride in modes:
        if size == 1:
            continue
        if merged and merged[-1][0] * merged[-1][1] == stride:
            merged[-1] = (merged[-1][0] * size, merged[-1][1])
        else:
            merged.append((size, stride))
    return tuple(merged) or ((1, 0),)


def compose(outer: Modes, inner: Modes) -> tuple[Modes, ...]:
    """Return the modes of ``outer`` after ``inner``, those that come of each mode of ``inner`` apart.

    The last mode of ``outer`` goes on for as long as it is asked to. Raises ValueError when steps of
    ``inner`` lead from inside a mode of ``outer`` into the next, where no layout can follow them.
    """
    modes = coalesce(outer)
    room = [size - 1 for size, _ in modes[:-1]]  # how many more steps stay inside each mode
    composed = []
    for size, stride in inner:
        pieces = []
        for mode, count, step in _pieces([size for size, _ in modes], size, stride):
            pieces.append((count, step * modes[mode][1]))
            if mode < len(room):
                room[mode] -= (count - 1) * step
        composed.append(tuple(pieces))
    if any(left < 0 for left in room):
        raise ValueError("the modes of the inner layout together step beyond a mode of the outer")
    return tuple(composed)


def _pieces(sizes: list[int], size: int, stride: int) -> list[tuple[int, int, int]]:
    """Split one mode over modes of ``sizes``: (mode, how many steps in it, how far each)."""
    if size == 1 or stride == 0:
        return [(0, size, 0)]
    pieces: list[tuple[int, int, int]] = []
    left, step = size, stride
    for mode, mode_size in enumerate(sizes[:-1]):
        if (left - 1) * step < mode_size:
            return [*pieces, (mode, left, step)]
        if step % mode_size == 0:
            step //= mode_size
            continue
        here = mode_size // step
        if here * step != mode_size or left % here:
            raise ValueError(f"{size} steps of {stride} do not fit into a mode of size {mode_size}")
        pieces.append((mode, here, step))
        left, step = left // here, 1
    return [*pieces, (len(sizes) - 1, left, step)]


def complement(modes: Modes, bound: int) -> Modes:
    """Return the modes that fill the gaps of ``modes``, and repeat it, up to ``bound`` elements.

    Raises ValueError when elements overlap or a gap is no whole multiple of what lies inside it.
    """
    filled = 1
    gaps: list[tuple[int, int]] = []
    for stride, size in sorted((stride, size) for size, stride in modes if size > 1 and stride):
        if stride % filled:
            raise ValueError(
                f"elements {stride} apart leave no whole gaps between runs of {filled}"
            )
        gaps.append((stride // filled, filled))
        filled = stride * size
    return coalesce((*gaps, (-(-bound // filled), filled)))


def right_inverse(modes: Modes) -> Modes:
    """Return R with L(R(i)) = i for as many i from 0 up as L reaches without a gap."""
    inverse: list[tuple[int, int]] = []
    reached = 1
    for stride, size, index in sorted(_with_index(modes)):
        if stride == reached:
            inverse.append((size, index))
            reached *= size
    return coalesce(tuple(inverse))


def left_inverse(modes: Modes) -> Modes:
    """Return R with R(L(i)) = i for every i. Raises ValueError when L has none that is a layout."""
    inverse: list[tuple[int, int]] = []
    run, earlier, size = 1, 0, 1
    for stride, next_size, index in sorted(_with_index(coalesce(modes))):
        if stride < run * size or stride % run:
            raise ValueError("no left inverse: offsets repeat, or a gap is no multiple of a run")
        inverse.append((stride // run, earlier))
        run, earlier, size = stride, index, next_size
    return coalesce((*inverse, (size, earlier)))


def of_offsets(offsets: Sequence[int]) -> Modes:
    """Return the modes whose offsets in elements, in linear order, are ``offsets``.

    Raises ValueError when there are none: not from 0 up in equal steps, nested in equal steps.
    """
    modes: list[tuple[int, int]] = []
    rest = list(map(int, offsets))
    while len(rest) > 1:
        stride = rest[1] - rest[0]
        size = next((i for i, value in enumerate(rest) if value != rest[0] + i * stride), len(rest))
        modes.append((size, stride))
        rest = rest[::size]
    layout = coalesce(tuple(modes))
    if list(map(int, offsets)) != enumerate_offsets(layout) or any(s < 0 for _, s in layout):
        raise ValueError("these offsets are those of no layout")
    return layout


def enumerate_offsets(modes: Modes) -> list[int]:
    """Return all offsets in linear order."""
    offsets = [0]
    for size, stride in modes:
        offsets = [i * stride + offset for i in range(size) for offset in offsets]
    return offsets


def _with_index(modes: Modes) -> list[tuple[int, int, int]]:
    """Return (stride, size, linear index one step of it is worth) of the modes that have steps."""
    sizes = [size for size, _ in modes]
    return [(stride, size, prod(sizes[:i])) for i, (size, stride) in enumerate(modes) if size > 1]
