"""``ptxlab exec``: a program that launches kernels, unchanged, on the emulator."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxlab.cli.common import SASS, add_common, emit
from ptxlab.cli.options import add
from ptxlab.cli.readers import output_path, seconds, target
from ptxlab.errors import PtxlabError
from ptxlab.files import write_whole
from ptxlab.verbs.exec import source
from ptxlab.verbs.exec.looks import FIRST, LOOKS, OF_FILES
from ptxlab.verbs.launching.options import OF_CUDA
from ptxlab.verbs.launching.watching import on_emulator

if TYPE_CHECKING:
    from ptxlab.verbs.exec.child import Options
    from ptxlab.verbs.exec.text import ProgramOutcome

EXAMPLE = """\
example:
  ptxlab exec --arch sm_90a -- python my_script.py --size 256
  ptxlab exec --check -- python -m pytest tests/kernels
  ptxlab exec --profile --arch sm_80 -- python train.py
  ptxlab exec --trace page.html --predict h100 --launch 'attn*' -- python train.py
  ptxlab exec --arch sm_80 -- ./program
  ptxlab exec --arch sm_80 --check -I include -- program.cu 256 128 64

Runs a program in Python that was written for a GPU: kernels in Triton are compiled by Triton as for the
target of --arch, and run on the emulator, to the bit; so are those of cuda.core, Numba and tinygrad, which
find a driver with the emulator behind it. A program may say device="cuda" to PyTorch; its tensors are in
the memory of this machine. No GPU, no driver and no change of the program are needed.
What it launches is slow: choose small sizes.

A compiled program runs too, on Linux, if it shares the CUDA runtime of CUDA 12 or 13 (nvcc -cudart shared), or
calls the driver: it finds those of ptxlab. Its PTX is what runs, and without any its machine code. A .cu file
with a main is compiled for --arch first, with the nvcc and the compiler of C++ that are there.

With --check every launch is checked as by ptxlab check, and what is found names the line of the program;
with --profile a table says what each kernel took. Both, and one line at the end, go to stderr, as stdout
is the program's; --json goes to stdout, and what the program says there to stderr.

One launch can be looked into, as it is about to be made: --trace, --step, --sass and --counts write what these
verbs, the last profile, say of it to a file, --predict and --diff say it with the rest. It is the first one, or with --launch the
first that is meant; --check then checks those alone that are.

The exit status is the program's, 4 where a launch faulted or was refused, and 1 where the program ended
well and --check found something."""

STDERR = 2
"""The descriptor of stderr, also where Python's own stands for something else."""


