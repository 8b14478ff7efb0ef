"""mma.sync and wmma.mma as native code: from the registers of warps to those of D.

The function is that of a task of ``ptxlab.native.cores`` of so many warps. Its words are where the numbers
of the warps that take part are, or null for all, and the objects that hold registers, of A, B, C and D one
after the other. A register is an array of numpy, one word for each thread.
"""

from __future__ import annotations

from ptxlab.isa.targets import WARP, Target
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.native.cores import HEADER
from ptxlab.native.tensor_core.fragments import lines
from ptxlab.native.tensor_core.matrices import NAME, Matrices, fragment
from ptxlab.native.tensor_core.steps import steps
from ptxlab.native.text import ModuleFunction


def function(form: MatrixInstruction, target: Target) -> ModuleFunction | None:
    """Return the function of ``form`` on ``target``, None where it has no native one."""
    arithmetic = steps(form, target)
    layouts = [form.operand(name) for name in "ABCD"] if arithmetic else []
    if arithmetic is None or not all(lines(layout) for layout in layouts):
        return None
    depth = form.k // 32 if form.a_type == "b1" else form.k
    matrices = Matrices(arithmetic, form.m, form.n, depth)
    code = matrices.code
    task, start, end = code.task()
    warps, objects = task.address(HEADER), task.at(HEADER + 1, 8)
    numbers = iter(range(sum(layout.registers_per_lane for layout in layouts)))
    held = [
        [objects.array(next(numbers)) for _ in range(layout.registers_per_lane)]
        for layout in layouts
    ]
    everyone = warps.is_("eq", 0)
    with code.for_range(start, end) as index:
        # Where there is no list, what is read in its place does not count.
        listed = everyone.choose(objects, warps.at(index, 8)).word(0)
        warp = everyone.choose(index, listed)
        a, b, c, d = (
            [address.at(warp, WARP * layout.register_bits // 8) for address in addresses]
            for layout, addresses in zip(layouts, held, strict=True)
        )
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
