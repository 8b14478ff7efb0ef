"""``ptxlab check``: what is wrong with a launch, found on the emulator."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptxlab.cli.common import add_common, emit, open_device
from ptxlab.cli.formats import wants_json
from ptxlab.cli.options import add
from ptxlab.cli.parser import Parser
from ptxlab.cli.readers import one_of, words
from ptxlab.errors import DeviceUnavailable, Unsupported
from ptxlab.verbs.launching.options import ARGUMENTS, add_launch
from ptxlab.verbs.launching.watching import on_emulator
from ptxlab.view.annotations import FORMATS, annotated

if TYPE_CHECKING:
    from ptxlab.device.protocol import Device
    from ptxlab.verbs.launching.launch import Asked

EXAMPLE = f"""\
example:
  ptxlab check kernels/tensor_core.cu
  ptxlab check my.ptx --grid 4 --block 128 --arg "x=zeros(512,f32)" --checks race,async --strict
  ptxlab check kernels/naive.cu --sass --arch sm_90a       what it becomes: results and control bits
  ptxlab check mine.cubin                                  the same of what is compiled already

--list tells what is checked, rule by rule. --schedule all launches three times, with asynchronous work that lands
late, early and at random.

A race is found by what the program orders, not by luck: if a byte of shared memory is raced for, some race
for it is reported. What orders there are barriers (bar.sync, barrier, bar.warp.sync, barrier.cluster),
mbarriers from an arrival or a finished copy to a wait, waits for groups (cp.async, cp.async.bulk, wgmma),
and what these tell of others. Relaxed arrivals and waits order with a fence before or after them, and an
arrival of the scope of its CTA (.release.cta) tells another CTA nothing. For bulk copies and wgmma a
fence.proxy.async is needed too. A flag in shared memory orders by a strong write that releases or comes
after a fence, and a strong read of it that acquires or has a fence after it; what a flag in global memory
orders in shared memory is not followed, which is said where it matters. In global memory a fence of the CTA
that wrote and a strong read (atom, ld.acquire, volatile) of the other that follows it count as order,
whatever the flag: a missing fence is found, one of the wrong variable is not, and nor is a race within a
warp. A fault (barrier, deadlock, bounds, alignment) stops the launch. Not checked: arrays in global memory that were never written (what comes from --arg is).

The verdict is clean, findings, or incomplete where something of the launch cannot be checked. Exit
status 0 when nothing worse than warnings was found, 1 otherwise and when incomplete.

Of machine code the control bits are checked, without a launch and along all paths: whether the stalls and
scoreboards that ptxas set keep every register from being read or written too early (docs/control_bits.md).
With --sass the launch is also made twice, of the PTX and of the machine code made of it, as ptxlab diff --a ptx
--b sass does: what they leave may differ by what PTX leaves open, and by nothing else (docs/ptxas.md).

{ARGUMENTS}"""


ALL = "all"
"""The schedule that stands for several, one after the other."""

OPTIONS = """
--checks NAME,...  what to check, of those that --list tells (default all)
--list             tell what is checked, rule by rule, and exit
--strict           exit with 1 for a warning, as for an error
--sass             check the machine code that the file becomes: its control bits, and, where a launch is
                   told, that it leaves what the PTX does
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_launch(parser)
    add(parser, OPTIONS, checks=checks, list={"action": RuleList, "nargs": 0})
    add_common(parser, FORMATS)


_WIDTH = 104
"""Of --list, on a terminal that has as much."""


class RuleList(argparse.Action):
    """Prints what can be checked, with the names of the rules below each, and ends, as --help does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        as_json = isinstance(parser, Parser) and wants_json(parser.given)
        sys.stdout.write((_checks_json() if as_json else _checks()) + "\n")
        parser.exit()


def _checks() -> str:
    from ptxlab.observe.check_report import RULES

    lines = ["checks, and the names of their rules:"]
    for kind, (what, rules) in RULES.items():
        lines += _filled(kind, what, 2, 17)
        for names, meaning in rules.items():
            lines += _filled(names.replace("|", ", "), meaning, 4, 30)
    return "\n".join(lines)


def _checks_json() -> str:
    from ptxlab.observe.check_report import RULES
    from ptxlab.view.json import write

    checks = [
        {
            "check": kind,
            "about": about,
            "rules": [{"rules": names.split("|"), "about": what} for names, what in rules.items()],
        }
        for kind, (about, rules) in RULES.items()
    ]
    return write({"schema": "ptxlab.check.list/1", "checks": checks})


def _filled(name: str, text: str, indent: int, column: int) -> list[str]:
    """Return ``text`` from ``column`` on, in lines of which the first begins with a name."""
    first = f"{'':{indent}}{name}".ljust(column - 2) + "  "
    width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 0)).columns)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * column)


def checks(text: str) -> tuple[str, ...]:
    from ptxlab.observe.check_report import CHECKS

    return tuple(one_of("check", name, CHECKS) for name in words(text))


def execute(args: argparse.Namespace) -> int:
    from ptxlab.device.loading import is_machine_code

    return _machine_code(args) if args.sass or is_machine_code(args.file) else _launch(args)


def _machine_code(args: argparse.Namespace) -> int:
    from ptxlab.verbs.check import machine_text as view
    from ptxlab.verbs.check.machine_code import check_machine_code
    from ptxlab.view.sources import read_sources

    told = check_machine_code(args)
    programs = [each.program for each in told.programs]
    named = {line.path for program in programs for line in program.assembly.sources.values()}
    forms = {form: partial(annotated, form, args.file, view.remarks(told)) for form in FORMATS}
    emit(args, lambda: view.text(told, read_sources(named)), lambda: view.as_json(told), **forms)
    return int(told.verdict != "clean")


def _certify(asked: Asked, device: Device) -> None:
    """Raise ToolchainError where ptxas does not take a program either: then it is wrong, and not just not modelled."""
    from ptxlab.device.loading import load_assembled

    with suppress(DeviceUnavailable):
        load_assembled(Path(asked.file), device.target, asked.options)


def _launch(args: argparse.Namespace) -> int:
    from ptxlab.observe.check import check, incomplete
    from ptxlab.observe.check_report import CHECKS, together
    from ptxlab.verbs.check import text as view
    from ptxlab.verbs.launching.launch import bind_launch, read_launch

    on_emulator(
        args,
        "ptxlab checks on the emulator; a GPU runs Compute Sanitizer",
        "leave out --device, or run compute-sanitizer --tool racecheck ptxlab run ...",
    )
    asked = read_launch(args, line_info=True)
    wanted = args.checks or CHECKS
    every = ("late", "early", f"random:{args.seed}")
    schedules = every if args.schedule == ALL else (args.schedule or "late",)
    reports = []
    for args.schedule in schedules:
        with closing(open_device(args)) as device:
            try:
                launch = bind_launch(asked, device)
            except Unsupported as error:
                _certify(asked, device)
                reports.append(incomplete(asked.file, wanted, error))
            else:
                reports.append(check(launch.kernel, launch.config, launch.passed, wanted))
    report = together(reports, schedules)
    forms = {form: partial(annotated, form, args.file, view.remarks(report)) for form in FORMATS}
    emit(
        args,
        lambda: view.text(report, view.sources_of(report)),
        lambda: view.as_json(report),
        **forms,
    )
    return int(report.failed(strict=args.strict))
