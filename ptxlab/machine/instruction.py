"""One instruction of a kernel's machine code, with its operands, its row and its control bits."""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.machine.control import Control
from ptxlab.machine.operands import (
    URZ,
    ZERO_REGISTER,
    Immediate,
    Operand,
    Predicate,
    SassRegister,
)
from ptxlab.machine.row import Row, accessed_bytes
from ptxlab.machine.sass import SassInstruction

_HALF = 4
"""The words of half of a load or a store of 256 bits."""
_EVERY_WORD = 0xFF


def _in_a_row(first: Operand | None, count: int) -> tuple[int, ...]:
    """Return the numbers of so many registers behind each other, of the zero register itself."""
    if not isinstance(first, SassRegister) or first.number in (ZERO_REGISTER, URZ):
        return (ZERO_REGISTER,) * count
    return tuple(range(first.number, first.number + count))


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
    def multiplies_matrices(self) -> bool:
        """Whether tensor cores do it."""
        return self.row is not None and (
            self.row.pipe == "tensor" or self.row.does in ("product", "tensor product")
        )

    @property
    def written(self) -> int:
        """How many registers in a row it writes."""
        return self.known.written(self.sass.modifiers)

    @property
    def loaded(self) -> tuple[int, ...]:
        """The register of each word that a load has, in the order of memory: the zero register where it is not kept.

        A load of 256 bits names the register of its upper half first, then that of its lower one, and which words it keeps.
        """
        if not self.has("256"):
            return _in_a_row(self.dest, self.words)
        upper, lower = self.operands[:2]
        mask = next((o.value for o in self.operands if isinstance(o, Immediate)), _EVERY_WORD)
        numbers: list[int] = []
        for first, kept in ((lower, mask), (upper, mask >> _HALF)):
            held = iter(_in_a_row(first, _HALF))
            numbers += [next(held) if kept >> n & 1 else ZERO_REGISTER for n in range(_HALF)]
        return tuple(numbers)

    @property
    def words(self) -> int:
        """The registers that a thread accesses memory with."""
        return max(accessed_bytes(self.sass.modifiers) // 4, 1)

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

    @property
    def sums_pairs(self) -> bool:
        """Whether its third source has 64 bits: of an integer product the upper half is told, too, or alone."""
        return any(map(self.has, self.known.sums_pairs))

    def computed(self, floats: bool) -> bool:
        """Say whether it is computed; ``floats`` says whether all of floating-point numbers is."""
        row = self.row
        return row is not None and row.lifted and (floats or not row.floats)

    def is_wide(self, operand: Operand) -> bool:
        """Say whether an address of an instruction has 64 bits."""
        space = self.known.space
        return space in ("global", "generic") or (space == "copy" and operand is self.operands[1])
