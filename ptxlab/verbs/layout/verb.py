"""``ptxlab layout``: layouts printed, tiled, vectorized, swizzled, and their bank conflicts."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.options import add
from ptxlab.cli.readers import element, integer, positive, several, suggestion, word
from ptxlab.cli.terminal import terminal_width
from ptxlab.errors import PtxlabError

if TYPE_CHECKING:
    from ptxlab.layouts.layout import ComposedLayout, Layout
    from ptxlab.verbs.layout.comparison import Compared
    from ptxlab.verbs.layout.layouts import LayoutAnswer

DESCRIPTION = """\
example:
  ptxlab layout 2x6                                  offsets of a row-major matrix
  ptxlab layout "((2,2),8):((1,16),2)"               any layout, in CuTe's notation
  ptxlab layout 2x6 --tile 2x2 --at 0,1              one tile of it
  ptxlab layout 8x64 --vectorize 8                   where its vectors of 8 elements start
  ptxlab layout 4x8 --swizzle 2,1,2                  CuTe's Swizzle<2,1,2> after it
  ptxlab layout 4x8 --compose "(8,2):(4,2)"          it, after another layout
  ptxlab layout 2x6 --inverse                        from offset to linear index
  ptxlab layout 64x64 --swizzle 128B --code cuda     the swizzled offset, to copy
  ptxlab layout 64x64 --banks ldmatrix,st128         bank conflicts, and what avoids them
  ptxlab layout 64x64 --swizzle 3,3,3 --plan ldmatrix.x4 --at 16,32
                                                     who addresses and who holds what
  ptxlab layout m16n8k16 --dtype bf16                fragments as thread-value layouts
  ptxlab layout m16n8k16 --operand A --format linear as a linear layout of Triton's
  ptxlab layout 8x8 --swizzle 2,1,2 --compare 8x8    which elements lie elsewhere
  ptxlab layout 128x64 --descriptor wgmma --dtype bf16 --swizzle 128B
                                                     a tile for wgmma, and its descriptor
  ptxlab layout 0x4000004000010040 --descriptor wgmma
                                                     a descriptor's fields
  ptxlab layout "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"   what CuTe prints
  ptxlab layout SM80_16x8x16_F32BF16BF16F32_TN       an atom of CuTe's, or all that print_mma says of it
  ptxlab layout "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>"
                                                     of Triton: from (thread, register) to an element

RxC is a row-major matrix; (R,C) alone is column-major, as in CuTe. Offsets count elements."""
OF_LAYOUTS = ("swizzle", "compose", "tile", "vectorize", "inverse", "banks", "plan", "code")
BITS = 16
"""Of an element, unless something says."""

OF_TYPES = ("dtype", "acc", "operand")
OF_DESCRIPTORS = ("major", "address", "field")
"""The options by what they say something about."""


LAYOUTS = """
LAYOUT            a layout, the name or shape of a matrix instruction, or a descriptor
--swizzle B,M,S   swizzle the offsets; 32B, 64B and 128B are the modes of descriptors
--compose LAYOUT  take the layout after this one
--operand NAME    of an instruction this operand only: A, B, C or D
--compare LAYOUT  say where this one and the layout lead elsewhere; exit status 1 where they do
"""
QUESTIONS = """
--tile RxC          cut it into tiles
--vectorize N       cut it into vectors
--inverse           go from offset to linear index
--banks ACCESS,...  count the bank conflicts of a tile in shared memory: ldmatrix, stmatrix (also .trans),
                    ld8 to ld128, st8 to st128 (also .across: neighbouring lanes on neighbouring lines)
--plan FORM         plan one instruction lane by lane, such as ldmatrix.x4.trans
--code cuda|ptx|python
                    the offset of a coordinate as source code, swizzled as the layout is
