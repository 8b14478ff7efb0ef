"""The options that the verbs of the ladder share: what of a product is asked for, and how often.

Nothing heavy is imported here, so that a verb's help answers at once.
"""

from __future__ import annotations

import argparse

from ptxlab.cli.options import add
from ptxlab.cli.readers import types

OPTIONS = """
--acc       the sums and D (default alike)
--layout    A and B, each stored as it is (n) or transposed (t), row-major (default nn)
--epilogue  what is done to a sum: a bias of its column added, negative made zero (default none)
"""


def add_product(parser: argparse.ArgumentParser) -> None:
    """Add the type of the sums, the layout of A and B, and the epilogue."""
    layouts, epilogues = ("nn", "nt", "tn", "tt"), ("none", "bias", "relu", "bias+relu")
    add(parser, OPTIONS, acc=types(("f32", "f16")), layout=layouts, epilogue=epilogues)
    parser.set_defaults(layout="nn", epilogue="none")
