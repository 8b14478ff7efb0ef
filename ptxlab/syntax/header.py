"""The comment a program opens with: what it shows, how it is launched, what to expect.

The comment is the ``//`` lines up to the first line that is not one: a title, then prose, then
fields. A field starts with its name and a colon, and its text goes on in the lines indented below.

    // One warp multiplies on the tensor cores: bf16 in, f32 out.
    //
    // Prose.
    //
    // Instruction: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    // PTX ISA:     Matrix Fragments for mma.m16n8k16 with floating point type
    // Launch:      one warp; no shared memory
    // Parameters:  a  pointer to A, 16 x k bf16
    //              d  pointer to D, 16 x 8 f32
    // Run:         ptxlab run FILE --kernel NAME --grid 1 --block 32
    //              --arg "a=randn(16x16,bf16)" --arg "d=zeros(16x8,f32)"
    // Expect:      d is A * B

``Run`` may occur several times, once for each kernel of the file. ``Macros`` lists what ``-D`` sets
in a .cu file, in the form of ``Parameters``; ``Target`` is the .target that
a .cu file is for, where it is not for all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from ptxlab.errors import Location, PtxlabError

FIELDS = ("Instruction", "PTX ISA", "Target", "Launch", "Parameters", "Macros", "Run", "Expect")

_FIELD = re.compile(rf"({'|'.join(FIELDS)}):\s+(\S.*)")
_ENTRY = re.compile(r"(\w+(?:, \w+)*) {2,}(\S.*)")


@dataclass(frozen=True, slots=True)
class Header:
    """The opening comment of a program, taken apart; what it does not have is empty.

    ``runs`` are command lines, each split into words as a shell does it. ``parameters`` and
    ``macros`` say what each name stands for.
    """

    title: str = ""
    idea: str = ""
    instruction: str = ""
    section: str = ""
    target: str = ""
    launch: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    macros: dict[str, str] = field(default_factory=dict)
    runs: tuple[tuple[str, ...], ...] = ()
    expect: str = ""


def read_header(text: str, path: str = "<source>") -> Header:
    """Read the opening comment of a program's ``text``; ``path`` is what an error calls it by.

    Any comment will do: one without fields gives a title and an idea. Raises PtxlabError for a
    ``Run`` line whose quotes do not close.
    """
    prose: list[str] = []
    fields: list[tuple[str, int, list[str]]] = []
    for number, line in _comment(text):
        if match := _FIELD.fullmatch(line):
            fields.append((match[1], number, [match[2]]))
        elif fields and line.startswith(" "):
            fields[-1][2].append(line.strip())
        elif not fields:
            prose.append(line)
    first = {name: lines for name, _, lines in reversed(fields)}
    title, _, idea = "\n".join(prose).strip("\n").partition("\n")
    return Header(
        title=title,
        idea=idea.strip("\n"),
        instruction=" ".join(first.get("Instruction", [])),
        section=" ".join(first.get("PTX ISA", [])),
        target=" ".join(first.get("Target", [])),
        launch=" ".join(first.get("Launch", [])),
        parameters=_entries(first.get("Parameters", [])),
        macros=_entries(first.get("Macros", [])),
        runs=tuple(
            _words(" ".join(lines), path, number) for name, number, lines in fields if name == "Run"
        ),
        expect=" ".join(first.get("Expect", [])),
    )


def _comment(text: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of the comment lines that ``text`` opens with."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("//"):
            return
        yield number, line[2:].removeprefix(" ").rstrip()


def _entries(lines: list[str]) -> dict[str, str]:
    """Split ``name  what it is`` lines; a line without two spaces goes on with the one before."""
    entries: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if match := _ENTRY.fullmatch(line):
            names = match[1].split(", ")
            entries.update(dict.fromkeys(names, match[2]))
        else:
            entries.update({name: f"{entries[name]} {line}" for name in names})
    return entries


def _words(command: str, path: str, line: int) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise PtxlabError(
            f"the Run line does not split into words: {str(error).lower()}",
            location=Location(path, line, 1, command),
            hint='quote whole arguments, as in --arg "a=zeros(16x8,f32)"',
        ) from None
