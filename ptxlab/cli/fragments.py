"""``ptxlab fragments``: which lane holds which element, shown and verified on a device."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from ptxlab.cli.common import add_common, emit, open_device, wants_colour
from ptxlab.cli.questions import add_questions, answer, asked
from ptxlab.errors import PtxlabError

if TYPE_CHECKING:
    from ptxlab.fragments import Selection
    from ptxlab.isa import MatrixInstruction

NAME = "fragments"
SUMMARY = "dump, verify, query and draw the fragment layouts of a matrix instruction"
DESCRIPTION = """\
example:
  ptxlab fragments --op m16n8k16 --dtype bf16
  ptxlab fragments --op m16n8k16 --dtype f16 --acc f32 --element 3,9
  ptxlab fragments --op m16n8k16 --dtype bf16 --fill ones --lane 5
  ptxlab fragments --op m16n8k32 --dtype s8 --lane 6 --format svg -o m16n8k32.svg
  ptxlab fragments --html -o atlas.html
  ptxlab fragments --op m16n8k32 --dtype s8 --trace 3,5
  ptxlab fragments --op m16n8k16 --dtype f16 --acc f32 --moves

One warp runs the instruction in handwritten PTX with its registers dumped. Every element of A, B, C
and D is compared with the layouts of the PTX ISA, and D with a product in NumPy; the exit status is
1 when anything differs. B is indexed k,n.

svg, csv, markdown and latex draw the layout alone, of any instruction, and run nothing. html is a page
with all instructions, to hover, search and link to, opened at the one that was chosen."""
DRAWN = ("csv", "markdown", "svg", "latex", "html")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "--op",
        default="m16n8k16",
        metavar="NAME",
        help="a shape (m16n8k16, the default) or a full instruction name",
    )
    parser.add_argument("--dtype", metavar="TYPE", help="type of A and B: bf16 (default) or f16")
    parser.add_argument("--acc", metavar="TYPE", help="type of C and D: f32, or f16 for f16 inputs")
    parser.add_argument(
        "--fill",
        choices=("numbered", "ones"),
        default="numbered",
        help="what A and B hold: row * columns + column (default), or ones",
    )
    narrow = parser.add_mutually_exclusive_group()
    narrow.add_argument("--lane", type=int, metavar="L", help="show this lane only")
    narrow.add_argument(
        "--element", type=element, metavar="ROW,COL", help="say who holds this element"
    )
    parser.add_argument(
        "--ptx",
        metavar="FILE",
        help="look at this program in place of ptxlab's own: one kernel with the parameters "
        "a, b, d, k of ptx/mma_m16n8k16_*.ptx, and one mma",
    )
    add_questions(parser)
    add_common(parser, DRAWN)
    parser.add_argument(
        "--html", dest="format", action="store_const", const="html", help="same as --format html"
    )


def element(text: str) -> tuple[int, int]:
    """Read ``ROW,COL``."""
    row, comma, col = text.partition(",")
    if not (comma and row.strip().isdecimal() and col.strip().isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not ROW,COL, such as 3,9")
    return int(row), int(col)


def execute(args: argparse.Namespace) -> int:
    """Run, print, and return 0 when all is as predicted, 1 when not."""
    from ptxlab.fragments import Selection, verify
    from ptxlab.isa import find
    from ptxlab.view import colour, fragments

    instruction = find(args.op, args.dtype, args.acc)
    selection = Selection(args.lane, args.element)
    selection.check(instruction)
    if asked(args):
        return answer(args, instruction, selection)
    if args.format in DRAWN:
        return draw(args, instruction, selection)
    with closing(open_device(args)) as device:
        report = verify(device, instruction, args.fill, args.ptx)
    paint = colour.on_terminal() if wants_colour(args) else colour.plain
    emit(
        args,
        lambda: fragments.text(report, selection, paint),
        fragments.as_json(report, selection),
    )
    return 0 if report.passed else 1


def draw(args: argparse.Namespace, instruction: MatrixInstruction, selection: Selection) -> int:
    """Draw the layout of ``instruction`` in a format that needs no device; always return 0."""
    from ptxlab.isa import INSTRUCTIONS
    from ptxlab.view import atlas, svg, tables

    if args.ptx is not None:
        raise PtxlabError(
            f"--format {args.format} draws the layout and runs no program",
            hint="--ptx goes with --format text and json",
        )
    marked = svg.nothing if selection.everything else selection.has
    emit(
        args,
        "",
        {},
        csv=lambda: tables.csv(instruction, selection.has),
        markdown=lambda: tables.markdown(instruction, selection.has),
        latex=lambda: tables.latex(instruction, selection.has),
        svg=lambda: svg.svg(instruction, marked),
        html=lambda: atlas.page(INSTRUCTIONS, instruction),
    )
    return 0
