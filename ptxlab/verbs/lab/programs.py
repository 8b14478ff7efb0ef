"""Programs in Python, such as those in Triton: a launch that one makes, looked into as ``ptxlab exec`` does it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ptxlab.cache import directory
from ptxlab.cli.isolation import command
from ptxlab.errors import LaunchError, Location, PtxlabError
from ptxlab.prediction.chip import find

_PAGE = "page.html"
_FAULT = re.compile(
    r"^(?P<path>.*\.py):(?P<line>\d+):(?P<column>\d+): (?P<what>.*)(?:\nhint: (?P<hint>.*))?",
    re.MULTILINE,
)
_LOOKS = {
    "run": ("--profile",),
    "step": ("--step", _PAGE),
    "trace": ("--trace", _PAGE),
    "check": ("--check", "--json"),
    "predict": ("--json", "--predict"),
    "sass": ("--json", "--sass", "-"),
    "profile": ("--json", "--counts", "-"),
}
"""By verb, what ``ptxlab exec`` is told."""


def look(verb: str, name: str, options: Sequence[str]) -> tuple[int, Any]:
    """Run the program of that name; return its exit status, and what a verb says of a launch: the first, or of --launch.

    Of ``options`` those count that ``ptxlab exec`` has: --arch, --launch, and the --gpu of a prediction. Raises PtxlabError
    where there is no launch to look into.
    """
    given = dict(pairwise(options))
    gpu = []
    if verb == "predict":
        gpu = [given.get("--gpu", "h100")]
        given["--arch"] = find(*gpu).gpu.target.name
    wanted = [word for o in ("--arch", "--launch") if o in given for word in (o, given[o])]
    done = subprocess.run(
        [*command(), "exec", *_LOOKS[verb], *gpu, *wanted, "--", sys.executable, name],
        stdin=subprocess.DEVNULL, capture_output=True, env=_environment(name),
    )  # fmt: skip
    said, told = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
    if verb == "run":
        return done.returncode, f"{said}{told}"
    sys.stderr.write(told)
    if verb in ("step", "trace"):
        if not Path(_PAGE).is_file():
            raise _nothing(told)
        return done.returncode, Path(_PAGE).read_text(encoding="utf-8")
    outcome = json.loads(said) if said.startswith("{") else {}
    if verb == "check" and outcome.get("kernels"):
        return done.returncode, _findings(outcome)
    looked = (outcome.get("looked") or {}).get("counts" if verb == "profile" else verb)
    if looked is None:
        raise _nothing(told)
    return done.returncode, looked


def _environment(name: str) -> dict[str, str]:
    """Return one where Triton keeps what it compiles for a program of that name alone.

    Else a kernel that it knows from another file comes with the lines of that file.
    """
    return {"TRITON_CACHE_DIR": str(directory() / "triton" / name), **os.environ}


def _findings(outcome: dict[str, Any]) -> dict[str, Any]:
    """Return what was found in all launches, as what ``ptxlab check`` says of one."""
    checks: list[dict[str, Any]] = outcome["checks"]
    findings = [finding for check in checks for finding in check["findings"]]
    return {
        "verdict": "findings" if findings else "incomplete" if checks else "clean",
        "findings": findings,
        "checks": [f"{len(outcome['kernels'])} kernels, in all of their launches"],
        "unchecked": [text for check in checks for text in check["unchecked"]],
        "not_looked_at": [],
    }


def _nothing(told: str) -> PtxlabError:
    """Return why there is nothing to be seen: a launch that faulted, an error of Python, or no launch."""
    if fault := _FAULT.search(told):
        where = Location(Path(fault["path"]).name, int(fault["line"]), int(fault["column"]))
        return LaunchError(fault["what"], location=where, hint=fault["hint"])
    error = told.strip().splitlines()[-1] if "Traceback" in told else "the program made no launch"
    return PtxlabError(error, hint="a program says device='cuda', and calls its kernel")
