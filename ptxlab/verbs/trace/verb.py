"""``ptxlab trace``: what the warps of a CTA, its copies and its barriers do, in order, as a page."""

from __future__ import annotations

import argparse

from ptxlab.cli.common import emit
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch
from ptxlab.verbs.launching.watching import add_watched, take_page, watched, whole_cta

EXAMPLE = f"""\
example:
  ptxlab trace ptx/mbarrier.ptx -o page.html          a timeline, to open in a browser
  ptxlab trace ptx/mbarrier.ptx                       what there was of each, in words
  ptxlab trace kernels/tensor_core.cu --cta 1 --json  every event

For one CTA, or all CTAs of its cluster: what each warp executes and what it waits for, when tiles of
shared memory are filled and read, products of warpgroups from their beginning until they land, every
barrier, and every phase of each mbarrier with what it lacks.

The axis is the order in which the emulator executes instructions and lets copies land. It is no
time: the emulator has none of a GPU's. Asynchronous work lands as late as it may, or when --schedule
says.

{ARGUMENTS}"""

STEPS = 20_000


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    add_watched(parser, STEPS)


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
        timeline = trace(launch.kernel, launch.config, launch.passed, whole_cta(args), args.steps)
    sources = view.sources_of(timeline)
    emit(
        args,
        lambda: view.text(timeline),
        lambda: view.as_json(timeline, sources),
        html=lambda: trace_page.page(timeline, sources),
    )
    return int(timeline.fault is not None)
