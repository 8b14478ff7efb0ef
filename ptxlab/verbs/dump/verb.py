"""``ptxlab dump``: the registers of any thread at any place of a program."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ptxlab.cli.common import SASS, add_common, emit, open_device
from ptxlab.cli.options import add
from ptxlab.cli.readers import count, index, name_value, output_path, positive, words
from ptxlab.cli.terminal import terminal_width, wants_colour
from ptxlab.errors import PtxlabError
from ptxlab.files import write_whole
from ptxlab.numbers.synonyms import type_called
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch, add_tolerance

if TYPE_CHECKING:
    from ptxlab.verbs.dump.shared import SharedSpot, ShownTile
    from ptxlab.verbs.dump.tensor_memory import TensorTile
    from ptxlab.verbs.launching.launch import PreparedLaunch

EXAMPLE = f"""\
example:
  ptxlab dump ptx/mma_m16n8k16_bf16_f32.ptx --at mma.sync --regs D
  ptxlab dump kernels/tensor_core.cu --at mma.sync --nth 2 --regs D --warp 1
  ptxlab dump ptx/ldmatrix.ptx --at ldmatrix --regs D --as f16 --lane 5
  ptxlab dump my.ptx --at LOOP --nth 3 --regs %r4,%f2 --save loop.npz
  ptxlab dump ptx/mma_m16n8k16_bf16_f32.ptx --at mma.sync --regs A --expect A=a
  ptxlab dump ptx/wgmma_m64n8k16_ss.ptx --at wgmma.wait_group --regs D
  ptxlab dump ptx/tma_load_swizzle.ptx --at mul.wide.u32 --mbarrier arrived --tile rows:16x64:u16:128B
  ptxlab dump kernels/tensor_core.cu --engine sass --at HMMA --regs D      of its machine code: R0, UR4, P1
  ptxlab dump ptx/tcgen05_mma_f16.ptx --arch sm_100a --at tcgen05.ld --tmem 0:128x64:f32

The place is a line of the PTX (--at 41), one of the source (--at naive.cu:52, after it, or --before), a label (the instruction after it) or an instruction:
mma.sync is each one that begins so. With --engine sass it is one of machine code: HMMA, --at 0x01a0 for an
address, or a line of the listing, as errors name it. A thread is looked at the n-th time it is at any of them. Of
registers D, A, B and C are the operands of the instruction: a matrix is drawn from them, and packed
elements are shown one by one. A register by its name is shown as its own type, .b32 in hex: --as
says what it holds, --as bf16 two of them. After bra, ret and exit threads are elsewhere: there is
only --before. --of names another instruction whose operands are meant, and at wgmma.wait_group they are
those of wgmma.mma_async. A warpgroup's matrix is drawn from all four warps.

--expect holds an operand against a matrix of the arguments as they were before the launch (B is k x n),
and says which registers, lanes or elements are in the wrong place; exit status 1 when any is.

--mbarrier and --tile look at the CTA's shared memory when the warp's first lane is there, on the
emulator: PLACE is NAME, NAME+OFFSET or an address. --tmem looks at its Tensor Memory from a column on: M x N of
an accumulator, in the layout that the PTX ISA calls so (A to G; of a pair the rows that the CTA has), or with
"lanes" whatever lies in so many lanes and columns, numbers of less than 32 bits side by side.

{ARGUMENTS}"""


PLACES = """
--at PLACE   a line, label or instruction
--regs LIST  registers or operands, with commas between (default: all the instruction names)
--before     look before the instruction, not after it
--of PLACE   D, A, B and C are operands of this instruction (line or name)
"""
SHARED = """
--mbarrier PLACE  show the phase of an mbarrier, its arrivals, and the bytes it expects
--tile PLACE:ROWSxCOLS:TYPE[:SWIZZLE]
                  show a matrix in shared memory as it was before the swizzle: 32B, 64B, 128B,
                  128B.atom32B or 128B.atom64B
--tmem COLUMN:MxN:TYPE[:LAYOUT]
                  show an accumulator in Tensor Memory; LAYOUT is A to G (default: D for m 128, F for 64,
                  G for 32, A for 256), or lanes