"""
DETAILS = """
--at I,J      which tile, for --tile; row and column of the first element, for --plan
--across      for --plan: the second matrix lies beside the first, not below it
--bits N      bits of an element (default what a pointer in the layout says, else 16)
--dtype TYPE  type of A and B of an instruction, or of the elements in shared memory
--acc TYPE    type of C and D of an instruction
"""
DESCRIPTORS = """
--descriptor FORMAT  wgmma or tcgen05: the matrix descriptor of a tile ROWSxK of m or n times k; kind::f16,
                     kind::mxf4 and so on: the instruction descriptor of MxN; of a number 0x...: its fields
--major k|mn         along which direction a tile is contiguous (default k); A.B for an instruction
--address N          where the tile starts (default 0)
--field NAME=VALUE   any other field by its name, such as "negate a=yes"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add(parser, LAYOUTS, swizzle=swizzle, operand=str.upper)
    question = parser.add_mutually_exclusive_group()
    tile = several(positive, "ROWSxCOLUMNS, such as 2x2", separator="x")
    add(question, QUESTIONS, tile=tile, vectorize=positive, code=("cuda", "ptx", "python"))
    add(parser, DETAILS, at=element, bits=positive)
    group = parser.add_argument_group("descriptors of wgmma and tcgen05")
    add(group, DESCRIPTORS, address=word, field=[str])
    add_common(parser, formats=("svg", "png", "linear"))


def swizzle(text: str) -> str | tuple[int, ...]:
    """Read ``B,M,S`` or the name of a mode."""
    from ptxlab.matrix.canonical import MODES  # here, because it brings numpy, which help can spare

    if "," in text:
        return several(integer, "3 integers B,M,S, such as 3,1,3", counts=(3,))(text)
    if text in MODES:
        return text
    near = suggestion(text, MODES)
    raise ValueError(f"{text!r} is neither 3 integers B,M,S nor one of {', '.join(MODES)}{near}")


def execute(args: argparse.Namespace) -> int:
    from ptxlab.verbs.layout import linear
    from ptxlab.verbs.layout.comparison import Compared

    try:
        result = answer(args) if args.compare is None else compared(args)
        differ = isinstance(result, Compared) and len(result.differing) > 0
        written = linear.text(result) if args.format == "linear" else ""
    except (ValueError, IndexError) as error:
        raise PtxlabError(f"layout {args.layout}: {error}", hint="ptxlab layout --help") from error
    width = terminal_width(args)
    emit(args, lambda: result.text(width), result.as_json, svg=result.svg, linear=written)
    return int(differ)


def compared(args: argparse.Namespace) -> Compared:
    """Hold the layout against another, of which the options are not: it is as it is written."""
    from ptxlab.verbs.layout.comparison import compare

    operand = args.operand if names_instruction(args.compare) else None
    plain = {"swizzle": None, "compose": None, "operand": operand, "layout": args.compare}
    other = argparse.Namespace(**vars(args) | plain)
    return compare((args.layout, args.compare), (answer(args), answer(other)))


