"""``ptxlab profile``: what every line of a kernel does, counted on the emulator."""

from __future__ import annotations

import argparse
import shlex

from ptxlab.cli.common import add_common, emit
from ptxlab.cli.options import add
from ptxlab.cli.readers import count, one_of
from ptxlab.cli.terminal import terminal_width, wants_colour
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch
from ptxlab.verbs.launching.watching import watched

EXAMPLE = f"""\
example:
  ptxlab profile kernels/naive.cu                          by line of CUDA C, the hottest first
  ptxlab profile kernels/naive.cu --by ptx --sort sectors --top 5 --full
  ptxlab profile kernels/naive.cu --engine sass --arch sm_86       by line of its machine code
  ptxlab profile kernels/naive.cu --format html -o naive.html      the annotated source

Counters are exact, the same on every machine, and defined as Nsight Compute's source metrics:
sectors of 32 bytes for each global request, wavefronts over the banks for each shared one, and the
least that the same bytes could do with. Time is not counted: the emulator has none of a GPU's.

{ARGUMENTS}"""

NCU = (
    "ncu --target-processes all --section SourceCounters --section MemoryWorkloadAnalysis_Tables "
    "--section InstructionStats --import-source yes"
)
"""The part of Nsight Compute's command line that asks a GPU for what is counted here."""


OPTIONS = """
--by cuda|ptx|sass
               lines of CUDA C (default where there is line info), of PTX, or of the machine code that
               --engine sass runs (default there)
--sort KEY     line, or a counter of --json such as executed (default), excess, sectors, flops; also by
               its heading, or the name of Nsight Compute's metric
--top N        lines to show (default 10, with --full 20), 0 for all
--full         also all that was counted in total, and of which kinds
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    add(parser, OPTIONS, by=("cuda", "ptx", "sass"), sort=key, top=count)
    add_common(parser, ("html",))
    parser.set_defaults(sort="executed", device="emulator", device_options=())


def key(text: str) -> str:
    from ptxlab.verbs.profile.lines import sort_keys  # here: it brings numpy, which help can spare

    keys = {name: key for name, key in sort_keys().items() if name}
    return keys[one_of("counter", text, keys)]


def execute(args: argparse.Namespace) -> int:
    from ptxlab.observe.profile import count as count_launch
    from ptxlab.verbs.profile import page as profile_page
    from ptxlab.verbs.profile import text as view
    from ptxlab.view import colour
    from ptxlab.view.sources import read_sources

    with (
        watched(
            args,
            "ptxlab counts on the emulator; a GPU counts with Nsight Compute",
            f"leave out --device, or run\n{NCU} {shlex.join(run_there(args))}",
        ) as launch,
        launch.told_by_source(),
    ):
        profile = count_launch(launch.kernel, launch.config, launch.passed)
    by = view.counted_by(profile, args.by, args.file)
    heat = colour.heat_on_terminal() if wants_colour(args) else colour.plain
    sources = read_sources(profile.sources)
    emit(
        args,
        lambda: view.text(
            profile,
            sources,
            by=by,
            sort=args.sort,
            top=args.top,
            heat=heat,
            width=terminal_width(args),
            full=args.full,
        ),
        lambda: view.as_json(profile, sources),
        html=lambda: profile_page.page(profile, sources),
    )
    return 0


def run_there(args: argparse.Namespace) -> list[str]:
    """Return the command that launches the same on the device of ``--device``."""
    words = ["ptxlab", "run", args.file, "--device", args.device]
    for name in ("kernel", "std"):
        words += [f"--{name}", getattr(args, name)] if getattr(args, name) else []
    for name in ("grid", "block", "cluster"):
        sizes = getattr(args, name)
        words += [f"--{name}", ",".join(map(str, sizes))] if sizes else []
    words += ["--shared", str(args.shared)] if args.shared else []
    words += ["--cooperative"] if args.cooperative else []
    for option, values in (
        ("--arg", args.arg), ("--set", args.set), ("-D", args.D), ("-I", args.I),
    ):  # fmt: skip
        words += [word for value in values for word in (option, value)]
    return words