OPTIONS = """
COMMAND            the program, or a .cu file with a main, and its arguments, after --
--check            check every launch
--profile          show the launches, time and instructions by kernel
--timeout SECONDS  how long a launch may run (default as long as it likes)
--launch WHICH     which launch: its number, its kernel's name, or a pattern such as 'attn*'
--trace FILE       what its first CTA does, as a page (.html), JSON or text; - is stderr
--step FILE        the same, instruction by instruction, with registers and shared memory
--sass FILE        its machine code beside its PTX
--counts FILE      sectors, bank conflicts and FLOPs by line, as ptxlab profile counts them
--predict GPU      how long it would take on a GPU such as h100
--diff ARCH        where it parts from the same launch on another target
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    files = dict.fromkeys(OF_FILES, output_path)
    add(parser, OPTIONS, command={"nargs": "+"}, timeout=seconds, diff=target, **files)
    add(parser, OF_CUDA, D=[str], I=[str])
    add_common(parser)
    parser.set_defaults(timeout=0.0, device="emulator", device_options=())


def execute(args: argparse.Namespace) -> int:
    from ptxlab.verbs.exec import text as view

    on_emulator(
        args, "ptxlab exec is for machines without a GPU", "with a GPU run the program without it"
    )
    if args.engine == SASS:
        raise PtxlabError(
            "a program's machine code runs where it has no PTX, and not with --engine sass",
            hint="ptxlab run FILE --engine sass launches a kernel of it",
        )
    outcome = outcome_of(args)
    shown = view.text(outcome, table=args.profile)
    if args.format == "json" or args.output:
        emit(args, shown, lambda: view.as_json(outcome))
    else:
        sys.stderr.write(f"{shown}\n")
    return outcome.status


def outcome_of(args: argparse.Namespace) -> ProgramOutcome:
    """Run the program, and write the files that were named of what it launched."""
    from ptxlab.isa.targets import DEFAULT_TARGET

    args.arch = args.arch or DEFAULT_TARGET
    args.looks = {verb: getattr(args, verb) for verb in LOOKS if getattr(args, verb) is not None}
    require_looks(args)
    source.require(args)
    with tempfile.TemporaryDirectory(prefix="ptxlab-exec-") as folder:
        status = run(args, folder)
        reports = [json.loads(path.read_bytes()) for path in Path(folder).glob("*.json")]
    outcome = summed(args, status, reports)
    return looked_into(args, outcome, reports) if args.launch or args.looks else outcome


def require_looks(args: argparse.Namespace) -> None:
    """Raise PtxlabError for a launch that nothing is wanted of, and a GPU that is not known."""
    if args.launch and not (args.check or args.looks):
        raise PtxlabError(
            "--launch says which launch is looked into, and nothing is to look",
            hint=f"--check, {', '.join(f'--{verb}' for verb in LOOKS)}",
        )
    if args.predict:
        from ptxlab.prediction.chip import find

        find(args.predict)


def looked_into(
    args: argparse.Namespace, outcome: ProgramOutcome, reports: Sequence[dict[str, Any]]
) -> ProgramOutcome:
    """Add what verbs said of the launch, of the first process that made it, and write the files that were named.

    A program that ended well ends with 2 where there was no such launch, or as the verb does that failed.
    """
    told = [report["looked"] for report in reports if report.get("looked")]
    first = min(told, key=lambda looked: looked["time"], default=None)
    status = 2 if first is None else max((v["status"] for v in first["verbs"].values()), default=0)
    for verb, said in first["verbs"].items() if first else ():
        if "file" in said:
            write_whole(args.looks[verb], said["file"].encode(errors="backslashreplace"))
    which = args.launch or FIRST
    return replace(outcome, status=outcome.status or status, wanted=which, looked=first)


def run(args: argparse.Namespace, folder: str) -> int:
    """Run the program, have its processes report to ``folder``, and return its exit status."""
    from ptxlab.verbs.exec.child import VARIABLE
    from ptxlab.verbs.exec.compiled import libraries_for

    program, *arguments = args.command
    if source.is_cuda(program):
        program = source.compiled(args, folder)
    libraries = libraries_for(program, Path(folder, "libraries"))
    options = child_options(args, folder)
    hook = str(Path(__file__).with_name("hook"))
    path = os.pathsep.join([hook, *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"PYTHONPATH": path, VARIABLE: json.dumps(asdict(options)), **libraries}
    if args.engine:
        own["PTXLAB_ENGINE"] = args.engine
    stdout = STDERR if args.format == "json" and not args.output else None
    try:
        command = [program, *arguments]
        status = subprocess.run(command, env={**os.environ, **own}, stdout=stdout).returncode
    except OSError as error:
        raise PtxlabError(
            f"cannot run {args.command[0]}: {error.strerror}",
            hint="ptxlab exec -- python my_script.py",
        ) from None
    return status if status >= 0 else 128 - status


def child_options(args: argparse.Namespace, folder: str) -> Options:
    """Return what the processes of the program are told."""
    from ptxlab.verbs.exec.child import Options

    data, launch = args.format == "json", args.launch or ""
    return Options(args.arch, args.check, args.timeout, folder, launch, args.looks, data)


def summed(
    args: argparse.Namespace, status: int, reports: Sequence[dict[str, Any]]
) -> ProgramOutcome:
    """Put together what the processes report. A program that Python ended with 1 may have a reason."""
    from ptxlab.clients.session import Usage
    from ptxlab.verbs.exec.text import ProgramOutcome

    usage: dict[str, Usage] = {}
    for report in reports:
        for name, counts in report["usage"].items():
            used = usage.setdefault(name, Usage())
            number = counts.pop("first", 0)
            used.first = used.first or number
            for what, counted in counts.items():
                setattr(used, what, getattr(used, what) + counted)
            used.unverified = sorted({*used.unverified})
    checks = [check for report in reports for check in report["checks"]]
    if status == 1:
        status = max((report["status"] for report in reports), default=0) or 1
    if status == 0 and checks:
        status = 1
    began = any(report["began"] for report in reports)
    told = checks if args.check else None
    return ProgramOutcome(args.arch, args.command, status, usage, told, began=began)
