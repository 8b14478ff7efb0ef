"""``ptxlab explain``: one matrix instruction, its operands, and what becomes of it on each target."""

from __future__ import annotations

import argparse

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.options import add
from ptxlab.errors import PtxlabError

EXAMPLE = """\
example:
  ptxlab explain mma.m16n8k16.f32.bf16
  ptxlab explain ldmatrix.x4.trans
  ptxlab explain mma.m16n8k32.e4m3 --arch sm_89 --arch sm_90a

NAME is a full name or any parts of it; of several instructions that have them the one with the fewest
parts more is explained, in short; --full adds the targets, the arithmetic and the PTX. What it compiles to is read from the SASS of a program that holds it once, for
the targets of --arch or the first of each generation."""


OPTIONS = """
NAME    the instruction, or parts of its name
--full  also its targets, its arithmetic and its PTX
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add(parser, OPTIONS)
    add_common(parser, many_targets=True)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.fragments.support import explain
    from ptxlab.isa.targets import TARGETS
    from ptxlab.matrix.catalog import matching
    from ptxlab.verbs.explain import text as view

    forms = matching(args.name)
    for name in args.arch:
        if not forms[0].runs_on(TARGETS[name]):
            raise PtxlabError(
                f"{forms[0].name} does not run on {name}",
                hint=f"it needs {forms[0].minimum_target}",
            )
    explanation = explain(forms, args.arch)
    emit(args, lambda: view.text(explanation, full=args.full), lambda: view.as_json(explanation))
    return 0
