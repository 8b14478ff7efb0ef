"""A program as a .cu file with a main: what compiles it, before it runs as any other that is compiled."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ptxlab.errors import PtxlabError, Unsupported


def is_cuda(program: str) -> bool:
    return program.endswith(".cu")


def require(args: argparse.Namespace) -> None:
    """Raise PtxlabError for options that compile where there is nothing to compile."""
    given = args.D or args.I or args.std or args.use_fast_math
    if given and not is_cuda(args.command[0]):
        raise PtxlabError(
            f"-D, -I, --std and --use_fast_math compile a .cu file, and {args.command[0]} is none",
            hint="the program's own options come after it",
        )


def compiled(args: argparse.Namespace, folder: str) -> str:
    """Compile the .cu file that is named as the program, into ``folder``, and return what came of it.

    Raises what ``compile_program`` does, and Unsupported where no compiled program is given the emulator.
    """
    from ptxlab.cli.progress import ticking
    from ptxlab.toolchain.nvcc import compile_program

    file = args.command[0]
    if sys.platform != "linux":
        raise Unsupported(f"{file} is run by its main on Linux alone", hint="so it is in WSL 2")
    options = [f"-D{macro}" for macro in args.D]
    options += [f"-std={args.std}"] if args.std else []
    options += ["-use_fast_math"] * args.use_fast_math
    with ticking("nvcc", args.command):
        image = compile_program(file, arch=args.arch, options=options, include_paths=args.I)
    program = Path(folder, Path(file).stem)
    program.write_bytes(image)
    program.chmod(0o700)
    return str(program)
