"""mma.sync and wmma.mma as native code: from the registers of warps to those of D.

The function is that of a task of ``ptxlab.native.cores`` of so many warps. Its words are where the numbers
of the warps that take part are, or null for all, and the objects that hold registers, of A, B, C, the metadata
of a sparse A, the scales of A and B, and D one after the other. A register is an array of numpy, one word for each
thread. Before metadata that is not defined it says that it cannot.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ptxlab.isa.targets import WARP, Target
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import ROWS, Metadata
from ptxlab.native.cores import HEADER
from ptxlab.native.tensor_core.fragments import lines, order
from ptxlab.native.tensor_core.matrices import NAME, Matrices, fragment
from ptxlab.native.tensor_core.steps import depth, steps
from ptxlab.native.tensor_core.terms import Chunks
from ptxlab.native.text import ModuleFunction
from ptxlab.native.value import VectorValue, numbers


def function(
    form: MatrixInstruction, target: Target, selector: int = 0, ids: Sequence[int] = ()
) -> ModuleFunction | None:
    """Return the function of ``form`` on ``target``, None where it has no native one.

    ``selector`` is that of a sparse A, ``ids`` byte-id and thread-id of A's scales and B's.
    """
    arithmetic = steps(form, target)
    layouts = [form.operand(name) for name in "ABCD"] if arithmetic else []
    if arithmetic is None or not all(lines(layout) for layout in layouts):
        return None
    metadata, scales = form.metadata, form.scales
    blocks = scales[0].blocks if scales else 1
    chunks = Chunks.of_metadata(metadata) if metadata else None
    matrices = Matrices(arithmetic, form.m, form.n, depth(form), chunks=chunks, blocks=blocks)
    code = matrices.code
    task, start, end = code.task()
    warps, objects = task.address(HEADER), task.at(HEADER + 1, 8)
    number = itertools.count()
    counts = [layout.registers_per_lane for layout in layouts]
    counts[3:3] = [bool(metadata), len(scales)]
    a_held, b_held, c_held, which, factors, d_held = (
        [objects.array(next(number)) for _ in range(count)] for count in counts
    )
    everyone = warps.is_("eq", 0)
    with code.for_range(start, end) as index:
        # Where there is no list, what is read in its place does not count.
        listed = everyone.choose(objects, warps.at(index, 8)).word(0)
        warp = everyone.choose(index, listed)

        def at(held: Sequence[VectorValue], layout: FragmentLayout) -> list[VectorValue]:
            return [address.at(warp, WARP * layout.register_bits // 8) for address in held]

        a, b, c, d = map(at, (a_held, b_held, c_held, d_held), layouts)
        if metadata:
            [word] = (register(address, warp) for address in which)
            keep_metadata(matrices, metadata, selector, word)
        for side, (scale, address) in enumerate(zip(scales, factors, strict=True)):
            _keep_scales(matrices, side, scale, ids[2 * side :][:2], register(address, warp))
        for line, words in fragment(layouts[0], a):
            matrices.keep_left(words, layouts[0].bits, line.inner, line.block)
        for line, words in fragment(layouts[1], b):
            first = line.block * words.lanes
            matrices.keep_right(words, layouts[1].bits, line.inner, first)
        matrices.begin(layouts[2], c)
        matrices.add()
        matrices.add_last(layouts[2], c)
        matrices.end(layouts[3], d)
    return code.function(NAME)


def register(address: VectorValue, warp: VectorValue) -> VectorValue:
    """Return what the lanes of a warp have in a register."""
    return address.at(warp, WARP * 4).load("i32", WARP, align=4)


def _keep_scales(
    matrices: Matrices, side: int, scale: Scale, ids: Sequence[int], word: VectorValue
) -> None:
    for block in range(scale.blocks):
        places = [scale.place(line, block, *ids) for line in order(scale.lines)]
        moved = word >> 8 * places[0][1]
        matrices.keep_scales(side, moved.shuffle([lane for lane, _ in places]), block)


def keep_metadata(
    matrices: Matrices,
    metadata: Metadata,
    selector: int,
    word: VectorValue,
    product: VectorValue | int = 0,
) -> None:
    """Keep what a warp's register of metadata says of its rows; return from the function where that is undefined."""
    code = matrices.code
    allowed = numbers(code, "i32", [sum(1 << value for value in metadata.allowed)] * ROWS)
    good = None
    for chunk in range(metadata.chunks):
        places = [metadata.place(row, chunk, selector) for row in order(ROWS)]
        shifts = numbers(code, "i32", [shift for _, shift in places])
        value = (word.shuffle([lane for lane, _ in places]) >> shifts) & 15
        known = allowed >> value
        good = known if good is None else good & known
        matrices.keep_units(value, chunk, product=product)
    assert good is not None
    with code.when((good & 1).is_("ne", 0).all().is_("eq", 0)):
        code.ret(1)
