"""From the accumulator of one ``mma`` to operand A of the next: which registers go where, and the PTX.

D has fewer columns than A, so several D, tiles side by side, make one A. Both layouts are asked, for
every element of A, which lane and register has it in D. Where that is the lane itself, conversion and
packing are all; elsewhere whole registers of packed elements are shuffled, two for a register of A,
and a ``prmt`` whose selector depends on the lane takes what belongs there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa import LANES, FragmentLayout, MatrixInstruction

CONVERSIONS = {
    ("f32", "f16"): "cvt.rn.f16x2.f32",
    ("f32", "bf16"): "cvt.rn.bf16x2.f32",
    ("f32", "tf32"): "cvt.rna.tf32.f32",
    ("f32", "e4m3"): "cvt.rn.satfinite.e4m3x2.f32",
    ("f32", "e5m2"): "cvt.rn.satfinite.e5m2x2.f32",
    ("s32", "s8"): "cvt.pack.sat.s8.s32.b32",
    ("s32", "u8"): "cvt.pack.sat.u8.s32.b32",
}
"""The instruction that converts one number of D, or packs two, the first into the upper half."""
_BYTES = 4

Word = tuple[int, int]
"""A register of D: tile and register."""
Source = tuple[int, Word, int]
"""Lane, register of D and element of it."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A register of elements of A's type, in the lane that has them: of ``words``, low bits first.

    ``whole`` says that it is a register of D as it stands.
    """

    words: tuple[Word, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Move:
    """How a register of A comes about: ``packed`` alone, or taken from shuffled registers.

    ``shuffles`` are (number of the packed register, source lane of every lane); ``selectors`` are the
    ``prmt`` selectors of every lane, of the first shuffled register and the second.
    """

    register: int
    packed: tuple[Packed, ...]
    shuffles: tuple[tuple[int, tuple[int, ...]], ...] = ()
    selectors: tuple[int, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it takes: none, or some of convert, pack, shuffle and prmt."""
        single = len(self.packed[0].words) == 1
        packs = () if self.packed[0].whole else ("convert",) if single else ("pack",)
        return (*packs, *(("shuffle", "prmt") if self.shuffles else ())) or ("none",)


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves for all registers of A of ``following``, from ``tiles`` D of ``first``."""

    first: MatrixInstruction
    following: MatrixInstruction
    tiles: int
    moves: tuple[Move, ...]

    @property
    def d(self) -> FragmentLayout:
        """The layout of one tile."""
        return self.first.operand("D")

    @property
    def a(self) -> FragmentLayout:
        """The layout the moves lead to."""
        return self.following.operand("A")

    @property
    def words(self) -> tuple[Word, ...]:
        """All registers of all tiles of D."""
        registers = range(self.d.registers_per_lane)
        return tuple((tile, register) for tile in range(self.tiles) for register in registers)


def moves(first: MatrixInstruction, following: MatrixInstruction) -> Moves:
    """Return the moves from D of ``first`` to A of ``following``.

    Raises Unsupported where the types have no conversion here, PtxlabError where the sizes do not go
    together.
    """
    for instruction in (first, following):
        if instruction.family == "wmma":
            raise Unsupported(
                f"PTX leaves the layout of {instruction.name} open", hint="take an mma"
            )
    if following.metadata:
        raise Unsupported(
            f"A of {following.name} is compressed", hint="take a dense mma as the next"
        )
    d, a = first.operand("D"), following.operand("A")
    if d.dtype != a.dtype and (d.dtype, a.dtype) not in CONVERSIONS:
        known = ", ".join(f"{source} to {target}" for source, target in CONVERSIONS)
        raise Unsupported(
            f"no moves from D of {d.dtype} to A of {a.dtype}",
            hint=f"there are some from {known}, and between equal types",
        )
    if d.rows != a.rows or a.cols % d.cols or d.matrices > 1 or a.matrices > 1:
        raise PtxlabError(
            f"no number of D {d.rows} x {d.cols} makes one A {a.rows} x {a.cols}",
            hint="take another instruction as the next, such as --moves m16n8k16.bf16",
        )
    found = tuple(_move(d, a, register) for register in range(a.registers_per_lane))
    return Moves(first, following, a.cols // d.cols, found)


def _sources(d: FragmentLayout, a: FragmentLayout, register: int) -> list[list[Source]]:
    """Return where the elements of a register of A are in D: [lane][element]."""
    found = []
    for lane in range(LANES):
        elements = []
        for i in range(a.elements_per_register):
            row, col = (int(index) for index in a.element(lane, register, i))
            tile, within = divmod(col, d.cols)
            (place,) = d.registers(row, within)
            elements.append((place.lane, (tile, place.register), place.element))
        found.append(elements)
    return found


def _move(d: FragmentLayout, a: FragmentLayout, register: int) -> Move:
    sources = _sources(d, a, register)
    stays = all(source[0] == lane for lane, each in enumerate(sources) for source in each)
    constant = all([s[1:] for s in each] == [s[1:] for s in sources[0]] for each in sources)
    if stays and constant:
        return Move(register, (_packed(sources[0], d, a),))
    if d.elements_per_register > 1:
        raise Unsupported(
            f"no moves from D of {d.elements_per_register} {d.dtype} a register to A of {a.dtype}",
            hint="an f32 accumulator has them",
        )
    words = sorted({word for each in sources for _, word, _ in each})
    size = a.elements_per_register
    packed = tuple(Packed(tuple(words[i : i + size]), False) for i in range(0, len(words), size))
    wanted = [[(words.index(w) // size, lane) for lane, w, _ in each] for each in sources]
    columns = [tuple(each[i] for each in wanted) for i in range(size)]
    shuffles = _shuffles(columns, len(packed))
    selectors = tuple(
        _selector(each, [words.index(w) for _, w, _ in sources[lane]], lane, shuffles, size)
        for lane, each in enumerate(wanted)
    )
    return Move(register, packed, shuffles, selectors)


def _packed(elements: list[Source], d: FragmentLayout, a: FragmentLayout) -> Packed:
    words = tuple(dict.fromkeys(word for _, word, _ in elements))
    return Packed(words, d.dtype == a.dtype)


def _shuffles(
    columns: list[tuple[tuple[int, int], ...]], packed: int
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return (packed register, source lanes): one for every way lanes choose a source lane."""
    lanes = dict.fromkeys(tuple(lane for _, lane in column) for column in columns)
    found = tuple((number, source) for source in lanes for number in range(packed))
    if len(found) > 2:
        raise Unsupported(f"a register of A would need {len(found)} shuffled registers")
    return found


def _selector(
    wanted: list[tuple[int, int]],
    words: list[int],
    lane: int,
    shuffles: tuple[tuple[int, tuple[int, ...]], ...],
    size: int,
) -> int:
    """Return the ``prmt`` selector of a lane: four hexadecimal digits, the lowest byte last."""
    width = _BYTES // size
    selector = 0
    for i, ((number, source), word) in enumerate(zip(wanted, words, strict=True)):
        which = next(
            n for n, (p, lanes) in enumerate(shuffles) if p == number and lanes[lane] == source
        )
        for byte in range(width):
            digit = _BYTES * which + width * (word % size) + byte
            selector |= digit << 4 * (width * i + byte)
    return selector
