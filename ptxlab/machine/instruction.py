"""One instruction of a kernel's machine code, with its operands, its row and its control bits."""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.machine.control import Control
from ptxlab.machine.operands import Immediate, Operand, Predicate, SassRegister
from ptxlab.machine.row import Compute, Row
from ptxlab.machine.sass import SassInstruction


@dataclass(frozen=True, slots=True)
class DecodedInstruction:
    """One instruction, ``number`` among those of the kernel and what it calls.

    ``row`` says what it does, None where nobody knows it. ``dest`` is the register it writes, ``outs`` are the
    predicates it writes, ``sources`` what it reads, ``ins`` the predicates behind them. ``target`` is the number that
    a branch goes to; of one that goes where a register says, ``targets`` are those that it may go to.
    """

    number: int
    sass: SassInstruction
    row: Row | None
    control: Control
    guard: Predicate | None
    operands: tuple[Operand, ...]
    dest: SassRegister | None
    outs: tuple[Predicate, ...]
    sources: tuple[Operand, ...]
    ins: tuple[Predicate, ...]
    target: int | None
    targets: tuple[int, ...] = ()

    def has(self, modifier: str) -> bool:
        return modifier in self.sass.modifiers

    @property
    def known(self) -> Row:
        """The row of an instruction that has one."""
        assert self.row is not None, self.sass.text
        return self.row

    @property
    def written(self) -> int:
        """How many registers in a row it writes."""
        return self.known.written(self.sass.modifiers)

    @property
    def loaded_halves(self) -> tuple[tuple[Operand, int], ...]:
        """What a load of 256 bits writes, the lower half first: the first register of each, and a mask of its four words.

        The upper half is named first. What is loaded of a half is in registers that follow each other.
        """
        if not (self.has("256") and self.known.loads):
            return ()
        upper, lower = self.operands[:2]
        mask = next((o.value for o in self.operands if isinstance(o, Immediate)), 0xFF)
        return (lower, mask & 15), (upper, mask >> 4)

    @property
    def takes_pairs(self) -> bool:
        """Whether its sources have 64 bits."""
        return any(map(self.has, self.row.of_pairs if self.row else ("64",)))

    @property
    def does(self) -> str:
        """What it does beside computing, as its row says."""
        return self.row.does if self.row else ""

    @property
    def copies_out(self) -> bool:
        """Whether a bulk copy goes to global memory: of bytes in a row the first modifier says so."""
        return self.known.stores and (not self.known.loads or self.sass.modifiers[0] == "G")

    def computed(self, floats: bool) -> Compute | None:
        """Return what computes it, None where nothing does; ``floats`` says whether all of f32 is computed."""
        row = self.row
        if row is None or (self.takes_pairs and not row.pairs) or (row.floats and not floats):
            return None
        return row.compute

    def is_wide(self, operand: Operand) -> bool:
        """Say whether an address of an instruction has 64 bits."""
        space = self.known.space
        return space in ("global", "generic") or (space == "copy" and operand is self.operands[1])
