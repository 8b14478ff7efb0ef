"""``ptxlab sass``: PTX beside the machine code it becomes, and what that takes of a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.options import add
from ptxlab.cli.readers import count, dimensions
from ptxlab.cli.terminal import terminal_width, wants_colour
from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.options import add_compilation

if TYPE_CHECKING:
    from ptxlab.toolchain.fatbin import Member
    from ptxlab.verbs.sass.listing import Listing
    from ptxlab.verbs.sass.programs import AssembledProgram

EXAMPLE = """\
example:
  ptxlab sass ptx/mma_m16n8k16_bf16_f32.ptx
  ptxlab sass ptx/mma_m16n8k16_bf16_f32.ptx --summary
  ptxlab sass ptx/mma_m16n8k16_bf16_f32.ptx --arch sm_80 --arch sm_90a       side by side
  ptxlab sass kernels/coalescing.cu --compare kernels/naive.cu               what changed since
  ptxlab sass mine.cu -D TILE=64 --arch sm_120a --block 256 --json
  ptxlab sass mine.fatbin --arch sm_90a                                      what is compiled already
  ptxlab sass kernels/naive.cu --order machine --at naive.cu:52              what one line became

Needs neither a GPU nor a CUDA toolkit. Of a .cu file the lines of CUDA C stand above the PTX. The
size of a CTA, which occupancy depends on, is taken from --block, from the kernel's own directives or
from the "Run:" line of the file; without any, several are shown. Behind each instruction stand its control bits: the
scoreboards it waits for, those it holds until its sources are read (r) and its result is written (w), and
for how many cycles the warp then stalls.

A .cubin, a .fatbin, and a program or library of the host with fatbins inside are shown as they are: all
members, or those for --arch, for which PTX is assembled where there is no machine code. A cubin does not
say what spills."""


OPTIONS = """
FILE               a .ptx, .cu, .cubin or .fatbin file, one ptxlab ships, a program of the host, or - for
                   standard input
--kernel NAME      one kernel of the file (default all)
--compare FILE     another program, whose SASS this one's is compared with: the one of before
--summary          only what each kernel takes, without its code; of several a row each
--order ptx|machine  lines of PTX with what each became (default), or machine code by address
--at PLACE         only this: FILE:LINE of the source, a line of the PTX, an opcode of either, or 0x01a0
--save FOLDER      write the PTX and the cubin of each target there, whose lines and code are meant
--block X[,Y[,Z]]  threads of a CTA
--shared BYTES     dynamic shared memory
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add(parser, OPTIONS, block=dimensions, shared=count, order=("ptx", "machine"))
    add_compilation(parser)
    add_common(parser, many_targets=True)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.verbs.launching.keeping import keep
    from ptxlab.verbs.sass import text as view

    if args.compare is not None and args.summary:
        raise PtxlabError("--compare is of the code, --summary leaves it out")
    if args.compare is not None and len(args.arch) > 1:
        raise PtxlabError("--compare is of two files for one target", hint="give --arch once")
    programs, closed = in_file(args, args.file, args.arch)
    if args.save is not None:
        for program in programs:
            assembly = program.assembly
            keep(args.save, program.file, assembly.module, assembly.cubin, program.arch)
    if args.compare is not None:
        _only_one(programs, args.file)
        before, more = in_file(args, args.compare, [programs[0].arch])
        _only_one(before, args.compare)
        programs, closed = [*before, *programs], [*more, *closed]
    listing = None if args.summary or args.compare is not None else _listing(args, programs)
    emit(
        args,
        lambda: view.text(
            programs, listing, closed, compared=args.compare is not None, width=terminal_width(args)
        ),
        lambda: view.as_json(programs, closed, args.file, args.compare),
    )
    return 0


def _listing(args: argparse.Namespace, programs: Sequence[AssembledProgram]) -> Listing:
    """Return how the code of programs is shown. Raises PtxlabError where none of it is at the place asked for."""
    from ptxlab.verbs.sass.listing import Listing
    from ptxlab.view import colour
    from ptxlab.view.sources import read_sources

    named = {line.path for program in programs for line in program.assembly.sources.values()}
    paint = colour.on_terminal() if wants_colour(args) else colour.plain
    return Listing(read_sources(named), args.order or "ptx", args.at, terminal_width(args), paint)


def in_file(
    args: argparse.Namespace, file: str, archs: Sequence[str]
) -> tuple[list[AssembledProgram], list[Member]]:
    """Return a file as machine code for targets, and what of it is compressed."""
    from ptxlab.device.loading import is_machine_code
    from ptxlab.verbs.sass import binary
    from ptxlab.verbs.sass.programs import assembled

    if is_machine_code(file):
        return binary.programs(args, file, archs)
    return [assembled(args, file, arch) for arch in archs or (None,)], []


def _only_one(programs: Sequence[AssembledProgram], file: str) -> None:
    if len(programs) > 1:
        raise PtxlabError(
            f"--compare is of two programs, {file} has {len(programs)}",
            hint="choose one with --arch: "
            + ", ".join(dict.fromkeys(str(program.member or program.arch) for program in programs)),
        )
