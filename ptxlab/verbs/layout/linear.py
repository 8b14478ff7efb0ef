"""Layouts as Triton's linear ones: fragments and encodings by thread and register, memory by offset."""

from __future__ import annotations

import numpy as np

from ptxlab.errors import PtxlabError
from ptxlab.layouts import linear
from ptxlab.layouts.layout import ComposedLayout, height
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.verbs.layout.layouts import Fragments, LayoutAnswer, Offsets, check_size


def text(answer: LayoutAnswer) -> str:
    """Return an answer as a linear layout, of an instruction one for each operand.

    Raises PtxlabError for what is no layout, ValueError for one that is not linear.
    """
    if isinstance(answer, Fragments):
        lines = {fragment.operand: of_fragment(fragment) for fragment in answer.operands}
        if len(lines) == 1:
            return next(iter(lines.values()))
        return "\n".join(f"#{operand} = {line}" for operand, line in lines.items())
    if isinstance(answer, Offsets) and answer.bases is not None:
        return linear.distributed(*answer.bases)
    if isinstance(answer, Offsets) and answer.element is None and not answer.about:
        return of_memory(answer)
    raise PtxlabError(
        "only a layout and the fragments of an instruction are written as linear layouts",
        hint="as of 64x64, 64x64 --swizzle 128B, m16n8k16 or #ttg.blocked<{...}>",
    )


def of_fragment(fragment: FragmentLayout) -> str:
    """Return which thread and which of its elements is which row and column. Raises ValueError for one that is not linear."""
    if fragment.matrices > 1:
        raise ValueError(f"{fragment.operand} is several matrices at once")
    table = fragment.table().reshape(fragment.threads, -1, 2)
    threads, values = table[:, 0], table[0]
    if (table != threads[:, None] ^ values).any():
        raise ValueError(f"{fragment.operand} is not linear")
    return linear.distributed(linear.bases(threads), linear.bases(values))


def of_memory(answer: Offsets) -> str:
    """Return which offset is which element. Raises ValueError where several share one, or offsets are left out."""
    layout = answer.layout
    check_size(layout)
    offsets = np.asarray(layout(np.arange(layout.size)))
    if (np.sort(offsets) != np.arange(layout.size)).any():
        raise ValueError("offsets that are left out or met twice make no linear layout")
    tall = height(layout)
    index = np.argsort(offsets)
    places = index[:, None] if tall == layout.size else np.stack((index % tall, index // tall), -1)
    swizzle = layout.swizzle if isinstance(layout, ComposedLayout) else None
    reach = 1 << swizzle.bits + swizzle.base + abs(swizzle.shift) if swizzle else 1
    return linear.shared(linear.bases(places), max(16, reach * answer.bits // 8))
