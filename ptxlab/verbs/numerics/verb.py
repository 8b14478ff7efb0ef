"""``ptxlab numerics``: what one dot product becomes on each chip, and why."""

from __future__ import annotations

import argparse
import re
from contextlib import closing
from typing import TYPE_CHECKING

from ptxlab.cli.common import add_common, emit, open_device
from ptxlab.cli.options import add
from ptxlab.cli.readers import positive
from ptxlab.errors import PtxlabError
from ptxlab.numbers.synonyms import type_called

if TYPE_CHECKING:
    from ptxlab.numerics.models import Measured
    from ptxlab.numerics.products import DotProducts

EXAMPLE = """\
example:
  ptxlab numerics --arch sm_80 --arch sm_90a --dtype f16 --k 16 --seed 1
  ptxlab numerics --a 0x1p-12,0x1p-12,0x1p-12 --b 0x1p-12,0x1p-13,0x1p-13 --c 1
  ptxlab numerics --dtype bf16 --k 64 --count 10000

Shows c + sum of a*b exactly, rounded once, added up in order with IEEE 754 fused multiply-adds, and
by mma.sync on every target, with each step of each: what every term keeps and what is cut off it.
--op wgmma shows the warpgroup's instruction in its place, which adds up 8-bit numbers otherwise.
With --count it says instead how often any two of these ways differ.

It computes with ptxlab's models of the chips. --device cuda adds the bits of a GPU, from the
handwritten mma program of the types; the exit status is 1 when they are not those of its model."""

K = 16
"""The default length: one m16n8k16."""
LONGEST = 4096
"""Most products shown step by step."""


TYPES = """
--dtype TYPE  a and b: f16 (default), bf16, tf32, e4m3, e5m2, e3m2, e2m3 or e2m1
--acc TYPE    c and the sum: f32 (default) or f16
--op          what adds up (mma.sync)
"""
LISTED = """
--{0} LIST  {0}[0],{0}[1],...: numbers (-0.5, 1/3, 0x1p-14, inf) or raw words (0x3c00); or @file.npy, or an
          array such as ones(4,f16)
"""
NUMBERS = (
    LISTED.format("a")
    + LISTED.format("b").strip()
    + """
--c NUMBER  c (default 0 if a and b are given)
"""
)
DRAWN = f"""
--k N       how many products (default {K})
--spread N  exponents from -N to 0, all as likely (default: standard normal numbers)
--count N   draw N dot products and count differences
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    # What argparse takes for a value although it begins with "-": here also lists, inf and nan.
    parser._negative_number_matcher = re.compile(r"-[\d.].*|-inf.*|-nan.*")
    add(parser, TYPES, dtype=type_called, acc=type_called, op=("mma.sync", "wgmma"))
    add(parser.add_argument_group("the numbers, unless they are drawn"), NUMBERS)
    drawn = parser.add_argument_group("numbers drawn with --seed")
    add(drawn, DRAWN, k=positive, spread=positive, count=positive)
    add_common(parser, many_targets=True)
    parser.set_defaults(dtype="f16", acc="f32", op="mma.sync", device="emulator")


def execute(args: argparse.Namespace) -> int:
    """Compute, print, and return 0, or 1 when a GPU gives other bits than its model."""
    from ptxlab.numerics.models import models
    from ptxlab.numerics.study import study, survey
    from ptxlab.verbs.numerics import json, text

    chosen = models(args.dtype, args.acc, args.arch, args.op)
    products = dot_products(args)
    if args.count is None and products.k > LONGEST:
        raise PtxlabError(
            f"no more than {LONGEST} products are shown step by step",
            hint="take fewer, or --count 1, which only compares the results",
        )
    measured = measure(args, products)
    if args.count is not None:
        many = survey(products, chosen, measured)
        emit(args, lambda: text.survey_text(many), lambda: json.survey_json(many))
        return 0 if many.passed else 1
    studied = study(products, chosen, measured)
    emit(args, lambda: text.study_text(studied), lambda: json.study_json(studied))
    return 0 if studied.passed else 1


def dot_products(args: argparse.Namespace) -> DotProducts:
    from ptxlab.numbers.fused_step import ACCUMULATORS, OPERANDS
    from ptxlab.numerics.products import draw, given
    from ptxlab.verbs.numerics.words import word, words

    c = None if args.c is None else word("--c", args.c, ACCUMULATORS[args.acc])
    if args.a is None and args.b is None:
        return draw(
            args.dtype,
            args.acc,
            k=args.k or K,
            count=args.count or 1,
            seed=args.seed,
            spread=args.spread,
            c=c,
        )
    if args.a is None or args.b is None:
        raise PtxlabError("--a and --b go together", hint="give both, or none to draw them")
    for name in ("k", "spread", "count"):
        if getattr(args, name) is not None:
            raise PtxlabError(f"--{name} is for numbers that are drawn, not for --a and --b")
    form = OPERANDS[args.dtype]
    a, b = (
        words(option, text, form, (args.seed, index))
        for index, (option, text) in enumerate((("--a", args.a), ("--b", args.b)))
    )
    return given(args.dtype, args.acc, a, b, c or 0)


def measure(args: argparse.Namespace, products: DotProducts) -> Measured | None:
    """Ask the GPU of ``--device``; None for the emulator, which is the models."""
    from ptxlab.numerics.models import measure

    if args.device == "emulator":
        return None
    if args.op != "mma.sync":
        raise PtxlabError(
            f"ptxlab has no program of {args.op}", hint="leave --device out to see the models alone"
        )
    args.arch = None  # a GPU is what it is: --arch says which models are shown
    with closing(open_device(args)) as device:
        return None if device.kind == "emulator" else measure(device, products)
