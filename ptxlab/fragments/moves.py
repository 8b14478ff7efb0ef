"""From the accumulator of one ``mma`` to operand A of the next: which registers go where, and the PTX.

D has fewer columns than A, so several D, tiles side by side, make one A. Both layouts are asked, for
every element of A, which lane and register has it in D. Where that is the lane itself, conversion and
packing are all; elsewhere whole registers of packed elements are shuffled, two for a register of A,
and a ``prmt`` whose selector depends on the lane takes what belongs there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.matrix.bit_fields import IndexVariable, derive
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction

CONVERSIONS = {
    ("f16", "f16"): "",
    ("f16", "e4m3"): "cvt.rn.satfinite.e4m3x2.f16x2",
    ("f16", "e5m2"): "cvt.rn.satfinite.e5m2x2.f16x2",
    ("f32", "f16"): "cvt.rn.f16x2.f32",
    ("f32", "bf16"): "cvt.rn.bf16x2.f32",
    ("f32", "tf32"): "cvt.rna.tf32.f32",
    ("f32", "e4m3"): "cvt.rn.satfinite.e4m3x2.f32",
    ("f32", "e5m2"): "cvt.rn.satfinite.e5m2x2.f32",
    ("s32", "s8"): "cvt.pack.sat.s8.s32.b32",
    ("s32", "u8"): "cvt.pack.sat.u8.s32.b32",
}
"""What converts one register of D, or packs two, the first into the upper half; "" if nothing need."""
_BYTES = 4

Word = tuple[int, int]
"""A register of D: tile and register."""
TileItem = tuple[int, int, int]
"""An element of a lane's share of D: tile, register, element of it."""
LaneItem = tuple[int, TileItem]
"""Lane, and what it has."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A register of elements of A's type, in the lane that has them: of ``items``, low bits first.

    ``whole`` says that it is a register of D as it stands.
    """

    items: tuple[TileItem, ...]
    whole: bool = False

    @property
    def words(self) -> tuple[Word, ...]:
        return tuple(dict.fromkeys((tile, register) for tile, register, _ in self.items))


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
        packed = self.packed[0]
        packs = () if packed.whole else ("convert",) if len(packed.items) == 1 else ("pack",)
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
        return _tile(self.first.operand("D"), self.a)

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
    """Return the moves from D of ``first`` to A of ``following``, the first A where one D makes several.

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
    a = following.operand("A")
    d = _tile(first.operand("D"), a)
    if (d.dtype, a.dtype) not in CONVERSIONS:
        known = ", ".join(f"{source} to {target}" for source, target in CONVERSIONS)
        raise Unsupported(
            f"no moves from D of {d.dtype} to A of {a.dtype}", hint=f"there are some from {known}"
        )
    if d.rows != a.rows or a.cols % d.cols or d.matrices > 1 or a.matrices > 1:
        raise PtxlabError(
            f"no number of D {d.rows} x {d.cols} makes one A {a.rows} x {a.cols}",
            hint="take another instruction as the next, such as --moves m16n8k16.bf16",
        )
    steps = tuple(_move(d, a, register) for register in range(a.registers_per_lane))
    return Moves(first, following, a.cols // d.cols, steps)


def _tile(d: FragmentLayout, a: FragmentLayout) -> FragmentLayout:
    """Return D, or where one D makes several A (``wgmma``) the part in its registers that makes the first."""
    return replace(d, cols=a.cols) if a.cols % 8 == 0 and d.cols % a.cols == 0 else d


@dataclass(frozen=True, slots=True)
class Permuted:
    """Moves without shuffles, that make A with its columns in another order.

    Column k of it is column ``columns[k]`` of the D side by side. The product is the same if row k of
    B is what row ``columns[k]`` was: the order in which k is summed is free, but for rounding.
    """

    moves: Moves
    columns: tuple[int, ...]

    @property
    def formula(self) -> str:
        bits = (len(self.columns) - 1).bit_length()
        k, column = IndexVariable("k", bits), IndexVariable("column", bits)
        formula = derive((k,), (column,), lambda at: {"column": self.columns[at["k"]]})
        return formula.outputs[0].expression


def permuted(between: Moves) -> Permuted:
    """Return the moves for the order of columns in which every lane keeps what it has.

    The elements of a row that a lane has in D fill its places in A of the same row, both in order of
    columns. Raises Unsupported where rows would differ in their order.
    """
    d, a = between.d, between.a
    columns: dict[int, int] = {}
    packed: set[tuple[Packed, ...]] = set()
    for lane in range(WARP):
        registers = [[(0, 0, 0)] * a.elements_per_register for _ in range(a.registers_per_lane)]
        places, held = _in_order(a, lane, 1), _in_order(d, lane, between.tiles)
        for (row, column, (_, register, element)), (source_row, source, item) in zip(
            places, held, strict=True
        ):
            registers[register][element] = item
            if row != source_row or columns.setdefault(column, source) != source:
                raise Unsupported("rows of A would be in different orders")
        packed.add(tuple(Packed(tuple(items)) for items in registers))
    if len(packed) > 1:
        raise Unsupported("lanes would pack different registers")
    moves = tuple(Move(register, (each,)) for register, each in enumerate(packed.pop()))
    return Permuted(replace(between, moves=moves), tuple(columns[k] for k in range(a.cols)))


def _in_order(layout: FragmentLayout, lane: int, tiles: int) -> list[tuple[int, int, TileItem]]:
    """Return (row, column, place) of what a lane holds of matrices side by side, row by row."""
    return sorted(
        (row, col + tile * layout.cols, (tile, register, element))
        for tile in range(tiles)
        for register, elements in enumerate(layout.table()[lane].tolist())
        for element, (row, col) in enumerate(elements)
    )


def _sources(d: FragmentLayout, a: FragmentLayout, register: int) -> list[list[LaneItem]]:
    """Return where the elements of a register of A are in D: [lane][element]."""
    sources = []
    for lane in range(WARP):
        elements = []
        for i in range(a.elements_per_register):
            row, col = (int(index) for index in a.element(lane, register, i))
            tile, within = divmod(col, d.cols)
            (owner,) = d.registers(row, within)
            elements.append((owner.lane, (tile, owner.register, owner.element)))
        sources.append(elements)
    return sources


def _move(d: FragmentLayout, a: FragmentLayout, register: int) -> Move:
    sources = _sources(d, a, register)
    stays = all(source == lane for lane, each in enumerate(sources) for source, _ in each)
    first = tuple(item for _, item in sources[0])
    if stays and all(tuple(item for _, item in each) == first for each in sources):
        return Move(register, (Packed(first, d.dtype == a.dtype),))
    items = sorted({item for each in sources for _, item in each})
    size = a.elements_per_register
    packed = tuple(Packed(tuple(items[i : i + size])) for i in range(0, len(items), size))
    wanted = [[(items.index(item), lane) for lane, item in each] for each in sources]
    columns = [tuple(each[i] for each in wanted) for i in range(size)]
    shuffles = _shuffles(columns, len(packed))
    selectors = tuple(_selector(each, lane, shuffles, size) for lane, each in enumerate(wanted))
    return Move(register, packed, shuffles, selectors)


def _shuffles(
    columns: list[tuple[tuple[int, int], ...]], packed: int
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return (packed register, source lanes): one for every way lanes choose a source lane."""
    lanes = dict.fromkeys(tuple(lane for _, lane in column) for column in columns)
    pairs = tuple((number, source) for source in lanes for number in range(packed))
    if len(pairs) > 2:
        raise Unsupported(f"a register of A would need {len(pairs)} shuffled registers")
    return pairs


def _selector(
    wanted: list[tuple[int, int]],
    lane: int,
    shuffles: tuple[tuple[int, tuple[int, ...]], ...],
    size: int,
) -> int:
    """Return the ``prmt`` selector of a lane: four hexadecimal digits, the lowest byte last.

    ``wanted`` are the place among all packed elements, and the lane, of each element of the register.
    """
    width = _BYTES // size
    selector = 0
    for i, (slot, source) in enumerate(wanted):
        number, within = divmod(slot, size)
        which = next(
            n for n, (p, lanes) in enumerate(shuffles) if p == number and lanes[lane] == source
        )
        for byte in range(width):
            digit = _BYTES * which + width * within + byte
            selector |= digit << 4 * (width * i + byte)
    return selector
