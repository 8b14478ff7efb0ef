"""The options of every verb that launches a kernel: which file and kernel, its shape, its arguments.

    add_launch(parser)                            in ``configure``
    asked = launching.read_launch(args)           in ``execute``; see ``ptxlab.verbs.launching.launching``

Nothing heavy is imported here, so that a verb's help answers at once.
"""

from __future__ import annotations

import argparse

from ptxlab.cli.readers import count, dimensions, seconds

ARGUMENTS = """\
What is not given comes from the "Run:" line in the header of the file. Arguments are bound by the
names of the kernel's parameters or, if none of the names is one of those, in order.

values:
  128  0x80  0.5               a scalar, of the parameter's type
  randn(128x64,bf16,seed=1)    an array: zeros, ones, arange, randn or eye,
                               of f16 bf16 f32 f64 e4m3 e5m2, s8 to s64, u8 to u64, b8 to b64
  @file.npy  @file.npz:name    an array from a file; its bits read as another type: @file.npy:bf16"""
"""For the help of such a verb: what an argument looks like."""

TIMEOUT = 120.0
"""Seconds a launch may take unless the user says otherwise."""


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Add FILE and the options of a launch.

    A verb whose device is not ``--device`` alone says so: ``set_defaults(device_options=("a", "b"))``.
    """
    parser.set_defaults(device_options=("device",))
    parser.add_argument("file", metavar="FILE", help="a .ptx or .cu file, or one ptxlab ships")
    group = parser.add_argument_group("options of a launch")
    group.add_argument("--kernel", metavar="NAME", help="which kernel, if the file has several")
    group.add_argument("--grid", type=dimensions, metavar="X[,Y[,Z]]", help="CTAs (default 1)")
    group.add_argument("--block", type=dimensions, metavar="X[,Y[,Z]]", help="threads of a CTA")
    group.add_argument(
        "--cluster", type=dimensions, metavar="X[,Y[,Z]]", help="CTAs of a cluster (default none)"
    )
    group.add_argument(
        "--shared", type=count, metavar="BYTES", help="dynamic shared memory (default 0)"
    )
    group.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help="a kernel argument"
    )
    add_compilation(group)
    group.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT,
        metavar="SECONDS",
        help=f"how long the kernel may run (default {TIMEOUT:g}); 0 for as long as it likes",
    )


def add_compilation(parser: argparse._ActionsContainer) -> None:
    """Add what CUDA C is compiled with."""
    parser.add_argument(
        "-D", action="append", default=[], metavar="NAME=VALUE", help="a macro for a .cu file"
    )
    parser.add_argument(
        "-I", action="append", default=[], metavar="FOLDER", help="where a .cu file's headers are"
    )
    parser.add_argument("--std", metavar="NAME", help="the C++ of a .cu file, such as c++20")


def compilation(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the options for NVRTC that ``add_compilation`` read."""
    return (
        *(f"-D{macro}" for macro in args.D),
        *(f"--include-path={folder}" for folder in args.I),
        *((f"--std={args.std}",) if args.std else ()),
    )
