"""The results of looking at an instruction's fragments: plain data, drawn by ``ptxlab.view``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ptxlab.arrays import Array
from ptxlab.fragments.numbers import Fill
from ptxlab.isa.targets import Target
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout, Place

MismatchPlace = Literal["register", "memory", "product"]


@dataclass(frozen=True, slots=True, eq=False)
class FragmentRun:
    """One launch of one warp or warpgroup on what ``fill`` means.

    ``registers`` holds the words each thread had of every operand, [threads, registers]: of those in ``after``
    after the instruction, of others before it. ``result`` is D as the program left it in memory, bit
    patterns, [rows, cols] (of several matrices [matrices, rows, cols]); None where there is none.
    """

    fill: Fill
    registers: dict[str, Array]
    after: frozenset[str]
    result: Array | None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One element that is not what was predicted; ``expected`` and ``actual`` are bit patterns.

    ``where`` is "register" for what a lane held at the instruction, and "memory" for what the
    program stored; then lane, register and element name the place that should have stored it. It is
    "product" for what D showed of the element that a one-hot probe looks at; then the bit patterns are
    those of D. ``operand`` is that of the element: A, B, C, D or R, E for metadata, scale-A or scale-B.
    Elements are ``bits`` wide, and those in shared memory have no lane, register and element. What shows in
    Tensor Memory does so in ``column`` of the lane; T is what lies there by itself.
    """

    fill: str
    where: MismatchPlace
    operand: str
    lane: int | None
    register: int | None
    element: int | None
    row: int
    col: int
    expected: int
    actual: int
    bits: int
    column: int | None = None

    @classmethod
    def of_cell(
        cls,
        fill: str,
        operand: str,
        element: tuple[int, int],
        cell: tuple[int, int],
        expected: int,
        actual: int,
        bits: int = 32,
    ) -> Mismatch:
        """Return that of an element that shows in a cell of Tensor Memory, by lane and column."""
        lane, column = cell
        row, col = element
        where: MismatchPlace = "memory" if operand == "T" else "product"
        place = (lane, None, None, row, col)
        return cls(fill, where, operand, *place, expected, actual, bits, column)

    @classmethod
    def of(
        cls,
        fill: str,
        where: MismatchPlace,
        layout: FragmentLayout,
        place: Place,
        expected: int,
        actual: int,
    ) -> Mismatch:
        """Return that of the element of an operand that has this place."""
        row, col = map(int, layout.element(*place))
        return cls(fill, where, layout.operand, *place, row, col, expected, actual, layout.bits)

    @property
    def low_bit(self) -> int:
        return (self.element or 0) * self.bits

    @property
    def high_bit(self) -> int:
        return self.low_bit + self.bits - 1

    def shown_bits(self, form: Form) -> int:
        """The width of those."""
        if self.column is not None:
            return self.bits
        return form.operand(self.shown_by).bits

    @property
    def shown_by(self) -> str:
        """The operand whose elements ``expected`` and ``actual`` are."""
        return "D" if self.where == "product" else self.operand


@dataclass(frozen=True, slots=True, eq=False)
class FragmentReport:
    """What was seen of an instruction on a device, and how it compares with the prediction.

    ``runs`` starts with the fill that was asked for; of a handwritten program the launches that settle
    the layouts follow, of a generated one as many ``probes`` did. ``hardware`` names the GPU whose
    register dump confirms the layouts, None without one. ``own_layout`` says that registers are other
    than here where PTX leaves that to the target. ``explained`` says of a handwritten program in sentences
    what registers hold that should not.
    """

    instruction: Form
    device_kind: str
    device_name: str
    target: Target
    runs: tuple[FragmentRun, ...]
    probes: int
    mismatches: tuple[Mismatch, ...]
    hardware: str | None
    own_layout: bool = False
    explained: tuple[str, ...] = ()

    @property
    def shown(self) -> FragmentRun:
        """The launch of the fill that was asked for."""
        return self.runs[0]

    def bits(self, layout: FragmentLayout, place: Place) -> int:
        """Return the bit pattern of an element that was dumped at its place."""
        word = self.shown.registers[layout.operand][place.lane, place.register]
        return element_bits(layout, int(word), place.element)

    @property
    def layout_verified(self) -> bool:
        """Whether every element was where the layouts say, in all launches."""
        wheres = {mismatch.where for mismatch in self.mismatches}
        return not self.own_layout and wheres <= {"memory"}

    @property
    def result_verified(self) -> bool:
        """Whether the program made and stored the right D, in all launches."""
        return not any(mismatch.where in ("memory", "product") for mismatch in self.mismatches)

    @property
    def passed(self) -> bool:
        return not self.mismatches


def differences(
    layout: FragmentLayout, expected: int, actual: int, count: int = 0
) -> Iterator[tuple[int, int, int]]:
    """Yield number and both bit patterns of the elements that differ between two words.

    Those are registers, or hold ``count`` elements.
    """
    for element in range(count or layout.elements_per_register):
        right, wrong = (element_bits(layout, word, element) for word in (expected, actual))
        if right != wrong:
            yield element, right, wrong


def element_bits(layout: FragmentLayout, word: int, element: int) -> int:
    return (word >> (element * layout.bits)) & ((1 << layout.bits) - 1)
