"""A .cu file that is a program, with a main of its own: verbs that launch kernels run it as ``ptxlab exec`` does.

What launches one kernel is an option that exec has not, such as ``--kernel`` and ``--block``, or a ``Run:`` line. The command
line alone asks this: where the verb is executed on what was typed into a page, a main, which is code of this machine, is not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ptxlab.cli.verbs import find_verb
from ptxlab.errors import PtxlabError
from ptxlab.files import read_text
from ptxlab.verbs.exec.looks import LOOKS, TERMINAL

_AS_EXEC = {
    "run": [],
    "check": ["--check"],
    "profile": ["--profile", "--counts", TERMINAL],
}
"""What exec is told besides to do the same of a program, by verb."""


def as_exec(words: Sequence[str]) -> list[str] | None:
    """Return the command that a verb with its words stands for, None where it launches a kernel or does something else.

    Raises PtxlabError for arguments behind ``--`` where there is no main to be given them, and for a verb that looks at
    one launch and is given a program.
    """
    verb, *words = words
    at = words.index("--") if "--" in words else len(words)
    own, arguments = words[:at], words[at + 1 :]
    if verb not in (*_AS_EXEC, *LOOKS) or not any(word.endswith(".cu") for word in own):
        return None
    if verb in LOOKS:
        if at < len(words):
            raise _looks_at_a_launch(verb, own, arguments)
        return None
    parser, _ = find_verb("exec")
    try:
        args, unknown = parser.parse_known_args(own)
    except PtxlabError:  # run says it, in its own words
        return None
    file = args.command[0]
    wanted = at < len(words)
    if len(args.command) > 1 or (unknown and not wanted):
        return None
    if not _has_main(file):
        if wanted:
            from ptxlab.device.loading import find_file  # here: it brings numpy

            find_file(file)  # or say that there is none
            raise PtxlabError(
                f"{file} has no main to be given what follows --",
                hint="a kernel is given --arg NAME=VALUE",
            )
        return None
    own.remove(file)
    if not wanted and _says_how_it_is_run(file):
        return None
    return ["exec", *_AS_EXEC[verb], *own, "--", file, *arguments]


def _looks_at_a_launch(verb: str, own: Sequence[str], arguments: Sequence[str]) -> PtxlabError:
    file = next(word for word in own if word.endswith(".cu"))
    given = {"predict": "h100", "diff": "sm_90a", "sass": TERMINAL}.get(verb, f"{verb}.html")
    whole = " ".join([file, *arguments])
    return PtxlabError(
        f"ptxlab {verb} is for one launch, and what follows -- is for a program",
        hint=f"ptxlab exec --{verb} {given} --launch 1 -- {whole}",
    )


def _has_main(file: str) -> bool:
    from ptxlab.toolchain.declarations import declarations

    try:
        text = read_text(file)
    except (OSError, ValueError):
        return False
    return any(each.kind == "function" and each.name == "main" for each in declarations(text))


def _says_how_it_is_run(file: str) -> bool:
    from ptxlab.verbs.launching.launch import run_lines

    return bool(run_lines(Path(file)))
