"""What the text of an option stands for: a reader, and one wording, for every kind of value.

A reader raises ValueError that says what is wrong, which the parser makes a usage error. Nothing heavy
is imported here, so that a verb's help answers at once.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from ptxlab.errors import did_you_mean
from ptxlab.numbers.synonyms import type_called

_MOST = 2**64 - 1
"""Of any integer: what is larger fits into no word and no size."""


def count(text: str) -> int:
    """Read an integer from 0 to 2^64 - 1."""
    return _integer(text, 0)


def positive(text: str) -> int:
    """Read an integer from 1 to 2^64 - 1."""
    return _integer(text, 1)


def _integer(text: str, least: int) -> int:
    if re.fullmatch(r"[0-9]{1,20}", text) and least <= int(text) <= _MOST:
        return int(text)
    raise ValueError(f"{text!r} is not an integer of {least} or more")


def word(text: str) -> int:
    """Read a word of up to 64 bits, decimal or, after ``0x``, hexadecimal."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", text):
        return int(text, 16)
    return count(text)


def integer(text: str) -> int:
    return -count(text[1:]) if text.startswith("-") else count(text)


def real(text: str) -> float:
    """Read a number as Python writes them: ``0.5``, ``1e-3``, ``inf``."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def release(text: str) -> str:
    """Read which release of CUDA is meant: its number, or a folder."""
    from ptxlab.toolchain.release import is_name

    if is_name(text):
        return text
    raise ValueError(f"{text!r} is neither a release of CUDA such as 12.8 nor a folder")


def seconds(text: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if 0 <= limit < 1e9:
        return limit
    raise ValueError(f"{text!r} is not a time in seconds")


def several(
    read: Callable[[str], int],
    form: str,
    *,
    counts: Container[int] | None = None,
    separator: str = ",",
) -> Callable[[str], tuple[int, ...]]:
    """Return the reader of several numbers, each by ``read``, as many as ``counts`` allows or any.

    ``form`` is what they look like, with an example: ``ROW,COL, such as 3,9``.
    """

    def read_all(text: str) -> tuple[int, ...]:
        parts = text.split(separator)
        if counts is None or len(parts) in counts:
            try:
                return tuple(read(part.strip()) for part in parts)
            except ValueError:
                pass  # what is wrong with one is said of all
        raise ValueError(f"{text!r} is not {form}")

    return read_all


dimensions = several(positive, "one to three sizes such as 32 or 2,3,1", counts=(1, 2, 3))
"""Reads a grid, block or cluster."""

index = several(count, "one to three numbers such as 2,1", counts=(1, 2, 3))
"""Reads the place of a CTA in its grid."""

element = several(count, "ROW,COL, such as 3,9", counts=(2,))
"""Reads the place of an element in its matrix."""


def element_of(text: str) -> tuple[str | None, tuple[int, int]]:
    """Read ``D[5,6]``, or ``5,6`` of any operand."""
    named = re.fullmatch(r"([A-Za-z])\[(.*)\]", text.strip())
    try:
        row, col = element(named[2] if named else text)
    except ValueError:
        raise ValueError(f"{text!r} is not D[ROW,COL] or ROW,COL, such as D[3,9]") from None
    return named and named[1].upper(), (row, col)


def element_of_d(text: str) -> tuple[int, int]:
    """Read ``5,6`` of D, which may be written ``D[5,6]``."""
    operand, (row, col) = element_of(text) if "[" in text else (None, element(text))
    if operand not in (None, "D"):
        raise ValueError(f"{text!r} is no element of D, such as D[3,9] or 3,9")
    return row, col


def words(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if all(parts):
        return parts
    raise ValueError(f"{text!r} is not a list, such as NAME,NAME")


def name_value(text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if name and value:
        return name, value
    raise ValueError(f"{text!r} is not NAME=VALUE")


def one_of(what: str, text: str, known: Iterable[str]) -> str:
    """Return ``text``, or raise ValueError with the nearest of the ``known`` names of ``what``, and all."""
    names = list(known)
    if text in names:
        return text
    nearest = suggestion(text, names) or ","  # first, as of many names the end is cut off
    raise ValueError(f"no {what} {text!r}{nearest} choose from {', '.join(names)}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` for the end of a message, "" where no word looks like ``word``."""
    hint = did_you_mean(word, known)
    return f"; {hint}" if hint else ""


def device(text: str) -> str:
    kinds = ("auto", "cuda", "emulator")
    if text in kinds or re.fullmatch(r"cuda:[0-9]+", text):
        return text
    raise ValueError(
        f"no device {text!r}, it is auto, cuda, cuda:N or emulator{suggestion(text, kinds)}"
    )


def target(text: str) -> str:
    """Read a target as people write it: ``sm_90a``, ``90a``, ``9.0``, ``compute_90``, or the GPU that is one."""
    from ptxlab.isa.targets import TARGETS  # here, because it brings numpy, which help can spare

    spelled = re.fullmatch(r"(?:sm|compute)?_?(\d+)\.?(\d[af]?)", text.lower())
    name = f"sm_{spelled[1]}{spelled[2]}" if spelled else text
    if name not in TARGETS:
        from ptxlab.prediction.chip import gpu_called, is_gpu

        if is_gpu(text):
            return gpu_called(text).target.name
    return one_of("target", name, TARGETS)


def each(read: Callable[[str], str]) -> Callable[[str], tuple[str, ...]]:
    """Return the reader of ``NAME,NAME``, each name by ``read``."""
    return lambda text: tuple(map(read, words(text)))


def listed(read: Callable[[str], Sequence[str]]) -> dict[str, Any]:
    """Return how an option is read that is given again for more, or takes them with commas between."""
    return {"action": "extend", "type": read, "default": []}


def types(known: Sequence[str]) -> Mapping[str, Any]:
    """Return how an option is read that is one of ``known`` types, by whatever name."""
    return {"type": type_called, "choices": known}


def type_names(text: str) -> tuple[str, ...]:
    return tuple(map(type_called, words(text)))


def family(text: str) -> str:
    """Read a family by its name, several as ``wgmma*`` or ``tcgen05``, or as that of an instruction such as ``mma.sync``."""
    from ptxlab.matrix import catalog  # here: it brings numpy, which help can spare

    known = catalog.families()
    for pattern in (text, f"{text}.*"):
        if text not in known and fnmatch.filter(known, pattern):
            return pattern
    try:
        return text if text in known else catalog.matching(text)[0].family
    except catalog.UnknownInstruction:
        return one_of("family", text, known)


def workers(text: str) -> str:
    if re.fullmatch(r"[1-9][0-9]{0,3}|[a-z]+://\S+", text):
        return text
    raise ValueError(f"{text!r} is neither a number of processes nor an address, tcp://HOST:PORT")


def output_path(text: str) -> str:
    """Check, before any work is done, that ``text`` can become a file."""
    folder = os.path.dirname(os.path.realpath(text))
    if os.path.isdir(text):
        raise ValueError(f"{text} is a folder")
    if not os.path.isdir(folder):
        raise ValueError(f"there is no folder {folder}")
    return text
