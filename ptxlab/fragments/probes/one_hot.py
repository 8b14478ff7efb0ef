"""What goes into a multiplication so that D tells where each element of each operand is.

Of one factor a single column of A, or row of B, is ones; the other factor is numbered. D then shows
the column, or row, of numbers that met the ones, and nothing else: a wrong row, column or k of any
element of A or B is a wrong number in D. The numbers take several rounds where a type has fewer of
them than a matrix has elements. C is numbered over a product of zeros. With metadata, ones and numbers
meet as it says, and every pattern comes to stand in every place; of scales, each byte of each lane is
another power of two.

A multiplication cannot tell apart what is renamed on both sides: k in A and in B, rows in A, C and D,
columns in B, C and D. Loads, and the handwritten programs, tie the names to memory.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" and "mma.sp", "Block Scaling for mma.sync".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.numbers import Fill, Numbers, OperandLayout, contents, numbers
from ptxlab.isa.targets import WARP
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import Metadata
from ptxlab.numbers.formats import FORMATS

Probed = Literal["A", "B", "C", "E", "scale-A", "scale-B"]
"""The operand that a probe looks at; E is the metadata."""

_FIRST_HALF, _LAST_HALF = 0b0100, 0b1110
"""Metadata, of every type, that keeps the first, and the last, half of each chunk."""
_POWERS = np.arange(-4, 4)
"""Exponents of scales: no target cuts anything off a sum of numbers so near to each other."""
_AT_ONCE = 512
"""Products made in one go."""


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """Launches of one warp each that look at the operand ``probed``.

    ``given`` has by operand the different contents that occur: A, B and C as indices of their
    numbers, [..., rows, cols] (with the matrices before them where a warp has several); E as the values
    of chunks, [..., selectors, rows, chunks]; scale-A and scale-B as registers, [..., 32]. ``chosen``
    has by operand which of these each probe takes, the first if it says nothing. ``at`` is what a
    probe looks at: the column of A or E (of A's compressed form), the row of B, the block of a scale;
    where a warp has several matrices, counted through all of them. Of several bits it is the first. ``own`` are
    the numbers of operands whose elements are other than those that tell places apart.
    """

    probed: Probed
    given: dict[str, Array]
    chosen: dict[str, Array]
    at: Array
    own: dict[str, Numbers] = field(default_factory=dict)

    def numbers(self, name: str, layout: OperandLayout) -> Numbers:
        """Return the numbers that the contents of operand ``name`` are indices of."""
        return self.own.get(name) or numbers(layout)

    @property
    def count(self) -> int:
        return len(self.at)

    def of(self, operand: str, probes: slice = slice(None)) -> Array:
        chosen = self.chosen.get(operand, np.zeros(self.count, np.int64))
        return np.asarray(self.given[operand][chosen[probes]])


def layout_probes(form: MatrixInstruction, operands: str = "ABC") -> tuple[Probes, ...]:
    """Return what tells the places of the elements of ``operands``, with all selectors 0."""
    makers: dict[str, Callable[[MatrixInstruction], Probes]] = {
        "A": partial(_of_factor, "A"),
        "B": partial(_of_factor, "B"),
        "C": _of_c,
    }
    return tuple(makers[operand](form) for operand in operands)


def metadata_probes(form: MatrixInstruction) -> tuple[Probes, ...]:
    """Return what tells the place and the meaning of metadata, for every sparsity selector.

    A has one column of ones, and a row of B is its k in digits.
    """
    assert form.metadata is not None
    kept = form.held("A").cols
    sets = _every_pattern(form.metadata)
    digits = _digits(form.k, len(numbers(form.held("B")).values) - 1)
    b = np.ones((form.k, form.n), np.int64)
    b[:, : len(digits)] += digits.T
    chosen, columns = _pairs(len(sets), kept)
    given = _plain(form) | {"A": _lines(form.held("A")), "B": b[np.newaxis], "E": sets}
    return (Probes("E", given, {"A": columns, "E": chosen}, columns),)


def scale_probes(form: MatrixInstruction) -> tuple[Probes, ...]:
    """Return what tells the places of the scales of A and of B, for every selector.

    Ones meet ones in a single k of every block.
    """
    depth = _depth(form)
    blocks = form.scales[0].blocks
    columns = np.arange(blocks) * (form.held("A").cols // blocks)
    given = _plain(form) | {
        "A": _lines(form.held("A"))[columns],
        "B": _lines(form.held("B"))[depth.row[columns]],
    }
    probes = []
    for scale in form.scales:
        codes = _every_byte(scale)
        chosen, block = _pairs(len(codes), blocks)
        name: Probed = "scale-A" if scale.operand == "A" else "scale-B"
        probes.append(
            Probes(name, given | {name: codes}, {"A": block, "B": block, name: chosen}, block)
        )
    return tuple(probes)


def filled_probe(form: MatrixInstruction, fill: Fill) -> Probes:
    given, own = _plain(form), {}
    for name in "ABC":
        own[name], which = contents(form.held(name), fill)
        given[name] = which[np.newaxis]
    return Probes("C", given, {}, np.zeros(1, np.int64), own)


def selectors(form: MatrixInstruction) -> tuple[tuple[int, ...], ...]:
    """Return choices of the instruction's constants, in the order PTX writes them.

    Each sparsity selector, each byte-id and thread-id of A's scales and each of B's are in one.
    """
    lists: list[list[tuple[int, ...]]] = []
    if form.metadata is not None:
        lists.append([(selector,) for selector in form.metadata.selectors])
    lists += [
        [(byte, thread) for thread in scale.thread_ids for byte in scale.byte_ids]
        for scale in form.scales
    ]
    longest = max(map(len, lists), default=1)
    return tuple(sum((each[i % len(each)] for each in lists), ()) for i in range(longest))


def products(form: MatrixInstruction, probes: Probes, constants: Sequence[int]) -> Array:
    """Return D of every probe in float64, by NumPy, for one choice of the constants.

    It is exact: a sum of numbers that has at most one term but C that is not a small integer.
    """
    starts = range(0, probes.count, _AT_ONCE)
    return np.concatenate(
        [_product(form, probes, constants, slice(at, at + _AT_ONCE)) for at in starts]
    )


def _product(
    form: MatrixInstruction, probes: Probes, constants: Sequence[int], some: slice
) -> Array:
    a, b, c = (
        probes.numbers(name, form.held(name)).values[probes.of(name, some)] for name in "ABC"
    )
    constants = list(constants)
    if form.metadata is not None:
        a = form.metadata.expand(a, probes.of("E", some)[:, constants.pop(0)])
    for scale in form.scales:
        byte, thread = constants.pop(0), constants.pop(0)
        words = probes.of(f"scale-{scale.operand}", some)
        factors = _scale_values(scale, scale.unpack(words, byte, thread))
        spread = np.repeat(factors, form.k // scale.blocks, axis=-1)
        if scale.operand == "A":
            a = a * spread
        else:
            b = b * np.swapaxes(spread, -1, -2)
    d = a @ b
    if form.bit_operation == "xor":  # the bits set in one of two, of as many as are set in either
        d = a.sum(axis=-1)[..., np.newaxis] + b.sum(axis=-2)[..., np.newaxis, :] - 2 * d
    return np.asarray(d + c)


@dataclass(frozen=True, slots=True, eq=False)
class _Depth:
    """Where A and B meet: ``column`` of A and ``row`` of B, with the metadata of that number."""

    column: Array
    row: Array
    metadata: Array


def _depth(form: MatrixInstruction) -> _Depth:
    """Return, for every element along k (of every matrix of the warp), who meets whom."""
    if form.metadata is None:
        along = np.arange(form.k * form.held("A").matrices)
        return _Depth(along, along, np.zeros_like(along))
    patterns = _base_patterns(form.metadata)[:, :1]
    rows = form.metadata.columns(patterns[:, 0, :1])[:, 0]
    chosen, columns = _pairs(*rows.shape)
    return _Depth(columns, rows.ravel(), chosen)


def _of_factor(probed: Literal["A", "B"], form: MatrixInstruction) -> Probes:
    """Return the probes of A or B: it is numbered, and the other has ones where the two meet."""
    if form.bit_operation:
        return _of_bits(probed, form)
    other = "B" if probed == "A" else "A"
    depth = _depth(form)
    places = {"A": depth.column, "B": depth.row}
    numbered = _numbered(form.held(probed))
    rounds, at = _pairs(len(numbered), len(depth.row))
    given = _plain(form) | {probed: numbered, other: _lines(form.held(other))}
    chosen = {probed: rounds, other: places[other][at], "E": depth.metadata[at]}
    return Probes(probed, given, chosen, places[probed][at])


def _of_bits(probed: Literal["A", "B"], form: MatrixInstruction) -> Probes:
    """Return those of bits, which are many: ones are a byte of every line, or a bit of every byte."""
    other = "B" if probed == "A" else "A"
    byte, bit = np.divmod(np.arange(form.k), 8)
    ones = np.concatenate(
        [byte == np.arange(form.k // 8)[:, np.newaxis], bit == np.arange(8)[:, np.newaxis]]
    )
    of_line = ones[:, np.newaxis, :] if other == "A" else ones[..., np.newaxis]
    lines = np.broadcast_to(of_line, (len(ones), *_shape(form.held(other)))).astype(np.int64)
    numbered = _numbered(form.held(probed))
    rounds, at = _pairs(len(numbered), len(ones))
    given = _plain(form) | {probed: numbered, other: lines}
    return Probes(probed, given, {probed: rounds, other: at}, ones.argmax(axis=1)[at])


def _of_c(form: MatrixInstruction) -> Probes:
    given = _plain(form) | {"C": _numbered(form.held("C"))}
    rounds = np.arange(len(given["C"]))
    return Probes("C", given, {"C": rounds}, rounds)


def _plain(form: MatrixInstruction) -> dict[str, Array]:
    """Return zeros for A, B and C, metadata that keeps a half of every chunk, and scales of one."""
    codes: dict[str, Array] = {
        name: np.zeros((1, *_shape(form.held(name))), np.int64) for name in "ABC"
    }
    if form.metadata is not None:
        codes["E"] = _base_patterns(form.metadata)
    for scale in form.scales:
        one_code = int(_scale_codes(scale)[np.flatnonzero(_POWERS == 0)[0]])
        codes[f"scale-{scale.operand}"] = np.full((1, WARP), one_code * 0x01010101, np.uint32)
    return codes


def _shape(layout: OperandLayout) -> tuple[int, ...]:
    several = (layout.matrices,) if layout.matrices > 1 else ()
    return (*several, layout.rows, layout.cols)


def _lines(layout: OperandLayout) -> Array:
    """Return matrices of zeros with ones in one column of A, or in one row of B, each in turn."""
    depth = layout.cols if layout.operand == "A" else layout.rows
    count = depth * layout.matrices
    indices = np.zeros((count, layout.matrices, layout.rows, layout.cols), np.int64)
    for number in range(count):
        matrix, line = divmod(number, depth)
        at = (slice(None), line) if layout.operand == "A" else (line, slice(None))
        indices[(number, matrix, *at)] = numbers(layout).one
    return indices.reshape(count, *_shape(layout))


def _numbered(layout: OperandLayout) -> Array:
    """Return rounds of numbers, no two elements the same in all of them, and none of them zero.

    One bit has no two numbers but zero: before its rounds come one of zeros and one of ones.
    """
    elements = layout.matrices * layout.rows * layout.cols
    count = len(numbers(layout).values) - 1
    if count == 1:
        constant = np.repeat([[0], [1]], elements, axis=1)
        rounds = np.concatenate([constant, _digits(elements, 2)])
    else:
        rounds = 1 + _digits(elements, count)
    return rounds.reshape(-1, *_shape(layout))


def _digits(elements: int, base: int) -> Array:
    """Return the digits of 0, 1, ..., the low one first: [digits, elements]."""
    rest = np.arange(elements)
    digits = [rest % base]
    while (rest := rest // base).any():
        digits.append(rest % base)
    return np.array(digits)


def _pairs(first: int, second: int) -> tuple[Array, Array]:
    pairs = np.indices((first, second)).reshape(2, -1)
    return pairs[0], pairs[1]


def _base_patterns(metadata: Metadata) -> Array:
    """Return two sets, [2, selectors, rows, chunks], that between them keep all, where selectors differ."""
    sets = np.arange(2)[:, np.newaxis] + np.arange(len(metadata.selectors))
    halves = np.array((_FIRST_HALF, _LAST_HALF))[sets % 2]
    shape = (*halves.shape, metadata.rows, metadata.chunks)
    return np.asarray(np.broadcast_to(halves[..., np.newaxis, np.newaxis], shape))


def _every_pattern(metadata: Metadata) -> Array:
    """Return sets in which each place has every pattern, and no two places the same ones throughout."""
    shape = (len(metadata.selectors), metadata.rows, metadata.chunks)
    index = np.arange(np.prod(shape))
    count = len(metadata.allowed)
    turns = (np.arange(count)[:, np.newaxis] + index) % count
    chosen = np.concatenate([turns, _digits(len(index), count)])
    return np.asarray(np.array(metadata.allowed)[chosen].reshape(-1, *shape))


def _every_byte(scale: Scale) -> Array:
    """Return registers, [rounds, 32], no two bytes of which are the same powers of two throughout."""
    codes = _scale_codes(scale)[_digits(4 * WARP, len(_POWERS))].astype(np.uint8)
    return np.asarray(codes.reshape(-1, WARP, 4).view(np.uint32)[..., 0])


def _scale_codes(scale: Scale) -> Array:
    """Return the scales that are 2 to the ``_POWERS``."""
    powers: Array = 2.0**_POWERS
    return np.asarray(powers.astype(FORMATS[scale.dtype].dtype).view(np.uint8))


def _scale_values(scale: Scale, codes: Array) -> Array:
    return np.asarray(codes.view(FORMATS[scale.dtype].dtype), np.float64)
