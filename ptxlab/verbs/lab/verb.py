"""``ptxlab lab``: a page to type, run, step through and compare programs in, served on this machine."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.options import add
from ptxlab.cli.readers import count, name_value, positive
from ptxlab.errors import DeviceUnavailable, PtxlabError
from ptxlab.files import read_text
from ptxlab.verbs.launching.options import TIMEOUT, add_launch_options
from ptxlab.verbs.launching.watching import take_page

EXAMPLE = """\
example:
  ptxlab lab ptx/mbarrier.ptx -o mbarrier.html      writes the page, with all that was found, and serves nothing
  ptxlab lab                                        opens a program that comes with ptxlab, in the browser
  ptxlab lab kernels/naive.cu --port 8000
  ptxlab lab my.ptx --grid 4 --block 128 --arg n=500 --arg "x=ones(500,f32)"    launched so, not as its header says
  ptxlab lab mbarrier.html                          opens what was saved, to go on

A page in the browser: left the source, with what is wrong as one types, right what became of it: registers and
matrices step by step, a timeline, findings, counts and predicted time beside the lines, PTX and SASS coloured by
the line they come from. All work is in the address of the page, and can be saved as one file that opens anywhere.

The page is served to this machine alone, and to who has the address that is printed. Needs the packages starlette
and uvicorn: pip install 'ptxlab[lab]'."""

OPTIONS = """
FILE           a .ptx or .cu file, one ptxlab ships, a program in Python that launches kernels, or a page that
               the lab has saved
--port N       where it is served (default one that is free)
--launches N   how many launches are worked on at the same time (default 2)
--no-browser   print the address, and open no browser
"""
SCHEMA = "ptxlab.lab/1"
NEEDED = ("starlette", "uvicorn")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add(parser, OPTIONS, file={"nargs": "?"}, port=count, launches=positive)
    add_launch_options(parser)
    add_common(parser, ("html",))
    parser.set_defaults(port=0, launches=2, device="emulator", device_options=())


def execute(args: argparse.Namespace) -> int:
    take_page(args)
    opens, folder = opened(args.file)
    if (launch := launch_of(args)) != {"args": {}}:
        if not opens:
            raise PtxlabError("options of a launch are of a FILE", hint="ptxlab lab FILE --grid 4")
        opens["launch"] = launch
    if args.format == "html":
        from ptxlab.cli.progress import LaunchProgress
        from ptxlab.verbs.lab.page import saved

        emit(args, "", {}, html=lambda: saved(opens, LaunchProgress(what="views")))
        return 0
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        from ptxlab.installation import adding_extra

        raise DeviceUnavailable(
            f"the package {missing[0]} is not installed", hint=adding_extra("lab")
        )
    from ptxlab.verbs.lab.server import serve

    def announce(address: str) -> None:
        emit(args, address, {"schema": SCHEMA, "address": address})
        sys.stdout.flush()
        if not args.no_browser and sys.stdout.isatty():
            webbrowser.open(address)

    serve(args.port, opens, folder, args.launches, announce)
    return 0


def launch_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the launch that the command line tells, as the state of a page keeps it: what has no field there is more."""
    pairs = (
        ("-D", args.D),
        ("-I", args.I),
        ("--set", args.set),
        ("--std", [args.std]),
        ("--schedule", [args.schedule]),
    )
    more = [f'{option} "{value}"' for option, values in pairs for value in values if value]
    more += ["--cooperative"] * bool(args.cooperative) + ["--use_fast_math"] * args.use_fast_math
    more += [f"--timeout {args.timeout:g}"] * (args.timeout != TIMEOUT)
    launch: dict[str, Any] = {"args": dict(map(name_value, args.arg))}
    for name in ("kernel", "grid", "block", "cluster", "shared", "arch"):
        value = getattr(args, name)
        if value is not None:
            launch[name] = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return launch | ({"more": " ".join(more)} if more else {})


def opened(file: str | None) -> tuple[dict[str, Any], str | None]:
    """Return what the page opens with, a program or the state of a page that was saved, and the folder of its headers.

    Raises PtxlabError for neither.
    """
    if file is None:
        return {}, None
    if file.endswith(".html"):
        from ptxlab.verbs.lab.page import read_page, state_of

        return state_of(_text(Path(file), file, read_page)), None
    if file.endswith(".py"):
        return {"name": Path(file).name, "text": _text(Path(file), file)}, None
    from ptxlab.device.loading import find_file, is_machine_code
    from ptxlab.resources import shipped

    path = find_file(file)
    if is_machine_code(file):
        raise PtxlabError(f"{file} is machine code, and the lab opens PTX and CUDA C")
    known = {"example": file} if shipped(file) == path else {}
    return {"name": path.name, "text": _text(path, file), **known}, str(path.parent.resolve())


def _text(path: Path, name: str, read: Callable[[Path], str] = read_text) -> str:
    try:
        return read(path)
    except (OSError, ValueError) as error:
        raise PtxlabError(f"cannot read {name}: {error}") from None
