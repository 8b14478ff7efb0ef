"""``ptxlab step``: a launch to walk through, instruction by instruction, as a page."""

from __future__ import annotations

import argparse

from ptxlab.cli.common import emit
from ptxlab.cli.options import add
from ptxlab.cli.readers import count, several
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch
from ptxlab.verbs.launching.watching import add_watched, status, take_page, watched, whole_cta

EXAMPLE = f"""\
example:
  ptxlab step ptx/mma_m16n8k16_bf16_f32.ptx -o page.html    a page to walk through, in a browser
  ptxlab step kernels/tensor_core.cu --warp 0,3 --steps 500 -o page.html
  ptxlab step ptx/ldmatrix.ptx                              what there is to see, in words
  ptxlab step ptx/ldmatrix.ptx --json                       what every step changed

For each instruction that a warp of one CTA executes: the line of CUDA C, PTX and machine code, the
registers of its 32 lanes and what became of them, the matrices of an instruction for tensor cores, shared
memory by bank with who wrote it, and what is on its way or waited for. Forwards and backwards; the
address of the page keeps the moment. With --engine sass it is the machine code that is walked through, and
its registers that are shown.

The order is the one in which the emulator executes instructions. It is no time.

{ARGUMENTS}"""

STEPS = 5_000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    add(
        parser,
        "--warp W[,W...]  keep the registers of these warps (default all)",
        warp=several(count, "W or W,W,..., such as 0,3"),
    )
    add_watched(parser, STEPS)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.observe.step import step
    from ptxlab.verbs.step import text as view
    from ptxlab.verbs.step.page import page

    take_page(args)
    with watched(
        args,
        "ptxlab steps on the emulator, where every register can be seen",
        "leave out --device; ptxlab dump looks at registers of a GPU, at one line",
    ) as launch:
        shape = launch.config, launch.passed, whole_cta(args)
        recording = step(launch.kernel, *shape, args.warp, args.steps, launch.told_by_source())
    emit(
        args,
        lambda: view.text(recording),
        lambda: view.as_json(recording),
        html=lambda: page(recording),
    )
    return status(args, recording.timeline.fault)
