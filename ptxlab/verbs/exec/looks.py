"""One launch of a program looked into: which, by what verbs, and what these say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import time
from typing import TYPE_CHECKING, Any

from ptxlab.errors import PtxlabError

if TYPE_CHECKING:
    from ptxlab.clients.launched import Launched
    from ptxlab.pictured import Readable

TERMINAL = "-"
"""In place of the name of a file: what is said goes where everything else does."""

LOOKS: Mapping[str, Callable[[Launched, str], Readable]] = {
    "trace": lambda launched, _: launched.trace(),
    "step": lambda launched, _: launched.step(),
    "sass": lambda launched, _: launched.sass(),
    "counts": lambda launched, _: launched.profile(),
    "predict": lambda launched, gpu: launched.predict(gpu),
    "diff": lambda launched, arch: launched.diff(arch),
}
"""The verbs, each with what its option gives it; those of ``OF_FILES`` are given the name of one."""

FIRST = "1"
"""The launch that is looked into unless told."""

OF_FILES = ("trace", "step", "sass", "counts")


def means(wanted: str, number: int, kernel: str) -> bool:
    """Say whether ``wanted`` is a launch: its number, or a name of its kernel or a pattern of that."""
    from ptxlab.syntax.names import spellings  # here: it brings numpy, which help can spare

    if wanted.isdecimal():
        return int(wanted) == number
    return any(fnmatchcase(name, wanted) for name in spellings(kernel))


@dataclass(slots=True)
class Looking:
    """Looks into the first launch that ``wanted`` means, by the verbs in ``asked``; ``data`` says whether as JSON too.

    ``told`` is what they say of it, as plain data, None before it is made.
    """

    wanted: str
    asked: Mapping[str, str]
    data: bool
    told: dict[str, Any] | None = field(default=None, init=False)

    def at(self, launched: Launched) -> None:
        """Look into a launch that is about to be made, if it is the one."""
        if self.told is None and means(self.wanted, launched.number, launched.kernel.name):
            self.told = {
                "time": time(),
                "number": launched.number,
                "kernel": launched.kernel.name,
                "verbs": {
                    verb: self._said(launched, verb, argument)
                    for verb, argument in self.asked.items()
                },
            }

    def _said(self, launched: Launched, verb: str, argument: str) -> dict[str, Any]:
        from ptxlab.cli.failures import failure_of
        from ptxlab.syntax.names import brief
        from ptxlab.verbs.results import said, written
        from ptxlab.view.json import plain

        heading = f"{verb} of launch {launched.number}, {brief(launched.kernel.name)}"
        try:
            result = LOOKS[verb](launched, argument)
        except PtxlabError as error:
            failure = failure_of(error)
            return {"text": f"{heading}\n{failure.text}", "status": failure.status, "json": None}
        about = said(result)
        told: dict[str, Any] = {"status": 0}
        if verb in OF_FILES and argument != TERMINAL:
            told |= {"text": f"{heading}: {argument}", "file": written(result, argument)}
        else:
            told["text"] = f"{heading}\n{about.text().rstrip()}"
        return {**told, "json": plain(about.as_json()) if self.data else None}
