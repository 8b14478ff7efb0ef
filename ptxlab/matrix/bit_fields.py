"""Functions of bits to bits: each bit out is an exclusive or of bits in, and so is the inverse.

The layout of a fragment is one, from (lane, register, element) to (row, col). It is found here by
asking the layout what each single bit does, and certified by comparing all places; its inverse is
found by elimination. Nothing is written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from ptxlab.matrix.fragment import FragmentLayout

Values = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class IndexVariable:
    """A number of ``bits`` bits."""

    name: str
    bits: int


@dataclass(frozen=True, slots=True)
class Field:
    """``bits`` bits of ``source`` from bit ``low`` on, moved to bit ``to``; ``whole``: up to its top."""

    source: str
    low: int
    bits: int
    to: int
    whole: bool

    @property
    def mask(self) -> int:
        """The mask after the shift."""
        return (1 << self.bits) - 1

    def take(self, value: int) -> int:
        """Return what the field contributes where its source is ``value``."""
        return (value >> self.low & self.mask) << self.to


@dataclass(frozen=True, slots=True)
class Assignment:
    """One number out: the exclusive or, which is also the sum unless ``overlaps``, of its fields."""

    variable: IndexVariable
    fields: tuple[Field, ...]

    @property
    def overlaps(self) -> bool:
        """Whether two fields reach the same bit."""
        masks = [field.mask << field.to for field in self.fields]
        return any(a & b for i, a in enumerate(masks) for b in masks[:i])

    @property
    def expression(self) -> str:
        """The formula, which Python, C and a reader take alike: ``(lane >> 2) + 8 * (element & 1)``."""
        terms = [_term(field) for field in self.fields]
        if len(terms) == 1:
            return terms[0].removeprefix("(").removesuffix(")") if terms[0][0] == "(" else terms[0]
        return (" ^ " if self.overlaps else " + ").join(terms) or "0"


def _term(field: Field) -> str:
    shifted = f"{field.source} >> {field.low}" if field.low else field.source
    text = shifted if field.whole else f"{shifted} & {field.mask}"
    if text != field.source:
        text = f"({text})"
    return f"{1 << field.to} * {text}" if field.to else text


@dataclass(frozen=True, slots=True)
class BitFields:
    """Numbers out as functions of the numbers ``inputs``."""

    inputs: tuple[IndexVariable, ...]
    outputs: tuple[Assignment, ...]

    def __call__(self, values: Values) -> dict[str, int]:
        """Return all numbers out."""
        results = {}
        for output in self.outputs:
            results[output.variable.name] = 0
            for field in output.fields:
                results[output.variable.name] ^= field.take(values[field.source])
        return results

    def inverse(self) -> BitFields:
        """Return the function back. Raises ValueError when there is none."""
        rows = _rows(self.inputs, [o.variable for o in self.outputs], self)
        return _from_rows(
            [o.variable for o in self.outputs], self.inputs, _inverted(rows, _width(self.inputs))
        )


def derive(
    inputs: Sequence[IndexVariable],
    outputs: Sequence[IndexVariable],
    function: Callable[[Values], Values],
) -> BitFields:
    """Return ``function`` as bit fields. Raises ValueError when it is none, found by trying all inputs."""
    formula = _from_rows(inputs, outputs, _rows(inputs, outputs, function))
    for numbers in product(*(range(1 << variable.bits) for variable in inputs)):
        values = {v.name: number for v, number in zip(inputs, numbers, strict=True)}
        if formula(values) != function(values):
            raise ValueError(f"no exclusive or of bits at {values}")
    return formula


@cache
def of_fragment(layout: FragmentLayout) -> BitFields:
    """Return (row, col) of (lane, register, element), as bit fields.

    The first is called ``thread`` where a warpgroup holds the matrix. ``matrix`` follows where the warp
    holds several, and ``copy`` where registers hold copies. An accumulator whose columns are no power of
    two has the fields of one with more columns, whose first registers are all of its own. Raises ValueError
    for other sizes that are no powers of two.
    """
    if layout.kind == "accumulator":
        layout = replace(layout, cols=1 << (layout.cols - 1).bit_length())
    holder = layout.holder
    inputs = (
        IndexVariable(holder, _log2(layout.threads)),
        IndexVariable("register", _log2(layout.registers_per_lane)),
        IndexVariable("element", _log2(layout.elements_per_register)),
    )
    outputs = [IndexVariable("row", _log2(layout.rows)), IndexVariable("col", _log2(layout.cols))]
    if layout.matrices > 1:
        outputs.append(IndexVariable("matrix", _log2(layout.matrices)))
    if layout.copies > 1:
        outputs.append(IndexVariable("copy", _log2(layout.copies)))
    distinct = layout.registers_per_lane // layout.copies
    table = layout.table().tolist()

    def function(at: Values) -> Values:
        row, col = table[at[holder]][at["register"]][at["element"]]
        matrix, copy = layout.matrix(at[holder]), at["register"] // distinct
        known = {"row": row, "col": col, "matrix": int(matrix), "copy": copy}
        return {output.name: known[output.name] for output in outputs}

    return derive(inputs, outputs, function)


def _log2(size: int) -> int:
    if size & (size - 1):
        raise ValueError(f"{size} is no power of two")
    return size.bit_length() - 1


def _width(variables: Sequence[IndexVariable]) -> int:
    return sum(variable.bits for variable in variables)


def _bits(variables: Sequence[IndexVariable]) -> list[tuple[IndexVariable, int]]:
    return [(variable, bit) for variable in variables for bit in range(variable.bits)]


def _rows(
    inputs: Sequence[IndexVariable],
    outputs: Sequence[IndexVariable],
    function: Callable[[Values], Values],
) -> list[int]:
    """Return for each bit out the bits in that it is the exclusive or of, as a mask."""
    rows = [0] * _width(outputs)
    for number, (variable, bit) in enumerate(_bits(inputs)):
        values = {v.name: 0 for v in inputs} | {variable.name: 1 << bit}
        results = function(values)
        for row, (output, out_bit) in enumerate(_bits(outputs)):
            rows[row] |= (results[output.name] >> out_bit & 1) << number
    return rows


def _inverted(rows: list[int], width: int) -> list[int]:
    """Invert a matrix of bits by Gauss-Jordan elimination."""
    if len(rows) != width:
        raise ValueError(f"{width} bits in, {len(rows)} out: no inverse")
    left, right = [*rows], [1 << i for i in range(width)]
    for column in range(width):
        pivot = next((r for r in range(column, width) if left[r] >> column & 1), None)
        if pivot is None:
            raise ValueError("different inputs have the same result: no inverse")
        for side in (left, right):
            side[column], side[pivot] = side[pivot], side[column]
        for row in range(width):
            if row != column and left[row] >> column & 1:
                left[row] ^= left[column]
                right[row] ^= right[column]
    return right


def _from_rows(
    inputs: Sequence[IndexVariable], outputs: Sequence[IndexVariable], rows: list[int]
) -> BitFields:
    sources = _bits(inputs)
    assignments = []
    first = 0
    for output in outputs:
        moved = [
            (*sources[number], bit)
            for bit in range(output.bits)
            for number in range(len(sources))
            if rows[first + bit] >> number & 1
        ]
        assignments.append(Assignment(output, _runs(moved)))
        first += output.bits
    return BitFields(tuple(inputs), tuple(assignments))


def _runs(moved: list[tuple[IndexVariable, int, int]]) -> tuple[Field, ...]:
    """Join (source, bit, bit out) to runs of neighbours that move by the same distance."""
    rest = sorted(moved, key=lambda move: (move[2] - move[1], move[0].name, move[1]))
    fields: list[Field] = []
    while rest:
        source, low, to = rest.pop(0)
        bits = 1
        while rest and rest[0] == (source, low + bits, to + bits):
            rest.pop(0)
            bits += 1
        fields.append(Field(source.name, low, bits, to, low + bits == source.bits))
    return tuple(sorted(fields, key=lambda field: (field.to, field.source)))
