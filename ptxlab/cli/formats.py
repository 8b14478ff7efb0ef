"""In which form a result is written: what the options ask for, and what the name of the file says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

ENDINGS: dict[str, tuple[str, ...]] = {
    ".json": ("json", "sarif"),
    ".html": ("html",),
    ".htm": ("html",),
    ".svg": ("svg",),
    ".png": ("png",),
    ".csv": ("csv",),
    ".tex": ("latex",),
    ".sarif": ("sarif",),
    ".xml": ("junit",),
    ".md": ("markdown", "text", "github"),
}
"""The forms that a file of such a name may hold, first the one that the name alone asks for."""

PROGRAMS = (".ptx", ".cu", ".cuh", ".h", ".py")
"""What holds a program, and nothing that is said of one."""

_BINARY = (
    ".cubin", ".fatbin", ".o", ".so", ".npy", ".npz", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".zip",
)  # fmt: skip
"""What verbs do not write with ``--output``, but for those that have a form of the name."""


def chosen(asked: str | None, path: str | None, known: Sequence[str], *, code: bool = False) -> str:
    """Return the form of a result: that which was ``asked`` for, else what the name of its file says, else text.

    ``known`` are the forms that a verb has, ``code`` says whether its text is a program. Raises ValueError where
    the file is of another form than is asked for, of one that the verb has not, or where pixels have no file to go to.
    """
    ending = os.path.splitext(path or "")[1].lower()
    able = [form for form in ENDINGS.get(ending, ()) if form in known]
    if not able and (ending in _BINARY or (ending in PROGRAMS and not code)):
        raise ValueError(f"{path}: no {ending} is written, it is one of {_endings(known)}")
    if asked == "png" and path is None:
        raise ValueError("a picture in pixels goes to a file: -o picture.png")
    if ending not in ENDINGS:
        return asked or "text"
    if not able:
        raise ValueError(f"{path}: this has no form for {ending}, it is one of {_endings(known)}")
    if asked is not None and asked not in able:
        raise ValueError(f"{path} is {able[0]} by its name, and {asked} is asked for")
    return asked or able[0]


def wants_json(arguments: Sequence[str]) -> bool:
    """Say whether a program reads the result, also of a command line that did not parse."""
    return (
        "--json" in arguments
        or "--format=json" in arguments
        or ("--format", "json") in pairwise(arguments)
    )


def _endings(known: Sequence[str]) -> str:
    endings = [ending for ending, forms in ENDINGS.items() if set(forms).intersection(known)]
    return ", ".join([".txt", *endings])
