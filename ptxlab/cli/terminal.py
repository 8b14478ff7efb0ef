"""Whether a terminal is there, how wide it is, and whether it wants colour.

https://no-color.org and https://force-color.org: NO_COLOR leaves colour out, FORCE_COLOR brings it in also where
nothing is a terminal, and where both are set there is none. A terminal that is ``dumb`` has neither colour nor a
cursor that moves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Any


def moves_cursor(stream: Any) -> bool:
    """Say whether a line that was written can be taken back."""
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def terminal_width(args: argparse.Namespace) -> int | None:
    """Return how many columns the result has on its terminal, None where it goes to a pipe or a file."""
    if args.output is not None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def wants_colour(args: argparse.Namespace) -> bool:
    """Say whether text may be coloured: never in a file, and else as the terminal and the environment have it."""
    if args.output is not None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty() or os.environ.get("FORCE_COLOR", "0") not in ("", "0")
