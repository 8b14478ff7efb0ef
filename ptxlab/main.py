"""The command line: find the verb, import only that verb, and turn every failure into a message."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from ptxlab import __version__
from ptxlab.cli import isolation
from ptxlab.cli.failures import report
from ptxlab.cli.formats import wants_json
from ptxlab.cli.parser import Parser
from ptxlab.cli.progress import ticking
from ptxlab.cli.readers import suggestion
from ptxlab.cli.verbs import VERBS, find_verb
from ptxlab.errors import PtxlabError
from ptxlab.garbage import no_more, seldom

OF_OTHERS = ("exec", "lab", "mcp")
"""Verbs whose terminal is that of another program, or that serve until they are ended, unless they write a file."""

EXIT_STATUSES = """\
exit status:
  0  done and right            3  something needed is absent (GPU, driver, tool)
  1  a check or comparison     4  the input was rejected
     failed                  130  interrupted
  2  usage                    70  a bug of ptxlab"""


def command() -> int:
    """Be the command ``ptxlab``, a process of its own: ``main`` with what it was started with."""
    status = main()
    no_more()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``ptxlab ARGV`` and return its exit status; no exception leaves here."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    seldom()
    open_streams()
    try:
        try:
            status = dispatch(arguments)
        except SystemExit:  # how argparse leaves after --help and --version
            status = 0
        sys.stdout.flush()
    except BaseException as error:
        if os.environ.get("PTXLAB_DEBUG"):
            raise
        return report(error, as_json=wants_json(arguments))
    return status


def open_streams() -> None:
    """Give what is written somewhere to go where the caller closed stdout or stderr.

    A character that the terminal's encoding has not is written as its number.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (open until the end)
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def dispatch(arguments: list[str]) -> int:
    parser = top_parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return PtxlabError.exit_status
    verb = arguments[0]
    if verb == "help":  # ptxlab help gemm, as others have it
        return dispatch([*arguments[1:2], "--help"])
    if verb.startswith("-"):
        parser.parse_args(arguments)
    names = [name for name, _ in VERBS]
    if verb not in names:
        raise PtxlabError(
            f"no verb {verb!r}{suggestion(verb, names)}", hint=f"verbs are {', '.join(names)}"
        )
    if any(word.endswith(".cu") for word in arguments) and (program := of_program(arguments)):
        return dispatch(program)
    verb_parser, execute = find_verb(verb)
    args = verb_parser.parse_args(arguments[1:])
    if isolation.is_wanted(args):
        return isolation.run(arguments)
    alone = verb not in OF_OTHERS or (verb == "lab" and args.output is not None)
    with ticking(verb, arguments) if alone else nullcontext(), toolchain(args):
        return execute(args)


def of_program(words: Sequence[str]) -> list[str] | None:
    """Return the command that these words stand for where they name a program and not a kernel."""
    from ptxlab.verbs.exec.program import as_exec

    return as_exec(words)


def toolchain(args: argparse.Namespace) -> AbstractContextManager[None]:
    """Return in which the release of CUDA is used that is asked for."""
    if getattr(args, "toolchain", None) is None:
        return nullcontext()
    from ptxlab.toolchain.release import using

    return using(args.toolchain)


def top_parser() -> Parser:
    """Return the parser of what may stand before a verb: help and version."""
    width = max(len(name) for name, _ in VERBS)
    verbs = "\n".join(f"  {name:{width}}  {summary}" for name, summary in VERBS)
    parser = Parser(
        prog="ptxlab",
        usage="ptxlab VERB [options]    (ptxlab VERB --help opens with an example)",
        description="Explore PTX and NVIDIA's tensor cores, on a GPU or on a bit-exact emulator.\n\n"
        f"verbs:\n{verbs}",
        epilog=EXIT_STATUSES,
    )
    parser.add_argument("-V", "--version", action="version", version=f"ptxlab {__version__}")
    return parser
