"""What the verbs share that watch a launch on the emulator, where everything can be seen.

add_watched(parser, 5_000)                    in ``configure``, for a verb that follows one CTA
on_emulator(args, "why not a GPU", "hint")    in ``execute``, before the device is opened
with watched(args, "why not a GPU", "hint") as launch: ...    the same, and what is to be launched
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from ptxlab.cli.common import add_common, open_device
from ptxlab.cli.failures import say
from ptxlab.cli.options import add
from ptxlab.cli.readers import index, positive
from ptxlab.errors import PtxlabError

if TYPE_CHECKING:
    from ptxlab.verbs.launching.launch import PreparedLaunch

WATCHED = """
--cta X[,Y[,Z]]  which CTA (default 0)
--steps N        keep the first N instructions and landings (default {steps:,})
"""


def add_watched(parser: argparse.ArgumentParser, steps: int) -> None:
    """Add which CTA is followed and for how many ``steps``, and the options of all verbs."""
    add(parser, WATCHED.format(steps=steps), cta=index, steps=positive)
    add_common(parser, ("html",))
    parser.set_defaults(cta=(0,), steps=steps, device="emulator", device_options=())


def on_emulator(args: argparse.Namespace, message: str, hint: str) -> None:
    """Take the emulator for ``auto``; for a GPU raise PtxlabError with the message."""
    if args.device.startswith("cuda"):
        raise PtxlabError(message, hint=hint)
    args.device = "emulator"


@contextmanager
def watched(args: argparse.Namespace, message: str, hint: str) -> Iterator[PreparedLaunch]:
    """Give the launch that is asked for, with the lines of CUDA C, on an emulator that is then closed."""
    from ptxlab.verbs.launching.launch import bind_launch, read_launch

    on_emulator(args, message, hint)
    asked = read_launch(args, line_info=True)
    with closing(open_device(args)) as device:
        yield bind_launch(asked, device)


def take_page(args: argparse.Namespace) -> None:
    """Have a file called .html be a page."""
    if args.format == "text" and (args.output or "").endswith(".html"):
        args.format = "html"


def status(args: argparse.Namespace, fault: str | None) -> int:
    """Return 1 for a launch that stopped, and say why on stderr where the result went into a file."""
    if fault is not None and args.output:
        say(f"ptxlab: the launch stopped, and {args.output} has what came before\n{fault}")
    return int(fault is not None)


def whole_cta(args: argparse.Namespace) -> tuple[int, int, int]:
    """Return the CTA that is followed, with all of its coordinates."""
    x, y, z = (*args.cta, 0, 0)[:3]
    return x, y, z
