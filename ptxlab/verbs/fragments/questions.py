"""The questions of ``ptxlab fragments`` that the layouts alone answer, without a run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ptxlab.cli.common import emit, wants_colour
from ptxlab.errors import PtxlabError

if TYPE_CHECKING:
    from ptxlab.fragments.query import Selection
    from ptxlab.matrix.form import Form
    from ptxlab.matrix.multiplication import MatrixInstruction

LANGUAGES = ("cuda", "ptx", "python")
_SAME = "the same"
Answer = tuple[Callable[[], str], dict[str, Any]]


def add_questions(parser: argparse.ArgumentParser) -> None:
    """Add one option a question."""
    group = parser.add_argument_group(
        "questions that run nothing (text or json)"
    ).add_mutually_exclusive_group()
    group.add_argument(
        "--trace",
        metavar="ROW,COL",
        help="which registers of A, B and C feed this element of D",
    )
    group.add_argument(
        "--register", metavar="NAME", help="what each lane holds in a register, such as a2, by bits"
    )
    group.add_argument(
        "--formula", action="store_true", help="the closed formulas, from place to element and back"
    )
    group.add_argument(
        "--code",
        choices=LANGUAGES,
        metavar="|".join(LANGUAGES),
        help="the index arithmetic and its inverse as source code",
    )
    group.add_argument(
        "--moves",
        nargs="?",
        const=_SAME,
        metavar="NEXT",
        help="the moves from D to operand A of NEXT (a name, or parts of one such as m16n8k32.e4m3; "
        "by default the same instruction), and their PTX",
    )


def asked(args: argparse.Namespace) -> bool:
    """Say whether the command line asks one of these questions."""
    return bool(args.formula) or any(
        option is not None for option in (args.trace, args.register, args.code, args.moves)
    )


def answer(args: argparse.Namespace, instruction: Form, selection: Selection) -> int:
    """Answer the question and return 0."""
    if args.format not in ("text", "json"):
        raise PtxlabError(
            f"--format {args.format} draws a layout", hint="a question is answered as text or json"
        )
    if args.ptx is not None:
        raise PtxlabError("--ptx names a program to run", hint="a question runs none")
    if selection.element is not None or (selection.lane is not None and not args.register):
        raise PtxlabError(
            "a question is about the whole layout",
            hint="leave out --element and --lane; --lane goes with --register alone",
        )
    text, data = _answer(args, instruction)
    emit(args, text, data)
    return 0


def describe(args: argparse.Namespace, instruction: Form, selection: Selection) -> int:
    """Show the layouts of an instruction that nothing here runs, and return 0."""
    from ptxlab.verbs.fragments import text as view
    from ptxlab.view import colour

    if args.ptx is not None:
        raise PtxlabError(
            "--ptx names a program to run", hint=f"{instruction.name} is not run here"
        )
    paint = colour.on_terminal() if wants_colour(args) else colour.plain
    emit(
        args,
        lambda: view.layout_text(instruction, selection, paint),
        lambda: view.layout_json(instruction, selection),
    )
    return 0


def _answer(args: argparse.Namespace, instruction: Form) -> Answer:
    from ptxlab.fragments.code import code
    from ptxlab.verbs.fragments import answers as view

    if args.trace is not None:
        return _trace(args.trace, _multiplying(instruction))
    if args.register is not None:
        return _register(args.register, instruction, args.lane)
    if args.code is not None:
        return lambda: code(instruction, args.code), view.code_json(instruction, args.code)
    if args.moves is not None:
        return _moves(args.moves, _multiplying(instruction))
    return lambda: view.formula_text(instruction), view.formula_json(instruction)


def _multiplying(instruction: Form) -> MatrixInstruction:
    """Return the instruction if it makes a D. Raises PtxlabError if it does not."""
    from ptxlab.matrix.multiplication import MatrixInstruction

    if not isinstance(instruction, MatrixInstruction):
        raise PtxlabError(
            f"{instruction.name} multiplies nothing",
            hint="--register, --formula and --code are about any layout",
        )
    return instruction


def _trace(text: str, instruction: MatrixInstruction) -> Answer:
    from ptxlab.matrix.trace import trace
    from ptxlab.verbs.fragments import answers as view

    numbers = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", text)
    if not numbers:
        raise PtxlabError(f"--trace {text!r} is not ROW,COL, such as 3,5")
    try:
        found = trace(instruction, int(numbers[1]), int(numbers[2]))
    except IndexError as error:
        raise PtxlabError(f"--trace {text}: {error}") from None
    return lambda: view.trace_text(found), view.trace_json(found)


def _register(text: str, instruction: Form, lane: int | None) -> Answer:
    from ptxlab.verbs.fragments import answers as view

    name = re.fullmatch(r"([a-z])(\d{1,3})", text.lower())
    layout = next((o for o in instruction.operands if name and o.operand == name[1].upper()), None)
    if not name or not layout or int(name[2]) >= layout.registers_per_lane:
        known = ", ".join(
            f"{o.operand.lower()}0 to {o.operand.lower()}{o.registers_per_lane - 1}"
            if o.registers_per_lane > 1
            else f"{o.operand.lower()}0"
            for o in instruction.operands
        )
        raise PtxlabError(f"{instruction.name} has no register {text!r}", hint=f"it has {known}")
    number = int(name[2])
    return (
        lambda: view.register_text(instruction, layout, number, lane),
        view.register_json(instruction, layout, number, lane),
    )


def _moves(text: str, instruction: MatrixInstruction) -> Answer:
    from ptxlab.fragments.moves import moves
    from ptxlab.matrix.catalog import matching
    from ptxlab.matrix.multiplication import MatrixInstruction
    from ptxlab.verbs.fragments import moves as view

    following = instruction
    if text != _SAME:
        forms = matching(text)
        multiplying = [form for form in forms if isinstance(form, MatrixInstruction)]
        if not multiplying:
            raise PtxlabError(
                f"{forms[0].name} multiplies nothing", hint="the next instruction must take an A"
            )
        following = multiplying[0]
    if any(shared.operand == "A" for shared in following.shared):
        raise PtxlabError(
            f"A of {following.name} lies in shared memory",
            hint="take its form with A in registers: add .rs to its name",
        )
    found = moves(instruction, following)
    return lambda: view.text(found), view.as_json(found)
