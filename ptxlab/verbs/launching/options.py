"""The options of every verb that launches a kernel: which file and kernel, its shape, its arguments.

    add_launch(parser)                            in ``configure``
    asked = read_launch(args)                     in ``execute``; see ``ptxlab.verbs.launching.launch``

Nothing heavy is imported here, so that a verb's help answers at once.
"""

from __future__ import annotations

import argparse

from ptxlab.cli.common import add_common
from ptxlab.cli.options import add
from ptxlab.cli.readers import count, dimensions, name_value, output_path, release, seconds

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
                               for im2col lower, upper, channels, pixels in place of box, and wide=1
                               for im2col::w
  struct(A,m,128,4096:s64,0.5) a struct, of the addresses of arguments before it and of numbers, s32 and f32 unless
                               they say otherwise"""
"""For the help of such a verb: what an argument looks like."""

TIMEOUT = 120.0
"""Seconds a launch may take unless the user says otherwise."""


LAUNCH = """
--kernel NAME      which kernel, if the file has several: its name or a part of it, or an instance of a
                   template such as 'scale<bf16,64>'
--grid X[,Y[,Z]]   CTAs (default 1)
--block X[,Y[,Z]]  threads of a CTA
--cluster X[,Y[,Z]]
                   CTAs of a cluster (default none)
--shared BYTES     dynamic shared memory (default 0)
--arg NAME=VALUE   a kernel argument
--set NAME=VALUE   what a __device__ or __constant__ variable holds before the launch
--cooperative      run all CTAs at the same time, as this_grid().sync() needs it
--schedule late|early|random:SEED
                   when asynchronous work lands on the emulator: as late as it may (default), at once, or
                   at any time that is allowed
"""
OF_CUDA = """
-D NAME=VALUE  a macro for a .cu file
-I FOLDER      where a .cu file's headers are
--std NAME     the C++ of a .cu file, such as c++20
--use_fast_math
               as nvcc has it: f32 rounds subnormal numbers to zero, divides and takes roots and sines in a short way
"""
ASSEMBLY = """
--toolchain RELEASE
               the NVRTC and nvJitLink that compile and assemble: of a release of CUDA, such as 12.8, or in a folder
"""
LIMIT = f"""
--timeout SECONDS  how long the kernel may run (default {TIMEOUT:g}); 0 for as long as it likes
"""
RESULT = """
--save [NAME=]FILE  write an array to a .npy or .npz file after the launch; without NAME all, as .npz
--keep FOLDER       write the PTX and, where ptxas is at hand, the cubin there: what lines in errors are of
--expect NAME=WHAT  what an array should hold after the launch
"""
TOLERANCE = """
--tolerance RTOL[,ATOL]  how far from what is expected is right: atol + rtol |expected| (default 0,0; of
                         products, sums and functions what is usual for the type)
"""


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Add FILE and the options of a launch.

    A verb whose device is not ``--device`` alone says so: ``set_defaults(device_options=("a", "b"))``.
    """
    parser.set_defaults(device_options=("device",))
    add(parser, "FILE  a .ptx or .cu file, one ptxlab ships, or - for standard input")
    add_launch_options(parser)


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("options of a launch")
    shapes = dict.fromkeys(("grid", "block", "cluster"), dimensions)
    add(group, LAUNCH, **shapes, shared=count, arg=[str], set=[str])
    add_compilation(group)
    add(group, LIMIT, timeout=seconds)
    group.set_defaults(cooperative=None, timeout=TIMEOUT)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``ptxlab run``, in which the header of a file says how it is launched."""
    add_launch(parser)
    group = parser.add_argument_group("what becomes of the result")
    add(group, RESULT, save=[saved], expect=[name_value])
    add_tolerance(group)
    add(group, "--time  launch again and again on a GPU, and time it")
    add_common(parser)


def saved(text: str) -> tuple[str, str]:
    """Read ``NAME=FILE`` or ``FILE.npz`` of ``--save``; all arrays have the name ""."""
    name, equals, path = text.partition("=") if "=" in text else ("", "", text)
    if not path or bool(name) != bool(equals) or not (name or path.endswith(".npz")):
        raise ValueError(f"{text!r} is not NAME=FILE.npy, NAME=FILE.npz or FILE.npz")
    return name, output_path(path)


def add_tolerance(parser: argparse._ActionsContainer) -> None:
    add(parser, TOLERANCE, tolerance=tolerance)


def tolerance(text: str) -> tuple[float, float]:
    try:
        rtol, atol = (*map(float, text.split(",")), 0.0)[:2]
        if not (0 <= rtol < float("inf") and 0 <= atol < float("inf")) or text.count(",") > 1:
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not RTOL or RTOL,ATOL") from None
    return rtol, atol


def add_compilation(parser: argparse._ActionsContainer) -> None:
    add(parser, OF_CUDA, D=[str], I=[str])
    add(parser, ASSEMBLY, toolchain=release)


def compilation(args: argparse.Namespace, *, line_info: bool) -> list[str]:
    """Return the options for NVRTC, of which one asks for the lines of CUDA C that PTX comes from."""
    options = [f"-D{macro}" for macro in args.D]
    options += [f"--include-path={folder}" for folder in args.I]
    options += [f"--std={args.std}"] if args.std else []
    options += ["--use_fast_math"] * args.use_fast_math
    if args.kernel and "<" in args.kernel:
        options.append(f"--instance={args.kernel}")
    if line_info:
        from ptxlab.toolchain import LINE_INFO  # here: PTX can spare it

        options.append(LINE_INFO)
    return options
