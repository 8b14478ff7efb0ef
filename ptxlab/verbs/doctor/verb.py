"""``ptxlab doctor``: what is installed, what works here, and the command that installs the rest."""

from __future__ import annotations

import argparse

from ptxlab.cli.common import add_common, emit
from ptxlab.errors import DeviceUnavailable

EXAMPLE = """\
example:
  ptxlab doctor           what there is, and what works
  ptxlab doctor --json

Everything is tried, not only looked for: a kernel is compiled, assembled, disassembled and run, on
the emulator and on every GPU. Exit status 0 when the emulator works: it is all that is needed."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = EXAMPLE
    add_common(parser)


def execute(args: argparse.Namespace) -> int:
    """Look, try, print; 0 when the emulator works, 3 when not."""
    from ptxlab.verbs.doctor import text as view
    from ptxlab.verbs.doctor.examine import examine

    report = examine()
    emit(args, lambda: view.text(report), lambda: view.as_json(report))
    return DeviceUnavailable.exit_status if report["emulator"]["problem"] else 0
