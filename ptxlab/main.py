"""The command line: find the verb, import only that verb, and turn every failure into a message.

A verb is a folder of ``ptxlab.verbs`` whose module ``verb`` has ``configure(parser)``, which adds its
arguments, and ``execute(args)``, which returns the exit status: 0 done and right, 1 a check or comparison
failed. All other statuses come from the error that was raised.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence

from ptxlab import __version__
from ptxlab.cli import isolation
from ptxlab.cli.parser import Parser
from ptxlab.cli.readers import suggestion
from ptxlab.errors import PtxlabError

VERBS: tuple[tuple[str, str], ...] = (
    ("bench", "the ladder side by side: timed beside cuBLAS on a GPU, counted on the emulator"),
    ("check", "find races, missing waits, bad barriers, bounds, uninitialised reads, deadlocks"),
    ("diff", "run the same launch on two devices or targets and show where they part"),
    (
        "doctor",
        "say what is installed, what works on this machine, and what to install for the rest",
    ),
    ("dump", "show the registers of any thread at any line, label or instruction"),
    ("explain", "explain one matrix instruction: operands, targets, arithmetic, SASS"),
    ("fragments", "dump, verify, query and draw the fragment layouts of a matrix instruction"),
    ("gemm", "run, verify and time matrix multiplication algorithms"),
    (
        "interleave",
        "let GPU and CPU take turns on the same matrices: copied, mapped and managed memory",
    ),
    ("layout", "print, tile, vectorize, swizzle a layout; its bank conflicts"),
    ("numerics", "show what a dot product becomes on the tensor cores of each target, bit by bit"),
    ("ops", "list the matrix instructions, and which of them run on a target"),
    ("profile", "count bank conflicts, coalescing, divergence and arithmetic by line"),
    ("run", "launch a kernel of any .ptx or .cu file with arguments from the command line"),
    ("sass", "show PTX beside its SASS, registers, spills, occupancy, for any target"),
)
"""Every verb and its line of help, so that ``ptxlab --help`` imports none of them."""

INTERRUPTED = 130
BROKEN_PIPE = 141
BUG = 70
LONGEST_LINE = 1000
EXIT_STATUSES = """\
exit status:
  0  done and right            3  something needed is absent (GPU, driver, tool)
  1  a check or comparison     4  the input was rejected
     failed                  130  interrupted
  2  usage                    70  a bug of ptxlab"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``ptxlab ARGV`` and return its exit status; no exception leaves here."""
    arguments = list(sys.argv[1:] if argv is None else argv)
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
        return report(error)
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
    if verb.startswith("-"):
        parser.parse_args(arguments)
    names = [name for name, _ in VERBS]
    if verb not in names:
        raise PtxlabError(
            f"no verb {verb!r}{suggestion(verb, names)}", hint=f"verbs are {', '.join(names)}"
        )
    module = importlib.import_module(f"ptxlab.verbs.{verb}.verb")
    verb_parser = Parser(prog=f"ptxlab {verb}")
    module.configure(verb_parser)
    args = verb_parser.parse_args(arguments[1:])
    if isolation.is_wanted(args):
        return isolation.run(arguments)
    execute: Callable[..., int] = module.execute
    return execute(args)


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
    parser.add_argument("--version", action="version", version=f"ptxlab {__version__}")
    return parser


def report(error: BaseException) -> int:
    """Say on stderr what went wrong, and return the exit status it means."""
    match error:
        case PtxlabError():
            say(str(error) if error.location else f"ptxlab: {error}")
            return error.exit_status
        case KeyboardInterrupt():
            say("ptxlab: interrupted")
            return INTERRUPTED
        case BrokenPipeError():
            forget_stdout()  # the reader left
            return BROKEN_PIPE
        case OSError(errno=errno.ENOSPC | errno.EIO | errno.EBADF):
            forget_stdout()
            say(f"ptxlab: cannot write the result: {error.strerror}")
            return PtxlabError.exit_status
        case OSError(filename=str(path), strerror=str(why)):
            say(f"ptxlab: {path}: {why}")
            return PtxlabError.exit_status
        case MemoryError():
            say("ptxlab: not enough memory on this machine\nhint: try a smaller problem")
            return 3
    say(
        f"ptxlab: a bug of ptxlab: {type(error).__name__}: {error}; "
        "run again with PTXLAB_DEBUG=1 for the traceback"
    )
    return BUG


def forget_stdout() -> None:
    """Give the interpreter's last flush somewhere harmless to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Print ``text`` to stderr, over what a terminal shows of progress; nobody may be reading.

    Of a line that repeats a long argument, the beginning is shown.
    """
    text = "\n".join(
        line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"
        for line in text.split("\n")
    )
    try:
        print("\r\x1b[K" * sys.stderr.isatty() + text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
