"""The options that the verbs of the ladder share: what of a product is asked for, and how often.

Nothing heavy is imported here, so that a verb's help answers at once.
"""

from __future__ import annotations

import argparse


def add_product(parser: argparse.ArgumentParser) -> None:
    """Add the type of the sums, the layout of A and B, and the epilogue."""
    parser.add_argument("--acc", choices=("f32", "f16"), help="the sums and D (default alike)")
    parser.add_argument(
        "--layout",
        choices=("nn", "nt", "tn", "tt"),
        default="nn",
        help="A and B, each stored as it is (n) or transposed (t), row-major (default nn)",
    )
    parser.add_argument(
        "--epilogue",
        choices=("none", "bias", "relu", "bias+relu"),
        default="none",
        help="what is done to a sum: a bias of its column added, negative made zero (default none)",
    )
