"""What the page of the lab asks, answered: plain data in, plain data out.

    answer({"want": "check", "name": "x.ptx", "text": ".version 8.0 ...", "options": ["--grid", "2"]})
    {"status": 1, "result": {"schema": "ptxlab.check/1", ...}, "said": ""}

    answer({"want": "hover", "name": "x.ptx", "text": ..., "line": 12, "column": 5})
    {"status": 0, "result": {"title": "mma.sync....", "rows": [["computes", "D = A * B + C ..."], ...], ...}, "said": ""}

``want`` is a verb that looks at a launch (``VERBS``), which is executed as at the command line, or a question about
the text (``QUESTIONS``). ``result`` is the JSON of the verb, or its page or text where ``VERBS`` says so; ``said`` is what
goes to stderr. What is wrong is ``{"status": 4, "error": {"schema": "ptxlab.error/1", ...}, "said": ...}``.

Nothing here serves or starts anything, so that a page without a server can ask as well: Pyodide has all it takes. A
program lies for as long as it is asked about in a folder of its own, which is then the working directory.
"""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path, PurePosixPath
from typing import Any

from ptxlab import resources
from ptxlab.cli.failures import as_data
from ptxlab.cli.verbs import find_verb
from ptxlab.errors import PtxlabError
from ptxlab.verbs.lab.about import about, example
from ptxlab.verbs.lab.comparison import compared
from ptxlab.verbs.lab.completion import completions
from ptxlab.verbs.lab.diagnosis import diagnosis, of_python
from ptxlab.verbs.lab.hover import hover
from ptxlab.view.json import plain

Request = Mapping[str, Any]
Progress = Callable[[str], None]
"""Called again and again, in words, with how far what takes long has come."""

VERBS = {
    "run": "text",
    "step": "html",
    "trace": "html",
    "check": "json",
    "profile": "json",
    "predict": "json",
    "sass": "json",
}
"""The verbs that can be asked, and the format in which they answer."""

PYTHON = ".py"
"""How programs end that launch kernels themselves, such as those in Triton."""

_NOT_HERE = frozenset(
    (
        "-o",
        "--output",
        "--save",
        "--format",
        "--json",
        "--time",
        "--device",
        "-h",
        "--help",
        "--list",
    )
)
"""Options that write files, need a GPU, or say how an answer looks, which is the page's to say."""


def answer(request: Request, progress: Progress = lambda text: None) -> dict[str, Any]:
    """Return what ``request`` asks for, or what is wrong with it; no exception leaves here."""
    listener = _Listener(progress)
    try:
        with redirect_stderr(listener):
            status, result = _answer(request)
    except Exception as error:
        failure = as_data(error)
        return {"status": failure["status"], "error": failure, "said": listener.said}
    return {"status": status, "result": plain(result), "said": listener.said}


def _answer(request: Request) -> tuple[int, Any]:
    want = request.get("want")
    if want in VERBS:
        return launched(want, request)
    if want not in QUESTIONS:
        raise PtxlabError(f"nobody answers {want!r}", hint=", ".join((*VERBS, *QUESTIONS)))
    return 0, QUESTIONS[want](request)


def launched(verb: str, request: Request) -> tuple[int, Any]:
    """Execute a verb on the program of a request; return its exit status and what it writes.

    Raises PtxlabError as the verb does, and for an option that no verb has.
    """
    if _is_python(request):
        from ptxlab.verbs.lab.programs import look  # here: it starts processes

        with _file(request) as (name, _):
            return look(verb, name, request.get("options", ()))
    options = _options(verb, request.get("options", ()))
    with _file(request) as (name, folder):
        parser, execute = find_verb(verb)
        form = VERBS[verb]
        args = parser.parse_args([name, *options, "--format", form])
        if verb == "run":  # the others watch, which can be done on the emulator alone
            args.device, args.device_options = "emulator", ()
        with redirect_stdout(io.StringIO()) as written:
            status = execute(args)
    text = _named_shortly(written.getvalue(), folder)
    return status, json.loads(text) if form == "json" else text


def _named_shortly(text: str, folder: str) -> str:
    """Return what a verb writes without the folders of this machine: those of the program, and of ptxlab's own."""
    for above in (folder, str(resources.path("kernels").parent)):
        text = text.replace(f"{above}/", "")
    return text


def _options(verb: str, words: Sequence[str]) -> list[str]:
    """Return those options that a verb has, of all that belong to a launch; files are named from here."""
    groups: list[list[str]] = []
    for word in words:
        if re.match(r"--?[A-Za-z]", word) or not groups:
            groups.append([])
        groups[-1].append(re.sub(r"(?<==)@(?=[^/])", f"@{os.getcwd()}/", word))
    parsers = {known: find_verb(known)[0] for known in VERBS}
    chosen: list[str] = []
    for first, *values in groups:
        option = first[:2] if re.match(r"-[A-Za-z]", first) else first.partition("=")[0]
        if option in _NOT_HERE or not any(p.has(option) for p in parsers.values()):
            parsers[verb].error(f"unrecognized arguments: {first}")
        if parsers[verb].has(option) and (verb, option) != ("predict", "--arch"):  # a GPU says it
            chosen += [first, *values]
    return chosen


def _is_python(request: Request) -> bool:
    return str(request.get("name")).endswith(PYTHON)


@contextmanager
def _file(request: Request) -> Iterator[tuple[str, str]]:
    """Have the program of a request in a file of its name, in the working directory; give both."""
    name = PurePosixPath(str(request.get("name", ""))).name
    if PurePosixPath(name).suffix not in (".ptx", ".cu", PYTHON):
        raise PtxlabError(f"{name or 'a program'} is called neither .ptx nor .cu nor {PYTHON}")
    with tempfile.TemporaryDirectory(prefix="ptxlab-lab-") as folder, chdir(folder):
        Path(name).write_text(str(request.get("text", "")), encoding="utf-8")
        yield name, os.getcwd()


class _Listener(io.StringIO):
    """Stands for a terminal: what is told of progress is passed on, the rest is kept in ``said``."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self.said = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *_, status = text.rpartition("\r\x1b[K")
        if "\r" not in text or text.endswith("\n"):
            self.said += status
        elif status:
            self._progress(status.removeprefix("ptxlab: "))
        return len(text)


QUESTIONS: dict[str, Callable[[Request], Any]] = {
    "about": lambda request: about(),
    "example": lambda request: example(request["name"]),
    "diagnose": lambda request: _diagnosed(request),
    "hover": lambda request: hover(request["text"], request["line"], request["column"]),
    "complete": lambda request: completions(request["text"], request["line"], request["column"]),
    "compare": lambda request: compared(_said, request, {**request, **request["other"]}),
}
"""What can be asked beside verbs."""


def _diagnosed(request: Request) -> dict[str, Any]:
    if _is_python(request):
        return of_python(request["text"])
    options = _options("run", request.get("options", ()))
    with _file(request) as (name, _):
        parser, _ = find_verb("run")
        return diagnosis(parser.parse_args([name, *options]))


def _said(verb: str, request: Request) -> Any:
    """Return what a verb says for a comparison, None where it refuses."""
    try:
        return launched(verb, request)[1]
    except PtxlabError:
        return None
