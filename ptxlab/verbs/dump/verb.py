"""``ptxlab dump``: the registers of any thread at any place of a program."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from ptxlab.cli.common import add_common, emit, open_device, wants_colour, write_whole
from ptxlab.cli.readers import count, index, output_path, positive, words
from ptxlab.errors import PtxlabError
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch

if TYPE_CHECKING:
    from ptxlab.verbs.launching.launch import Launch

EXAMPLE = f"""\
example:
  ptxlab dump ptx/mma_m16n8k16_bf16_f32.ptx --at mma.sync --regs D
  ptxlab dump kernels/tensor_core.cu --at mma.sync --nth 2 --regs D --warp 1
  ptxlab dump ptx/ldmatrix.ptx --at ldmatrix --regs D --as f16 --lane 5
  ptxlab dump my.ptx --at LOOP --nth 3 --regs %r4,%f2 --save loop.npz

The place is a line of the PTX (--at 41), a label (the instruction after it) or an instruction:
mma.sync is each one that begins so. A thread is looked at the n-th time it is at any of them. Of
registers D, A, B and C are the operands of the instruction: a matrix is drawn from them, and packed
elements are shown one by one. A register by its name is shown as its own type, .b32 in hex: --as
says what it holds, --as bf16 two of them. After bra, ret and exit threads are elsewhere: there is
only --before.

{ARGUMENTS}"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    parser.add_argument("--at", required=True, metavar="PLACE", help="a line, label or instruction")
    parser.add_argument(
        "--regs",
        type=words,
        default=(),
        metavar="LIST",
        help="registers or operands, with commas between (default: all the instruction names)",
    )
    parser.add_argument(
        "--before", action="store_true", help="look before the instruction, not after it"
    )
    parser.add_argument(
        "--nth",
        type=positive,
        default=1,
        metavar="N",
        help="at which time of coming by (default 1)",
    )
    parser.add_argument(
        "--cta", type=index, default=(0,), metavar="X[,Y[,Z]]", help="which CTA (default 0)"
    )
    parser.add_argument(
        "--warp", type=count, default=0, metavar="W", help="which warp of it (default 0)"
    )
    parser.add_argument("--lane", type=count, metavar="L", help="this lane only")
    parser.add_argument(
        "--as", dest="read_as", metavar="TYPE", help="read the bits as f16, bf16, s8, b32, ..."
    )
    parser.add_argument(
        "--save",
        type=output_path,
        metavar="FILE",
        help="write the words of all threads to a .npz file: words [thread, register], passes, registers",
    )
    add_common(parser)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.device.protocol import Dump
    from ptxlab.verbs.dump import text as view
    from ptxlab.verbs.launching.arrays import npz
    from ptxlab.verbs.launching.launch import bind_launch, read_launch
    from ptxlab.view import colour

    view.check_type(args.read_as)
    asked = read_launch(args)
    wanted = Dump(args.at, args.regs, args.before, args.nth)
    with closing(open_device(args)) as device:
        launch = bind_launch(asked, device)
        found = launch.run(wanted).dump
        assert found is not None
        if device.kind == "cuda":
            compare(launch, bind_launch(asked, device))
        shown = view.Shown(launch, args.cta, args.warp, args.lane, args.read_as, found)
        shown.check()
    if args.save:
        kept = {name: getattr(found, name) for name in ("words", "passes", "registers", "types")}
        write_whole(args.save, npz(kept))
    paint = colour.on_terminal() if wants_colour(args) else colour.plain
    emit(args, lambda: view.text(shown, paint), lambda: view.as_json(shown))
    return 0


def compare(launch: Launch, plain: Launch) -> None:
    """Launch once more without the dump, and raise PtxlabError where that leaves something else."""
    import numpy as np

    plain.run()
    for one, other in zip(launch.arguments(), plain.arguments(), strict=True):
        if one.changed and np.asarray(one.value).tobytes() != np.asarray(other.value).tobytes():
            raise PtxlabError(
                f"{one.name} differs between a launch with and without the dump",
                hint="the program's result depends on timing: ptxlab check may say why",
            )
