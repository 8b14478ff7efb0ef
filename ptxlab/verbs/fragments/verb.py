"""``ptxlab fragments``: which lane holds which element, shown and verified on a device."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptxlab.cli import readers
from ptxlab.cli.common import add_common, add_workers, emit, open_device
from ptxlab.cli.options import add
from ptxlab.cli.terminal import terminal_width, wants_colour
from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.options import add_launch_options

if TYPE_CHECKING:
    from ptxlab.matrix.form import Form
    from ptxlab.verbs.fragments.runs import Selection

DESCRIPTION = """\
example:
  ptxlab fragments --op m16n8k16 --dtype bf16
  ptxlab fragments --op m16n8k16 --dtype f16 --acc f32 --element "D[5,6]"
  ptxlab fragments --op m16n8k16 --dtype bf16 --full
  ptxlab fragments --op m16n8k16 --dtype bf16 --fill ones --lane 5
  ptxlab fragments --op m16n8k16 --dtype bf16 --fill A=row-col/4 --fill B=mine.npy --full
  ptxlab fragments --op ldmatrix.x4.trans
  ptxlab fragments --op m16n8k32 --dtype s8 --lane 6 --format svg -o m16n8k32.svg
  ptxlab fragments --html -o atlas.html
  ptxlab fragments --op m16n8k32 --dtype s8 --trace 3,5
  ptxlab fragments --op m16n8k16 --dtype f16 --acc f32 --moves
  ptxlab fragments --op wgmma.m64n128k16.ss --dtype bf16
  ptxlab fragments --all
  ptxlab fragments --ptx mine.cu --block 32 --arg "a=randn(64x64,f16)" --arg "b=randn(64x8,f16)"

A warp, or warpgroup, runs the instruction with its registers dumped. Handwritten PTX compares every element of A,
B, C and D with the layouts of the PTX ISA, and D with a product in NumPy; of other instructions
generated PTX does it with one-hot probes. The exit status is 1 when anything differs. B is indexed k,n.

--ptx FILE looks at every mma of a program of one's own, launched as ptxlab run does it: which tile of which
argument A, B and C hold, and what of it is in the wrong register, lane or half; and whether D is the product
of what they held. Numbers tell the elements apart, so arrays of random or different ones say most.

--all does it for every instruction: on the GPU, or each on an emulator of the lowest target that has it.
Of wgmma it runs two n of each line, or all with --full. What nothing here runs is assembled for its targets.

svg, png, csv, markdown and latex draw the layout alone, of any instruction, and run nothing. html is a page
with all instructions, to hover, search and link to, opened at the one that was chosen."""
DEFAULT = "m16n8k16"
LANGUAGES = ("cuda", "ptx", "python")
DRAWN = ("csv", "markdown", "svg", "latex", "html", "png")


WHICH = f"""
--op NAME       a shape ({DEFAULT}, the default), or a name or parts of one: ldmatrix.x4.trans
--dtype TYPE    type of A and B, such as bf16 or s8.u8
--acc TYPE      type of C and D, such as f32
--all           verify every instruction
--family NAME   of --all only this family, such as mma
--fill NUMBERS  what operands hold: numbered, row * columns + column (default; B a part of it where sums of f16
                would be infinite), or ones; or numbers of one's own,
                A=mine.npy, B=randn(16x8,bf16), C=row-col/4, again for more
--operand NAME  show this operand only: A, B, C or D
--full          show what every register of every lane held; of --all, run wgmma of every n
"""
NARROW = """
--lane L              show this lane only
--element D[ROW,COL]  say who holds this element, and how it is loaded or stored; ROW,COL of every operand
"""
PROGRAM = """
--ptx FILE  look at the mma of this program, a .ptx or .cu, in place of ptxlab's own
--at PLACE  of --ptx only these: a line, or an instruction (mma.sync)
"""
QUESTIONS = f"""
--trace ROW,COL  which registers of A, B and C feed this element of D
--register NAME  what each lane holds in a register, such as a2, by bits
--formula        the closed formulas, from place to element and back
--code {"|".join(LANGUAGES)}
                 the index arithmetic and its inverse as source code
--moves NEXT     the moves from D to operand A of NEXT (a name, or parts of one such as m16n8k32.e4m3; by
                 default the same instruction), and their PTX
--observed CHIP  the fragments of wmma, which PTX leaves open, as they were seen on a chip such as sm_70
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add(parser, WHICH, family=readers.family, fill=[str], operand=str.upper)
    narrow = parser.add_mutually_exclusive_group()
    add(narrow, NARROW, lane=readers.count, element=readers.element_of)
    add(parser, PROGRAM)
    add_workers(parser)
    add_launch_options(parser)
    group = parser.add_argument_group("questions that run nothing (text or json)")
    alternatives = group.add_mutually_exclusive_group()
    following = {"nargs": "?", "const": ""}
    add(alternatives, QUESTIONS, trace=readers.element_of_d, code=LANGUAGES, moves=following)
    add_common(parser, DRAWN)


