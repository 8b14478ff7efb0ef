"""``ptxlab ops``: every matrix instruction, and which of them run on a target."""

from __future__ import annotations

import argparse
import re
from fnmatch import fnmatchcase

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.options import add
from ptxlab.cli.readers import family
from ptxlab.cli.terminal import terminal_width

EXAMPLE = """\
example:
  ptxlab ops --arch sm_89 --ptx 8.4
  ptxlab ops
  ptxlab ops --family mma.sp --arch sm_80 --json

Lists what the target of --arch has and a module of .version --ptx may use, by family, with the least
PTX version and target of each. The emulator is asked what it runs; what a GPU has proven is read from
receipts. ptxlab explain NAME says more of one."""


OPTIONS = """
--ptx X.Y      only what a module of this .version may use
--family NAME  only this family, such as mma or ldmatrix; wgmma* are all whose names begin so
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add(parser, OPTIONS, ptx=version, family=family)
    add_common(parser, many_targets=True)


def version(text: str) -> tuple[int, int]:
    if not re.fullmatch(r"\d+\.\d+", text):
        raise ValueError(f"{text!r} is not a PTX version, such as 8.4")
    major, minor = text.split(".")
    return int(major), int(minor)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.fragments.receipts import proven
    from ptxlab.fragments.support import emulated
    from ptxlab.isa.targets import TARGETS
    from ptxlab.matrix.catalog import forms
    from ptxlab.verbs.ops import text as view

    targets = [TARGETS[name] for name in args.arch]
    instructions = [
        form
        for form in forms()
        if fnmatchcase(form.family, args.family or "*")
        and (args.ptx is None or form.minimum_ptx <= args.ptx)
        and all(map(form.runs_on, targets))
    ]
    known = (instructions, emulated(instructions), proven(), targets)
    family, width = args.family, terminal_width(args)
    emit(args, lambda: view.text(*known, width, family), lambda: view.as_json(*known))
    return 0