def answer(args: argparse.Namespace) -> LayoutAnswer:
    """Return what was asked for. Raises ValueError or IndexError for a layout that has no answer."""
    from ptxlab.layouts.shared_memory import ACCESSES
    from ptxlab.matrix import matrix_plan
    from ptxlab.matrix.catalog import multiplication
    from ptxlab.numbers.types import TYPES
    from ptxlab.verbs.layout import descriptors, foreign, shared_memory
    from ptxlab.verbs.layout.layouts import Fragments, LayoutCode, Offsets, known
    from ptxlab.verbs.layout.notation import element_bits

    if args.dtype and not args.descriptor and (args.banks or args.plan or args.swizzle):
        args.bits, args.dtype = args.bits or TYPES[args.dtype].bits, None
    args.bits = args.bits or element_bits(args.layout) or BITS
    if atom := foreign.instruction(args.layout):
        return Fragments(atom, args.operand)
    if values := foreign.thread_values(args.layout):
        bases = foreign.encoding_bases(args.layout)
        return Offsets(values, args.bits, about=foreign.THREAD_VALUES, bases=bases)
    check_options(args)
    if args.descriptor:
        return descriptors.describe(args)
    if names_instruction(args.layout):
        return Fragments(multiplication(args.layout, args.dtype, args.acc), args.operand)
    plain, layout = read(args)
    if args.tile:
        tiling = layout.tile(args.tile)
        if args.at:
            return Offsets(tiling(*args.at), args.bits)
        return Offsets(tiling.origins, args.bits, tiling.element)
    if args.vectorize:
        vectors = layout.vectorize(args.vectorize)
        return Offsets(vectors.origins, args.bits, vectors.element)
    if args.code:
        return LayoutCode(layout, args.code)
    if args.inverse:
        if layout is not plain:
            raise ValueError(
                "the inverse of a swizzle or an offset is no layout; invert it without"
            )
        return Offsets(plain.right_inverse(), args.bits)
    if args.banks or args.plan:
        shared_memory.check_shared(layout, args.bits)
    if args.banks:
        accesses = [known(name, ACCESSES, "access") for name in args.banks.split(",")]
        return shared_memory.banks(plain, layout, args.bits, accesses)
    if args.plan:
        form = known(args.plan, matrix_plan.FORMS, "instruction")
        corner = args.at or (0, 0)
        plan = matrix_plan.plan(form, layout, args.bits, corner, args.across)
        return shared_memory.Planned(layout, args.bits, plan)
    return Offsets(layout, args.bits)


def read(args: argparse.Namespace) -> tuple[Layout, Layout | ComposedLayout]:
    from ptxlab.layouts.layout import ComposedLayout, Layout, Swizzle
    from ptxlab.matrix.canonical import MODES
    from ptxlab.verbs.layout.notation import parse_layout

    layout = parse_layout(args.layout)
    plain = layout if isinstance(layout, Layout) else layout.layout
    if args.compose:
        first = parse_layout(args.compose)
        if not isinstance(first, Layout):
            raise ValueError(
                f"it cannot be taken after {first.notation}, which is swizzled or offset"
            )
        plain = plain.compose(first)
    if isinstance(layout, ComposedLayout):
        if args.swizzle:
            raise ValueError("it is swizzled or offset as it is; --swizzle is for plain layouts")
        return plain, ComposedLayout(layout.swizzle, layout.offset, plain)
    if isinstance(args.swizzle, str):
        swizzle = MODES[args.swizzle].of_elements(args.bits)
    else:
        swizzle = Swizzle(*args.swizzle or (0, 0, 0))
    return plain, swizzle.compose(plain) if args.swizzle else plain


def names_instruction(text: str) -> bool:
    """Say whether ``text`` is the name or shape of an instruction and not a layout."""
    return text[:1].isalpha() and not re.match(r"Sw?<|[gs]mem_ptr\[", text)


def check_options(args: argparse.Namespace) -> None:
    """Raise PtxlabError for options that say nothing about the question asked."""
    if args.descriptor:
        what, apt = "descriptors", {"swizzle", *OF_TYPES, *OF_DESCRIPTORS}
    elif names_instruction(args.layout):
        what, apt = "the fragments of an instruction", {*OF_TYPES}
    else:
        what, apt = "this question", {*OF_LAYOUTS}
        apt |= {"at"} if args.tile or args.plan else set()
        apt |= {"across"} if args.plan else set()
    given = [
        option
        for option in (*OF_LAYOUTS, *OF_TYPES, *OF_DESCRIPTORS, "at", "across")
        if getattr(args, option)
    ]
    if idle := [option for option in given if option not in apt]:
        raise PtxlabError(
            f"--{idle[0]} says nothing about {what}", hint="ptxlab layout --help has examples"
        )
    if given and args.descriptor and args.layout.lower().startswith("0x"):
        raise PtxlabError(
            f"--{given[0]} says nothing about a descriptor that is given",
            hint="a number 0x... is read back as it is",
        )
