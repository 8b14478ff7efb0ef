"""``ptxlab explain``: one instruction, its operands, and what becomes of it on each target."""

from __future__ import annotations

import argparse
import re

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.options import add
from ptxlab.cli.readers import listed, words
from ptxlab.errors import PtxlabError, nearest
from ptxlab.numbers.synonyms import type_called

EXAMPLE = """\
example:
  ptxlab explain mma.m16n8k16.f32.bf16
  ptxlab explain ldmatrix.x4.trans
  ptxlab explain mma.m16n8k32.fp8 --arch sm_89 --arch sm_90a
  ptxlab explain mma.m16n8k16.half --gpu a100 --gpu rtx4090
  ptxlab explain lop3.b32 0x96
  ptxlab explain "shfl.sync.bfly.b32 r0, r1, 16, 31, -1;"

NAME is a full name or any parts of it, with dots or spaces between, or a line of PTX. Of several matrix
instructions that have the parts, the one of that opcode with the fewest parts more is explained, in short; --full
adds the targets, the arithmetic and the PTX. Of other instructions the forms are listed, with examples that are
computed. What it compiles to is read from the SASS of a program that holds it once, for the targets of --arch or the first of each generation."""


OPTIONS = """
NAME        the instruction, parts of its name, or a line of PTX
--dtype TYPE  type of A and B, as one more part of the name
--acc TYPE  type of C and D, likewise
--full      also its targets, its arithmetic and its PTX
--gpu NAME  also how fast a product is on a GPU, such as a100; more with commas or given again, or all
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add(parser, OPTIONS, name={"nargs": "+"}, gpu=listed(words), dtype=type_called, acc=type_called)
    add_common(parser, many_targets=True)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.emulator.prepare.row import ROWS
    from ptxlab.machine.table import ROWS as MACHINE_ROWS
    from ptxlab.matrix.catalog import UnknownInstruction, opcodes
    from ptxlab.verbs.explain import plain

    first, *more = args.name
    said = " ".join((".".join(filter(None, (first, args.acc, args.dtype))), *more))
    opcode, modifiers = plain.opcode_of(said)
    if opcode in ROWS and opcode not in opcodes():
        explained = plain.explain(said, args.arch)
        emit(args, lambda: plain.text(explained), lambda: plain.as_json(explained))
        return 0
    try:
        return explain_matrix(args, ".".join((opcode, *modifiers, *_more_parts(said))))
    except UnknownInstruction:
        if opcode in MACHINE_ROWS:
            raise PtxlabError(
                f"{opcode} is an instruction of machine code, and this explains PTX",
                hint=f"ptxlab sass FILE --at {opcode} shows what in a program becomes one",
            ) from None
        near = nearest(opcode, ROWS, most=3)
        if not near or {opcode, near[0]} & {*opcodes()}:
            raise
        hint = f"did you mean {' or '.join(near)}?"
        raise PtxlabError(f"no instruction is {said}", hint=hint) from None


def _more_parts(said: str) -> list[str]:
    """Return the types and shapes that stand apart from the opcode, as in ``mma m16n8k16 half``."""
    from ptxlab.numbers.types import is_type

    return [
        word
        for word in said.split()[1:]
        if all(map(is_type, type_called(word).split("."))) or re.fullmatch(r"m\d+n\d+(k\d+)?", word)
    ]


def explain_matrix(args: argparse.Namespace, name: str) -> int:
    from ptxlab.fragments.support import explain
    from ptxlab.isa.targets import TARGETS
    from ptxlab.matrix.catalog import matching
    from ptxlab.verbs.explain import text as view
    from ptxlab.verbs.explain.rates import rates

    forms = matching(name)
    for target in args.arch:
        if not forms[0].runs_on(TARGETS[target]):
            raise PtxlabError(
                f"{forms[0].name} does not run on {target}",
                hint=f"it needs {forms[0].minimum_target}",
            )
    explanation = explain(forms, args.arch)
    fast = rates(forms[0], args.gpu) if args.gpu else []
    emit(
        args,
        lambda: view.text(explanation, full=args.full, rates=fast),
        lambda: view.as_json(explanation, fast),
    )
    return 0