def execute(args: argparse.Namespace) -> int:
    """Run, print, and return 0 when all is as predicted, 1 when not."""
    if args.all:
        return verify_all(args)
    if args.family is not None:
        raise PtxlabError("--family goes with --all", hint="--op names an instruction")
    from ptxlab.fragments.verify import verify
    from ptxlab.verbs.fragments import filling, questions
    from ptxlab.verbs.fragments import text as view
    from ptxlab.view import colour

    instruction = chosen(args)
    selection = selected(args)
    selection.check(instruction)
    if asked(args):
        return questions.answer(args, instruction, selection)
    if args.format in DRAWN:
        return draw(args, instruction, selection)
    if args.ptx is not None:
        from ptxlab.verbs.fragments import program

        if program.is_of_its_own(args, bool(launched(args))):
            return program.run(args)
    elif given := launched(args):
        raise PtxlabError(f"{given[0]} goes with --ptx", hint="--ptx FILE names a program to run")
    paint = colour.on_terminal() if wants_colour(args) else colour.plain
    fill = filling.fill(args.fill, instruction, args.seed)
    how: dict[str, Any] = {"full": args.full, "width": terminal_width(args)}
    with closing(open_device(on_a_target_that_has(instruction, args))) as device:
        report = verify(device, instruction, fill, args.ptx)
    emit(
        args,
        lambda: view.text(report, selection, paint, **how),
        lambda: view.as_json(report, selection),
    )
    return 0 if report.passed else 1


def launched(args: argparse.Namespace) -> list[str]:
    """Return the options that say which instructions of a program are looked at, and how it is launched."""
    names = ("at", "kernel", "arg", "grid", "block", "cluster", "shared", "set", "cooperative")
    return [f"--{name}" for name in names if getattr(args, name)]


def selected(args: argparse.Namespace) -> Selection:
    """Return what --operand, --lane and --element choose."""
    from ptxlab.verbs.fragments.runs import Selection

    named, element = args.element or (None, None)
    if None not in (named, args.operand) and named != args.operand:
        raise PtxlabError(f"--element is of {named}, --operand of {args.operand}")
    return Selection(args.lane, element, named or args.operand)


def chosen(args: argparse.Namespace) -> Form:
    from ptxlab.emulator.prepare.row import ROWS
    from ptxlab.matrix.catalog import UnknownInstruction, find, opcodes
    from ptxlab.matrix.form import AsyncInstruction

    op = args.op or DEFAULT
    try:
        form = find(op, args.dtype, args.acc)
    except UnknownInstruction:
        import ptxlab.emulator  # noqa: F401  (registers every operation)

        if op.partition(".")[0] in set(ROWS) - {name.partition(".")[0] for name in opcodes()}:
            raise PtxlabError(
                f"{op} is no matrix instruction, and has no fragments",
                hint=f"ptxlab explain {op} says what it does",
            ) from None
        raise
    if isinstance(form, AsyncInstruction):
        raise PtxlabError(
            f"{form.name} has no fragments", hint=f"ptxlab explain {form.name} says what it has"
        )
    return form


def on_a_target_that_has(instruction: Form, args: argparse.Namespace) -> argparse.Namespace:
    """Return ``args`` with the lowest target that has it, if the emulator's usual one has not.

    A GPU is what it is: asked for by name, it says itself what it lacks.
    """
    from ptxlab.isa.targets import DEFAULT_TARGET

    if args.arch or args.device.startswith("cuda") or not instruction.targets:
        return args
    if DEFAULT_TARGET in instruction.targets:
        return args
    return argparse.Namespace(**{**vars(args), "arch": instruction.targets[0]})


def asked(args: argparse.Namespace) -> bool:
    """Say whether the command line asks a question that the layouts alone answer."""
    return bool(args.formula) or any(
        option is not None
        for option in (args.trace, args.register, args.code, args.moves, args.observed)
    )


def verify_all(args: argparse.Namespace) -> int:
    """Verify every instruction, or those of a family, and return 0 when all is as predicted."""
    single = ("op", "dtype", "acc", "lane", "element", "operand", "ptx")
    if (
        asked(args)
        or args.format in DRAWN
        or any(getattr(args, name) is not None for name in single)
    ):
        raise PtxlabError(
            "--all verifies every instruction, and shows none",
            hint="it goes with --family, --full, --device, --arch and --json",
        )
    from ptxlab.verbs.fragments import sweep

    return sweep.run(args)


def draw(args: argparse.Namespace, instruction: Form, selection: Selection) -> int:
    """Draw the layout of ``instruction`` in a format that needs no device; always return 0."""
    from ptxlab.matrix.catalog import MULTIPLICATIONS
    from ptxlab.verbs.fragments import atlas, svg, tables
    from ptxlab.verbs.fragments.svg_operands import operand_svg

    if args.ptx is not None:
        raise PtxlabError(
            f"--format {args.format} draws the layout and runs no program",
            hint="--ptx goes with --format text and json",
        )
    if args.operand is not None and args.format == "html":
        raise PtxlabError("--format html draws all operands", hint="leave out --operand")
    emit(
        args,
        "",
        {},
        csv=lambda: tables.csv(instruction, selection),
        markdown=lambda: tables.markdown(instruction, selection),
        latex=lambda: tables.latex(instruction, selection),
        svg=lambda: (
            svg.svg(instruction, selection)
            if args.operand is None
            else operand_svg(instruction.operand(args.operand), replace(selection, operand=None))
        ),
        html=lambda: atlas.page(MULTIPLICATIONS, instruction),
    )
    return 0
