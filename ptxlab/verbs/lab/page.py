"""The page of the lab: one file, which works from any server, from none, and when it was saved.

    page((files("...") / "ask_server.js").read_text())

What answers is the page's ``backend``, a global constant of the script that is given:

    const backend = {
      name: "this machine",               // for the page's foot
      async ask(request, onProgress, signal) { ... },   // a promise of what answer() returns; told of progress in words;
    };                                    // an AbortSignal that is aborted ends the work

``file`` and ``state`` are what it opens with: a program (name and text), or all that a page keeps of its user's work.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import WARP
from ptxlab.verbs.lab.about import CHOSEN, FIRST, about, example
from ptxlab.verbs.lab.answer import VERBS, answer
from ptxlab.view.page import assembled, embedded, lane_schemes
from ptxlab.workers import Progress

SCRIPTS = (
    "codemirror.js", "copy.js", "state.js", "languages.js", "editor.js", "launch.js", "tabs.js", "frames.js",
    "machine.js", "results.js", "compare.js", "tour.js", "begin.js",
)  # fmt: skip


def page(
    backend: str,
    opens: Mapping[str, Any] | None = None,
    answers: Mapping[str, Any] | None = None,
) -> str:
    """Return the page with the script ``backend``, and what it ``opens`` with: a name, a text and more of a state.

    It has ``answers`` to requests, which are given as the page writes them.
    """
    folder = files("ptxlab.verbs.lab") / "page_files"
    origins = "".join(f".l{lane}{{--origin:var(--l{lane})}}" for lane in range(WARP))
    parts = {
        "title": "ptxlab lab",
        "colours": f"{lane_schemes()}{origins}",
        "about": embedded(about()),
        "opens": embedded(opens or {}),
        "answers": embedded(answers or {}),
        "backend": backend,
    }
    return assembled(folder, SCRIPTS, parts)


def served() -> str:
    """Return the script of a page that asks the server it comes from."""
    return _script("server.js")


def saved(opens: Mapping[str, Any], progress: Progress) -> str:
    """Return the page for a file: all that it asks of the program it ``opens`` with is answered in it.

    ``progress`` is told how many of the answers are there.
    """
    program = opens or example(FIRST)
    words = options_of(program.get("launch", {}))
    request = {"name": program["name"], "text": program["text"], "options": words}
    gpus = [{**request, "options": [*words, "--gpu", gpu]} for gpu in CHOSEN]
    asked = [
        {"want": want, **each}
        for want in ("diagnose", *VERBS)
        for each in (gpus if want == "predict" else [request])
    ]
    answers = {}
    for number, each in enumerate(asked):
        progress(number, len(asked))
        answers[json.dumps(each, ensure_ascii=False, separators=(",", ":"))] = answer(each)
    progress(len(asked), len(asked))
    return page(_script("saved.js"), program, answers)


def options_of(launch: Mapping[str, Any]) -> list[str]:
    """Return the options of the command line that a state's launch stands for, in the order of launch.js."""
    rest = {key: value for key, value in launch.items() if key not in ("kernel", "args", "more")}
    named = {"kernel": launch.get("kernel"), **rest}
    words = [word for name, value in named.items() if value for word in (f"--{name}", value)]
    words += [
        w for name, text in launch.get("args", {}).items() for w in ("--arg", f"{name}={text}")
    ]
    return [*words, *shlex.split(launch.get("more", ""))]


def _script(name: str) -> str:
    return (files("ptxlab.verbs.lab") / "page_files" / name).read_text("utf-8")


def read_page(path: Path) -> str:
    """Return a page as it was written: its editor has characters that no program has."""
    return path.read_text("utf-8")


def state_of(saved: str) -> dict[str, Any]:
    """Return what a page that was saved opens with. Raises PtxlabError for a page of something else."""
    inside = re.search(
        r'<script type="application/json" id="opens">(.*?)</script>', saved, re.DOTALL
    )
    if inside is None:
        raise PtxlabError("this page was not saved by the lab", hint="its button is called Save")
    state: dict[str, Any] = json.loads(inside[1])
    return state
