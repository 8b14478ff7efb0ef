"""``ptxlab sass``: PTX beside the machine code it becomes, and what that takes of a GPU."""

from __future__ import annotations

import argparse

from ptxlab.cli.common import add_common, emit, terminal_width
from ptxlab.cli.readers import count, dimensions
from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.options import add_compilation

EXAMPLE = """\
example:
  ptxlab sass ptx/mma_m16n8k16_bf16_f32.ptx
  ptxlab sass ptx/mma_m16n8k16_bf16_f32.ptx --summary
  ptxlab sass ptx/mma_m16n8k16_bf16_f32.ptx --arch sm_80 --arch sm_90a       side by side
  ptxlab sass kernels/naive.cu --diff kernels/coalescing.cu                  what changed
  ptxlab sass mine.cu -D TILE=64 --arch sm_120a --block 256 --json

Needs neither a GPU nor a CUDA toolkit. Of a .cu file the lines of CUDA C stand above the PTX. The
size of a CTA, which occupancy depends on, is taken from --block, from the kernel's own directives or
from the "Run:" line of the file; without any, several are shown."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a .ptx or .cu file, one ptxlab ships, or - for standard input",
    )
    parser.add_argument("--kernel", metavar="NAME", help="one kernel of the file (default all)")
    parser.add_argument("--diff", metavar="FILE", help="compare with the SASS of another file")
    parser.add_argument(
        "--summary", action="store_true", help="only what each kernel takes, without its code"
    )
    parser.add_argument("--block", type=dimensions, metavar="X[,Y[,Z]]", help="threads of a CTA")
    parser.add_argument("--shared", type=count, metavar="BYTES", help="dynamic shared memory")
    add_compilation(parser)
    add_common(parser, many_targets=True)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.verbs.sass import text as view
    from ptxlab.verbs.sass.programs import program
    from ptxlab.view.sources import read_sources

    if args.diff is not None and args.summary:
        raise PtxlabError("--diff compares the code, --summary leaves it out")
    if args.diff is not None and len(args.arch) > 1:
        raise PtxlabError("--diff compares two files for one target", hint="give --arch once")
    programs = [program(args, args.file, arch) for arch in args.arch or [None]]
    if args.diff is not None:
        programs.append(program(args, args.diff, programs[0].assembly.cubin.arch))
    named = {line.path for one in programs for line in one.assembly.sources.values()}
    compared = args.diff is not None
    sources = None if args.summary else read_sources(named)
    emit(
        args,
        lambda: view.text(programs, sources, compared=compared, width=terminal_width(args)),
        lambda: view.as_json(programs, args.file, args.diff),
    )
    return 0
