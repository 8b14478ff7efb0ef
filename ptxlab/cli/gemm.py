"""``ptxlab gemm``: run one matrix multiplication algorithm and check every element of D."""

from __future__ import annotations

import argparse
from contextlib import closing

from ptxlab.cli.common import add_common, emit, open_device

NAME = "gemm"
SUMMARY = "run, verify and time one matrix multiplication algorithm"
EXAMPLE = """\
example:
  ptxlab gemm --algorithm tensor_core                         bf16 to f32, on the tensor cores
  ptxlab gemm --algorithm naive --size 64 --dtype f32
  ptxlab gemm --m 200 --n 72 --k 48 --dtype f16 --acc f16     sizes need not fit the tiles

Computes D = A * B with A m x k and B k x n, row-major and random, and compares every element with
float64, within a bound proven for the algorithm. Exit status 1 when an element is outside it."""

SIZE = 512
"""The default m, n and k: enough for several CTAs and stages, seconds on the emulator."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.description = EXAMPLE
    parser.add_argument(
        "--algorithm",
        default="tensor_core",
        metavar="NAME",
        help="naive or tensor_core (default): a kernel of kernels/",
    )
    for name, what in (("m", "rows of A"), ("n", "columns of B"), ("k", "columns of A")):
        parser.add_argument(f"--{name}", type=count, metavar="N", help=f"{what} (default --size)")
    parser.add_argument(
        "--size", type=count, default=SIZE, metavar="N", help=f"m, n and k (default {SIZE})"
    )
    parser.add_argument(
        "--dtype", choices=("bf16", "f16", "f32"), default="bf16", help="A and B (default bf16)"
    )
    parser.add_argument(
        "--acc", choices=("f32", "f16"), default="f32", help="the sums and D (default f32)"
    )
    add_common(parser)


def count(text: str) -> int:
    """Read m, n or k."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of 0 or more")
    return int(text)


def execute(args: argparse.Namespace) -> int:
    """Run, print, and return 0 when D is right, 1 when not."""
    from ptxlab.gemm import Problem, run
    from ptxlab.view import gemm as view

    m, n, k = (args.size if value is None else value for value in (args.m, args.n, args.k))
    problem = Problem(m, n, k, args.dtype, args.acc, args.seed)
    with closing(open_device(args)) as device:
        result = run(device, problem, args.algorithm)
    emit(args, lambda: view.text(result), view.as_json(result))
    return 0 if result.passed else 1
