"""Every matrix instruction of the tables under one roof, whatever its family."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from ptxlab.isa.catalog import INSTRUCTIONS, UnknownInstruction
from ptxlab.isa.instruction import MatrixInstruction, Needing, Version
from ptxlab.isa.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX, LdMatrix, MovMatrix, StMatrix
from ptxlab.isa.wmma import WMMA_MOVES, WmmaMove

Form = MatrixInstruction | LdMatrix | StMatrix | MovMatrix | WmmaMove

_SUGGESTED = 3


@dataclass(frozen=True, slots=True)
class Entry(Needing):
    """One instruction: the record of its own table, and what it has in common with all others.

    ``section`` is the title of the PTX ISA's section on it; ``family`` is one of ``FAMILIES``.
    """

    family: str
    form: Form
    section: str

    @property
    def name(self) -> str:
        """The full instruction."""
        return self.form.name

    @property
    def minimum_ptx(self) -> Version:
        """What ``.version`` must be at least."""
        return self.form.minimum_ptx

    @property
    def minimum_targets(self) -> tuple[str, ...]:
        """The lowest targets that run it, one a family."""
        return self.form.minimum_targets


def _entries() -> Iterator[Entry]:
    for instruction in INSTRUCTIONS:
        yield Entry(instruction.family, instruction, instruction.section)
    for move in WMMA_MOVES:
        stores = move.opcode.startswith("wmma.store")
        title = "Store Instruction: wmma.store" if stores else "Load Instruction: wmma.load"
        yield Entry("wmma", move, f"Warp-level Matrix {title}")
    for load in LDMATRIX:
        title = "Warp-level matrix load instruction: ldmatrix"
        yield Entry("ldmatrix", load, title)
    for store in STMATRIX:
        title = "Warp-level matrix store instruction: stmatrix"
        yield Entry("stmatrix", store, title)
    title = "Warp-level matrix transpose instruction: movmatrix"
    yield Entry("movmatrix", MOVMATRIX, title)


ENTRIES: tuple[Entry, ...] = tuple(_entries())
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(entry.family for entry in ENTRIES))


def matching(name: str) -> tuple[Entry, ...]:
    """Return the instruction ``name``, or those that have every part of it, ``ldmatrix.x4.trans``.

    The nearest comes first: with the parts in this order, and the fewest more; else as in the table.
    Of a part with a prefix (``kind::mxf4``) the end is enough, and a state space of shared memory counts
    as ``shared``. Raises UnknownInstruction for none.
    """
    parts = ["shared" if part.startswith("shared::") else part for part in name.split(".") if part]
    found = [entry for entry in ENTRIES if parts and _holds(entry.name.split("."), parts)]
    if found:
        return tuple(sorted(found, key=lambda e: (not _in_order(e.name, parts), e.name.count("."))))
    raise UnknownInstruction(f"no matrix instruction is {name}", _nearest(parts))


def _nearest(parts: list[str]) -> tuple[str, ...]:
    """Return the names with the most of ``parts``, taking for a part nobody has the most alike."""
    known = {part for entry in ENTRIES for part in _parts(entry)}
    alike = [difflib.get_close_matches(part, known, n=1) for part in parts]
    wanted = [near[0] for near in alike if near]
    if not wanted:
        return FAMILIES

    def held(entry: Entry) -> int:
        return sum(part in _parts(entry) for part in wanted)

    ranked = sorted(ENTRIES, key=lambda entry: (-held(entry), entry.name.count(".")))
    return tuple(entry.name for entry in ranked[:_SUGGESTED])


def _parts(entry: Entry) -> set[str]:
    """Return what may stand in a description of ``entry``."""
    parts = entry.name.split(".")
    return {*parts, *(part.split("::")[-1] for part in parts)}


def _in_order(name: str, wanted: list[str]) -> bool:
    """Say whether ``wanted`` follow each other in ``name``, with others between them."""
    rest = iter(name.split("."))
    return all(any(want in (part, part.split("::")[-1]) for part in rest) for want in wanted)


def _holds(parts: list[str], wanted: list[str]) -> bool:
    """Say whether all ``wanted`` are among ``parts``; the types of A and B may be one word twice."""
    rest = [*parts]
    for want in wanted:
        held = next((part for part in rest if want in (part, part.split("::")[-1])), None)
        if held is None:
            return False
        rest.remove(held)
    return True
