"""``ptxlab run``: launch one kernel of a file with arguments from the command line."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from ptxlab.cli.common import add_common, emit, open_device, output_path, write_whole
from ptxlab.cli.parser import Parser

NAME = "run"
SUMMARY = "launch a kernel of any .ptx or .cu file with arguments from the command line"
EXAMPLE = """\
example:
  ptxlab run ptx/mma_m16n8k16_bf16_f32.ptx
  ptxlab run saxpy.ptx --grid 2 --block 128 --arg n=256 --arg a=2.0 \\
      --arg "x=arange(256,f32)" --arg "y=randn(256,f32,seed=1)" --save y=y.npy

What is not given comes from the "Run:" line in the header of the file. Arguments are bound by the
names of the kernel's parameters or, if none of the names is one of those, in order.

values:
  128  0x80  0.5               a scalar, of the parameter's type
  randn(128x64,bf16,seed=1)    an array: zeros, ones, arange, randn or eye,
                               of f16 bf16 f32 f64, s8 to s64, u8 to u64, b8 to b64
  @file.npy  @file.npy:bf16    an array from a file, its bits read as another type"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.description = EXAMPLE
    parser.add_argument("file", metavar="FILE", help="a .ptx or .cu file, or one ptxlab ships")
    parser.add_argument("--kernel", metavar="NAME", help="which kernel, if the file has several")
    parser.add_argument("--grid", type=dimensions, metavar="X[,Y[,Z]]", help="CTAs (default 1)")
    parser.add_argument("--block", type=dimensions, metavar="X[,Y[,Z]]", help="threads of a CTA")
    parser.add_argument(
        "--shared", type=size, metavar="BYTES", help="dynamic shared memory (default 0)"
    )
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help="a kernel argument"
    )
    parser.add_argument(
        "-D", action="append", default=[], metavar="NAME=VALUE", help="a macro for a .cu file"
    )
    parser.add_argument(
        "--save",
        action="append",
        default=[],
        type=saved,
        metavar="NAME=FILE",
        help="write an array to a .npy file after the launch",
    )
    add_common(parser)


def dimensions(text: str) -> tuple[int, ...]:
    """Read a grid or block: one to three positive integers."""
    sizes = text.split(",")
    if len(sizes) > 3 or not all(part.isdecimal() and int(part) for part in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is not one to three sizes such as 32 or 2,3,1")
    return tuple(map(int, sizes))


def size(text: str) -> int:
    """Read a number of bytes."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes")
    return int(text)


def saved(text: str) -> tuple[str, str]:
    """Read ``NAME=FILE`` of ``--save``."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy")
    return name, output_path(path)


def execute(args: argparse.Namespace) -> int:
    """Launch the kernel, print every array it was given, and save those asked for."""
    from ptxlab.cli import launching
    from ptxlab.device.loading import locate
    from ptxlab.view import launch as view

    fill_in(args, locate(args.file))
    values = launching.values(args.arg, args.seed)
    launching.check_saved(args.save, values)
    with closing(open_device(args)) as device:
        launch = launching.launch(args, values, device)
    for name, file in args.save:
        write_whole(file, launching.npy(launch, name))
    emit(args, lambda: view.text(launch), view.as_json(launch))
    return 0


def fill_in(args: argparse.Namespace, path: Path) -> None:
    """Complete ``args`` from the ``Run:`` line of the file that is about the same kernel.

    Arguments and macros are completed one by one, everything else as a whole.
    """
    from ptxlab.syntax.header import read_header

    # What is not text has no header: loading it says so, or takes it for the cubin it is.
    text = path.read_text(encoding="utf-8", errors="replace")
    for words in read_header(text, str(path)).runs:
        parser = Parser(prog=f"the Run line of {path}")
        configure(parser)
        given = parser.parse_args(words[2:])
        if args.kernel in (None, given.kernel):
            break
    else:
        return
    for name in ("kernel", "grid", "block", "shared"):
        if getattr(args, name) is None:
            setattr(args, name, getattr(given, name))
    args.arg = merged(given.arg, args.arg)
    args.D = merged(given.D, args.D)


def merged(defaults: list[str], given: list[str]) -> list[str]:
    """Return the ``NAME=VALUE`` of ``defaults``, replaced and then followed by those ``given``."""
    named = {text.partition("=")[0].strip(): text for text in defaults}
    named |= {text.partition("=")[0].strip(): text for text in given}
    return list(named.values())
