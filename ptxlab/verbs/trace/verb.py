"""``ptxlab trace``: what the warps of a CTA, its copies and its barriers do, in order, as a page."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from ptxlab.cli.common import emit
from ptxlab.cli.options import add
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch
from ptxlab.verbs.launching.watching import add_watched, status, take_page, watched, whole_cta

if TYPE_CHECKING:
    from ptxlab.prediction.sm.issues import PredictedIssues
    from ptxlab.verbs.launching.launch import Asked

EXAMPLE = f"""\
example:
  ptxlab trace ptx/mbarrier.ptx -o page.html          a timeline, to open in a browser
  ptxlab trace ptx/mbarrier.ptx                       what there was of each, in words
  ptxlab trace kernels/tensor_core.cu --cta 1 --json  every event
  ptxlab trace ptx/mbarrier.ptx --gpu h100 -o page.html    and when an H100 would issue what

For one CTA, or all CTAs of its cluster: what each warp executes and what it waits for, when tiles of
shared memory are filled and read, products of warpgroups from their beginning until they land, every
barrier, and every phase of each mbarrier with what it lacks.

The axis is the order in which the emulator executes instructions and lets copies land. It is no
time: the emulator has none of a GPU's. Asynchronous work lands as late as it may, or when --schedule
says. With --gpu there is a second axis below it, of cycles: when the warps of the first CTA would issue each
instruction of the machine code for that GPU, and what they would wait for before it, as ptxlab predict has it.

{ARGUMENTS}"""

STEPS = 20_000

OPTIONS = """
--gpu NAME  a GPU that is not here, such as h100, whose cycles are predicted
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    add_watched(parser, STEPS)
    add(parser, OPTIONS)


def execute(args: argparse.Namespace) -> int:
    from ptxlab.observe.trace import trace
    from ptxlab.verbs.trace import page as trace_page
    from ptxlab.verbs.trace import text as view

    take_page(args)
    with watched(
        args,
        "ptxlab traces on the emulator, where every step can be seen",
        "leave out --device; Nsight Compute samples what warps of a GPU wait for",
    ) as launch:
        shape = launch.config, launch.passed, whole_cta(args)
        timeline = trace(launch.kernel, *shape, args.steps, launch.told_by_source())
        predicted = issued(launch.asked, args.gpu, args.steps) if args.gpu else None
    sources = view.sources_of(timeline)
    emit(
        args,
        lambda: view.text(timeline, predicted),
        lambda: view.as_json(timeline, sources, predicted),
        html=lambda: trace_page.page(timeline, sources, predicted),
    )
    return status(args, timeline.fault)


def issued(asked: Asked, gpu: str, most: int) -> PredictedIssues:
    """Compile a program for a GPU and predict when the warps of its first CTA issue what."""
    from ptxlab.prediction.chip import find
    from ptxlab.prediction.predict import issues_of_launch, load_for
    from ptxlab.prediction.unfilled import UnfilledDevice
    from ptxlab.verbs.launching.launch import bind_launch

    chip = find(gpu)
    with closing(UnfilledDevice(chip.gpu.target)) as device:
        assembly, module = load_for(device, asked.file, asked.options)
        launch = bind_launch(asked, device, module)
        return issues_of_launch(assembly, launch.kernel, launch.config, launch.passed, chip, most)
