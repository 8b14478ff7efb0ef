"""``ptxlab interleave``: GPU and CPU taking turns on the same matrices, in three kinds of memory."""

from __future__ import annotations

import argparse
from contextlib import closing

from ptxlab.cli.common import add_common, emit, open_device
from ptxlab.cli.options import add
from ptxlab.cli.readers import positive, several
from ptxlab.errors import DeviceUnavailable

EXAMPLE = """\
example:
  ptxlab interleave                                   multiply on the GPU, ReLU on the CPU
  ptxlab interleave --activity touch --sizes 512,8192
  ptxlab interleave --format svg -o turns.svg

Times a product on the GPU alone, what the CPU does alone, the copies alone, and all of it in turns.
Needs a GPU: an emulator and its host have one memory, and their times would say nothing."""


OPTIONS = """
--algorithm NAME  a kernel of the ladder, for f32 (default warp_tiled)
--activity        what the CPU does: ReLU of all, or one number of every page (default relu)
--sizes N[,...]   rows and columns of the matrices (default 1024,2048,4096)
--turns N         (default 20)
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    sizes = several(positive, "a list of sizes of 1 or more, such as 512,8192")
    add(parser, OPTIONS, activity=("relu", "touch"), sizes=sizes, turns=positive)
    parser.set_defaults(algorithm="warp_tiled", activity="relu", sizes=(1024, 2048, 4096), turns=20)
    add_common(parser, ("svg", "png"))


def execute(args: argparse.Namespace) -> int:
    """Take turns, print; 0 when all results are right, 1 when not."""
    from ptxlab.cli.progress import StatusLine
    from ptxlab.device.cuda import CudaDevice
    from ptxlab.gemm import find_algorithm
    from ptxlab.gemm.interleave import ACTIVITIES, interleave
    from ptxlab.verbs.interleave import text as view

    status = StatusLine()
    with closing(open_device(args)) as device:
        if not isinstance(device, CudaDevice):
            raise DeviceUnavailable(
                f"turns of a GPU and a CPU need a GPU, and this is {device.name}",
                hint="an emulator has the memory of its host, and its time says nothing of a GPU",
            )
        rung, activity = find_algorithm(args.algorithm), ACTIVITIES[args.activity]
        interleavings = [
            interleave(device, rung, size, activity, args.turns, args.seed, status)
            for size in args.sizes
        ]
    status.clear()
    emit(
        args,
        lambda: view.text(interleavings),
        lambda: view.as_json(interleavings),
        svg=lambda: view.svg(interleavings),
    )
    return 0 if all(interleaving.passed for interleaving in interleavings) else 1
