"""Every matrix instruction of the tables under one roof, whatever its family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ptxlab.errors import nearest
from ptxlab.matrix.asynchronous import AsyncInstruction
from ptxlab.matrix.catalog import INSTRUCTIONS, UnknownInstruction, in_order
from ptxlab.matrix.instruction import MatrixInstruction, Needing, Version
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX, LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.tcgen05 import TCGEN05
from ptxlab.matrix.tensor_memory import TENSOR_MEMORY_MOVES, TensorMemoryMove
from ptxlab.matrix.wgmma import WGMMA, WGMMA_ORDER
from ptxlab.matrix.wmma import WMMA_MOVES, WmmaMove

Form = (
    MatrixInstruction
    | LdMatrix
    | StMatrix
    | MovMatrix
    | WmmaMove
    | TensorMemoryMove
    | AsyncInstruction
)

WHERE_A_LIES = {"rs": "registers", "ss": "shared memory", "ts": "Tensor Memory"}
"""What a variant says."""

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
    def variant(self) -> str:
        """What tells it from others of its name, ``rs`` or ``ss``; nothing where there are none."""
        form = self.form
        return form.variant if isinstance(form, MatrixInstruction | AsyncInstruction) else ""

    @property
    def key(self) -> str:
        """The name, and the variant where one name has several: what no other entry has."""
        return f"{self.name}.{self.variant}" if self.variant else self.name

    @property
    def minimum_ptx(self) -> Version:
        """What ``.version`` must be at least."""
        return self.form.minimum_ptx

    @property
    def minimum_targets(self) -> tuple[str, ...]:
        """The lowest targets that run it, one a family."""
        return self.form.minimum_targets


def _entries() -> Iterator[Entry]:
    moves: tuple[Form, ...] = (*WMMA_MOVES, *LDMATRIX, *STMATRIX, MOVMATRIX)
    asynchronous: tuple[Form, ...] = (*WGMMA, *WGMMA_ORDER, *TCGEN05, *TENSOR_MEMORY_MOVES)
    for form in (*INSTRUCTIONS, *moves, *asynchronous):
        yield Entry(form.family, form, form.section)


ENTRIES: tuple[Entry, ...] = tuple(_entries())
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(entry.family for entry in ENTRIES))


def matching(name: str) -> tuple[Entry, ...]:
    """Return the instruction ``name``, or those that have every part of it, ``ldmatrix.x4.trans``.

    The nearest comes first: with the parts in this order, as whole parts, and the fewest more; else as
    in the table.
    Of a part with a prefix (``kind::mxf4``) the end is enough, and a state space of shared memory counts
    as ``shared``; the parts ``rs``, ``ss`` and ``ts`` say where A lies. Raises UnknownInstruction for
    none.
    """
    wanted = _plain(name)
    parts = [part for part in wanted.split(".") if part]
    found = [
        (not in_order(plain, wanted), _shortened(plain, parts), entry.name.count("."), number)
        for number, (entry, plain, words) in enumerate(_described())
        if parts and words.issuperset(parts) and _holds(plain.split("."), parts)
    ]
    if found:
        return tuple(ENTRIES[number] for *_, number in sorted(found))
    raise UnknownInstruction(f"no matrix instruction is {name}", _nearest(parts))


@cache
def _described() -> tuple[tuple[Entry, str, frozenset[str]], ...]:
    """Return every entry with its plain name and all words that may describe it."""
    plain = [_plain(entry.key) for entry in ENTRIES]
    return tuple((e, name, _words(name)) for e, name in zip(ENTRIES, plain, strict=True))


def _plain(name: str) -> str:
    """Return a name in which every state space of shared memory is ``shared``."""
    return name.replace("shared::cta", "shared").replace("shared::cluster", "shared")


def _words(name: str) -> frozenset[str]:
    """Return what may stand in a description of an instruction of that name."""
    parts = name.split(".")
    return frozenset((*parts, *(part.split("::")[-1] for part in parts)))


def _shortened(plain: str, wanted: list[str]) -> int:
    """Count the parts that are only the end of one with a prefix, as ``ld`` is of ``wait::ld``."""
    return len(set(wanted).difference(plain.split(".")))


def _nearest(parts: list[str]) -> tuple[str, ...]:
    """Return the names with the most of ``parts``, taking for a part nobody has the most alike."""
    known = frozenset().union(*(words for _, _, words in _described()))
    alike = [nearest(part, known) for part in parts]
    wanted = [near[0] for near in alike if near]
    if not wanted:
        return FAMILIES
    held = {entry.name: sum(w in words for w in wanted) for entry, _, words in _described()}
    ranked = sorted(held, key=lambda name: (-held[name], name.count(".")))
    return tuple(ranked[:_SUGGESTED])


def _holds(parts: list[str], wanted: list[str]) -> bool:
    """Say whether all ``wanted`` are among ``parts``; the types of A and B may be one word twice."""
    rest = [*parts]
    for want in wanted:
        held = next((part for part in rest if want in (part, part.split("::")[-1])), None)
        if held is None:
            return False
        rest.remove(held)
    return True
