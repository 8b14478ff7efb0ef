"""The options of every verb that launches a kernel: which file and kernel, its shape, its arguments.

    add_launch(parser)                            in ``configure``
    asked = read_launch(args)                     in ``execute``; see ``ptxlab.verbs.launching.launch``

Nothing heavy is imported here, so that a verb's help answers at once.
"""

from __future__ import annotations

import argparse

from ptxlab.cli.common import add_common
from ptxlab.cli.readers import count, dimensions, name_value, output_path, seconds

ARGUMENTS = """\
What is not given comes from the "Run:" line in the header of the file. Arguments are bound by the
names of the kernel's parameters or, if none of the names is one of those, in order.

values:
  128  0x80  0.5               a scalar, of the parameter's type
  randn(128x64,bf16,seed=1)    an array: zeros, ones, arange, randn or eye,
                               of f16 bf16 tf32 f32 f64 e4m3 e5m2, s8 to s64, u8 to u64, b8 to b64
  @file.npy  @file.npz:name    an array from a file; its bits read as another type: @file.npy:bf16
  tma(A,box=64x64,swizzle=128B)  a tensor map of the argument A, a parameter or not, sizes as NumPy's;
                               also shape, strides, offset (bytes), dtype, element_strides, fill, and
                               for im2col lower, upper, channels, pixels in place of box"""
"""For the help of such a verb: what an argument looks like."""

TIMEOUT = 120.0
"""Seconds a launch may take unless the user says otherwise."""


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Add FILE and the options of a launch.

    A verb whose device is not ``--device`` alone says so: ``set_defaults(device_options=("a", "b"))``.
    """
    parser.set_defaults(device_options=("device",))
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a .ptx or .cu file, one ptxlab ships, or - for standard input",
    )
    add_launch_options(parser)


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add what a launch takes beside its file."""
    group = parser.add_argument_group("options of a launch")
    group.add_argument(
        "--kernel",
        metavar="NAME",
        help="which kernel, if the file has several: its name or a part of it, or an instance of a "
        "template such as 'scale<bf16,64>'",
    )
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
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what a __device__ or __constant__ variable holds before the launch",
    )
    group.add_argument(
        "--cooperative",
        action="store_true",
        default=None,
        help="run all CTAs at the same time, as this_grid().sync() needs it",
    )
    group.add_argument(
        "--schedule",
        metavar="late|early|random:SEED",
        help="when asynchronous work lands on the emulator: as late as it may (default), at once, or "
        "at any time that is allowed",
    )
    add_compilation(group)
    group.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT,
        metavar="SECONDS",
        help=f"how long the kernel may run (default {TIMEOUT:g}); 0 for as long as it likes",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``ptxlab run``, in which the header of a file says how it is launched."""
    add_launch(parser)
    group = parser.add_argument_group("what becomes of the result")
    group.add_argument(
        "--save",
        action="append",
        default=[],
        type=saved,
        metavar="[NAME=]FILE",
        help="write an array to a .npy or .npz file after the launch; without NAME all, as .npz",
    )
    group.add_argument(
        "--expect",
        action="append",
        default=[],
        type=name_value,
        metavar="NAME=WHAT",
        help="what an array should hold after the launch",
    )
    add_tolerance(group)
    group.add_argument(
        "--time", action="store_true", help="launch again and again on a GPU, and time it"
    )
    add_common(parser)


def saved(text: str) -> tuple[str, str]:
    """Read ``NAME=FILE`` or ``FILE.npz`` of ``--save``; all arrays have the name ""."""
    name, equals, path = text.partition("=") if "=" in text else ("", "", text)
    if not path or bool(name) != bool(equals) or not (name or path.endswith(".npz")):
        raise ValueError(f"{text!r} is not NAME=FILE.npy, NAME=FILE.npz or FILE.npz")
    return name, output_path(path)


def add_tolerance(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        default=(0.0, 0.0),
        metavar="RTOL[,ATOL]",
        help="how far from what is expected is right: atol + rtol |expected| (default 0,0)",
    )


def tolerance(text: str) -> tuple[float, float]:
    try:
        rtol, atol = (*map(float, text.split(",")), 0.0)[:2]
        if not (0 <= rtol < float("inf") and 0 <= atol < float("inf")) or text.count(",") > 1:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not RTOL or RTOL,ATOL") from None
    return rtol, atol


def add_compilation(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "-D", action="append", default=[], metavar="NAME=VALUE", help="a macro for a .cu file"
    )
    parser.add_argument(
        "-I", action="append", default=[], metavar="FOLDER", help="where a .cu file's headers are"
    )
    parser.add_argument("--std", metavar="NAME", help="the C++ of a .cu file, such as c++20")


def compilation(args: argparse.Namespace, *, line_info: bool) -> list[str]:
    """Return the options for NVRTC, of which one asks for the lines of CUDA C that PTX comes from."""
    options = [f"-D{macro}" for macro in args.D]
    options += [f"--include-path={folder}" for folder in args.I]
    options += [f"--std={args.std}"] if args.std else []
    if args.kernel and "<" in args.kernel:
        options.append(f"--instance={args.kernel}")
    return options + ["--generate-line-info"] * line_info