"""
WHO = """
--nth N          at which time of coming by (default 1)
--cta X[,Y[,Z]]  which CTA (default 0)
--warp W         which warp of it (default 0)
--lane L         this lane only
"""
MEANT = """
--as TYPE              read the bits as f16, bf16, s8, b32, ...
--expect OPERAND=WHAT  the matrix that A, B, C or D should hold, as an expression: A=a, B=b.T,
                       A=a[0:16,16:32]
"""
SAVE = """
--save FILE  write the words of all threads to a .npz file: words [thread, register], passes, registers
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    add(parser, PLACES, regs=words)
    add(parser, SHARED, mbarrier=[shared_spot], tile=[shared_tile], tmem=[tensor_tile])
    add(parser, WHO, nth=positive, cta=index, warp=count, lane=count)
    add(parser, MEANT, as_={"dest": "read_as", "type": type_called}, expect=[name_value])
    add_tolerance(parser)
    add(parser, SAVE, save=output_path)
    parser.set_defaults(regs=(), nth=1, cta=(0,), warp=0)
    add_common(parser)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.device.protocol import Dump
    from ptxlab.isa.targets import WARP
    from ptxlab.syntax.functions import SourcePlace
    from ptxlab.verbs.dump import expecting
    from ptxlab.verbs.dump import text as view
    from ptxlab.verbs.dump.expecting import expected
    from ptxlab.verbs.launching.arrays import npz
    from ptxlab.verbs.launching.launch import bind_launch, read_launch
    from ptxlab.verbs.launching.values import named
    from ptxlab.view import colour

    view.check_type(args.read_as)
    if args.at is None:
        raise PtxlabError(
            f"where in {args.file}? --at says it",
            hint="a line, a label or an instruction: --at mma.sync, --at 41, --at naive.cu:52; ptxlab sass FILE shows them",
        )
    of_source = SourcePlace.read(args.at) is not None
    asked = read_launch(args, line_info=of_source or args.engine == SASS)
    wanted = expected(args.expect, asked.values)
    regs = (*args.regs, *(operand for operand in wanted if operand not in args.regs))
    with closing(open_device(args)) as device:
        launch = bind_launch(asked, device)
        thread = None
        if args.mbarrier or args.tile or args.tmem:
            thread = view.number_of(launch.config, args.cta) + WARP * args.warp + (args.lane or 0)
        dumped = launch.run(Dump(args.at, regs, args.before, args.nth, args.of, thread)).dump
        assert dumped is not None
        if device.kind == "cuda":
            compare(launch, bind_launch(asked, device))
        spots, tiles = tuple(args.mbarrier), tuple(args.tile)
        shown = view.ShownDump(
            replace(dumped.launch, file=asked.file),
            args.cta,
            args.warp,
            args.lane,
            args.read_as,
            dumped,
            spots,
            tiles,
            tuple(args.tmem),
        )
        shown.check()
        tolerance = args.tolerance or (0.0, 0.0)
        comparisons = expecting.compare(shown, wanted, tolerance, named(asked.values))
    if args.save:
        kept = {name: getattr(dumped, name) for name in ("words", "passes", "registers", "types")}
        write_whole(args.save, npz(kept))
    paint = colour.on_terminal() if wants_colour(args) else colour.plain
    verdicts = [expecting.text(comparison) for comparison in comparisons]
    emit(
        args,
        lambda: view.text(shown, paint, terminal_width(args), verdicts),
        lambda: {
            **view.as_json(shown),
            "expectations": [asdict(comparison) for comparison in comparisons],
        },
    )
    return 1 if any(comparison.wrong for comparison in comparisons) else 0


def shared_spot(text: str) -> SharedSpot:
    from ptxlab.verbs.dump.shared import spot

    return spot(text)


def shared_tile(text: str) -> ShownTile:
    from ptxlab.verbs.dump.shared import tile

    return tile(text)


def tensor_tile(text: str) -> TensorTile:
    from ptxlab.verbs.dump.tensor_memory import tile

    return tile(text)


def compare(launch: PreparedLaunch, plain: PreparedLaunch) -> None:
    """Launch once more without the dump, and raise PtxlabError where that leaves something else."""
    import numpy as np

    plain.run()
    for argument, other in zip(launch.arguments(), plain.arguments(), strict=True):
        if (
            argument.changed
            and np.asarray(argument.value).tobytes() != np.asarray(other.value).tobytes()
        ):
            raise PtxlabError(
                f"{argument.name} differs between a launch with and without the dump",
                hint="the program's result depends on timing: ptxlab check may say why",
            )
