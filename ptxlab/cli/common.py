"""What all verbs share: device, target, seed, and where and how the result is written."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ptxlab.cli import readers
from ptxlab.cli.failures import say
from ptxlab.cli.options import How, add
from ptxlab.cli.progress import quiet
from ptxlab.cli.terminal import terminal_width
from ptxlab.errors import PtxlabError
from ptxlab.files import write_whole

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from ptxlab.device.protocol import Device

Text = str | Callable[[], str]
Data = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


SASS = "sass"
"""The engine that runs machine code of a GPU."""

SLOW = 5.0
"""Seconds of emulation after which a faster engine is worth a word."""

DEVICE = """
--device auto|cuda[:N]|emulator
             where to run; auto takes the first GPU, or the emulator where there is none
--arch NAME  {arch}
--engine auto|array|native|sass
             how the emulator computes, always the same bits: as arrays, as machine code (needs
             ptxlab[native]), or first one and then the other, which is the default; or sass: not the
             program but the GPU's machine code that ptxas makes of it
"""
RESULT = """
-o --output FILE  write the result to FILE instead of stdout, whole or not at all
--seed N          seed of all random data (default 0)
"""
ONE_TARGET = "the target the emulator plays, such as sm_80, or a GPU (default: sm_90a, or what the file is for)"
MANY_TARGETS = (
    "a target to show, such as sm_80, or a GPU such as h100; more with commas, or given again"
)

WORKERS = """
--workers N|tcp://HOST:PORT  emulate in so many processes (default: as many as there are processors, or
                             what PTXLAB_WORKERS says), or on a cluster of Dask
"""


def add_common(
    parser: argparse.ArgumentParser,
    formats: Sequence[str] = (),
    *,
    many_targets: bool = False,
    target: Callable[[str], str] = readers.target,
) -> None:
    """Add the options every verb has; ``formats`` are those the verb knows beyond text and json.

    With ``many_targets`` ``--arch`` may be repeated, and ``arch`` is a list of what ``target`` reads.
    """
    known = ("text", "json", *formats)
    arch = MANY_TARGETS if many_targets else ONE_TARGET
    group = parser.add_argument_group("options of every verb")
    where: dict[str, How] = {
        "device": readers.device,
        "arch": readers.listed(readers.each(target)) if many_targets else target,
    }
    add(group, DEVICE.format(arch=arch), **where, engine=("auto", "array", "native", SASS))
    add(group, f"--format {'|'.join(known)}  how to print the result", format=known)
    short = {form: {"dest": "format", "action": "store_const", "const": form} for form in known[1:]}
    add(group, "\n".join(f"--{form}  same as --format {form}" for form in short), **short)
    add(group, RESULT, output=readers.output_path, seed=readers.count)
    parser.set_defaults(device="auto", formats=known, seed=0)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where independent jobs run; ``open_workers`` takes it."""
    add(parser, WORKERS, workers=readers.workers)


def open_workers(
    args: argparse.Namespace, device: Device
) -> AbstractContextManager[Executor | None]:
    """Open what runs jobs where ``--workers`` says: for a GPU, or one worker, this process with None."""
    from ptxlab.workers import executor, usual

    if device.kind == "emulator":
        return executor(args.workers or usual())
    if args.workers:
        raise PtxlabError("--workers share out the emulator's work; a GPU is one device")
    return nullcontext(None)


def open_device(args: argparse.Namespace) -> Device:
    """Open the device of ``--device`` and ``--arch``; what ``auto`` chose, and why, goes to stderr."""
    from ptxlab.cli.progress import LaunchProgress
    from ptxlab.device.opening import open_device as open_by_name
    from ptxlab.emulator import print_text

    # Stdout belongs to the result where a program is to read it.
    console = print_text if args.format == "text" else print_to_stderr
    progress = LaunchProgress(getattr(args, "timeout", 0.0))
    more = {"schedule": args.schedule} if getattr(args, "schedule", None) else {}
    if args.engine == SASS:
        more["engine"] = SASS
    elif args.engine:
        os.environ["PTXLAB_ENGINE"] = args.engine  # also for processes that share the work
    device = open_by_name(args.device, arch=args.arch, progress=progress, console=console, **more)
    if args.device == "auto":
        why = getattr(device, "note", "")
        say(f"ptxlab: on {device.name}" + (f", because {why}" if why else ""))
    return device


def tell_of_faster(device: Device, seconds: float) -> None:
    """Say on stderr, after an emulation that has taken long as arrays, how the fast engine is had."""
    from ptxlab.emulator.native.engine import missing

    how = missing() if device.kind == "emulator" and seconds > SLOW else None
    if how is not None:
        faster = "with llvmlite what is hot becomes machine code, several times as fast"
        say(f"ptxlab: {seconds:.0f} s of emulation; {faster}: {how}")


def print_to_stderr(text: str) -> None:
    sys.stderr.write(text)


def emit(args: argparse.Namespace, text: Text, data: Data, **others: Text) -> None:
    """Write a result in the form the user chose, to stdout or to the file of ``--output``.

    ``data`` is its JSON, ``others`` holds the texts of further formats by name. Each may be a function
    that makes it, so that only the one that is wanted is made. PNG is drawn of the SVG.
    """
    if args.format == "json":
        from ptxlab.view.json import write  # here, because it brings numpy, which help can spare

        chosen: Text = write(data() if callable(data) else data)
    elif args.format == "png":
        from ptxlab.view.png import png

        chosen = others["svg"]
        picture = png(chosen if isinstance(chosen, str) else chosen())
        quiet()
        write_whole(args.output, picture)
        return
    else:
        chosen = {"text": text, **others}[args.format]
    body = chosen if isinstance(chosen, str) else chosen()
    quiet()
    if not body.endswith("\n"):
        body += "\n"
    if args.output is None:
        columns = terminal_width(args)
        if args.format == "text" and columns is not None:
            from ptxlab.view.width import folded

            body = folded(body, columns)
        encoding = sys.stdout.encoding or "utf-8"
        if args.format in ("svg", "html"):  # markup can name what the terminal's encoding has not
            body = body.encode(encoding, "xmlcharrefreplace").decode(encoding)
        sys.stdout.write(body)
    else:
        write_whole(args.output, body.encode(errors="backslashreplace"))
