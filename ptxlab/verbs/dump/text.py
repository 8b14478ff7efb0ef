"""Dumped registers of one warp: a table by lane, and the matrices that operands are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.device.loading import is_cuda
from ptxlab.device.protocol import Dumped, DumpedLaunch
from ptxlab.emulator.run.wave import unravel
from ptxlab.errors import PtxlabError
from ptxlab.instrument.places import OPERANDS
from ptxlab.isa.targets import WARP
from ptxlab.launch_config import LaunchConfig
from ptxlab.matrix.catalog import UnknownInstruction, matching
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.numbers.types import TYPES, ScalarType, packing
from ptxlab.verbs.dump import shared, tensor_memory
from ptxlab.verbs.dump.shared import SharedSpot, ShownTile
from ptxlab.verbs.dump.tensor_memory import TensorTile
from ptxlab.view.colour import Paint, plain
from ptxlab.view.fidelity import unverified
from ptxlab.view.json import members
from ptxlab.view.text import fields, grid, hexadecimal, number, values
from ptxlab.view.width import stacked

SCHEMA = "ptxlab.dump/2"
_READABLE = shared.READABLE


@dataclass(frozen=True, slots=True, eq=False)
class ShownDump:
    """What was dumped in a launch, and which warp of it to show, read as which type."""

    launch: DumpedLaunch
    cta: tuple[int, ...]
    warp: int
    lane: int | None
    read_as: str | None
    dumped: Dumped
    spots: tuple[SharedSpot, ...] = ()
    tiles: tuple[ShownTile, ...] = ()
    tensor_tiles: tuple[TensorTile, ...] = ()

    @classmethod
    def of_first(cls, dumped: Dumped) -> ShownDump:
        """Return what the first warp has of which a thread was there."""
        config, number = dumped.launch.config, int(dumped.reached.argmax())
        cta, thread = divmod(number, config.cta_threads)
        return cls(dumped.launch, unravel(cta, config.grid), thread // WARP, None, None, dumped)

    def check(self) -> None:
        """Raise PtxlabError unless the launch had that warp and lane."""
        for have, want, axis in zip(self.launch.config.grid, self.cta, "xyz", strict=False):
            if want >= have:
                raise PtxlabError(f"there is no CTA {want} along {axis}, the grid has {have}")
        if WARP * self.warp >= self.threads:
            raise PtxlabError(
                f"there is no warp {self.warp}, a CTA of {self.threads} threads "
                f"has {-(-self.threads // WARP)}"
            )
        if self.lane is not None and self.lane >= len(self.numbers):
            raise PtxlabError(
                f"there is no lane {self.lane}, warp {self.warp} has {len(self.numbers)}"
            )

    @property
    def threads(self) -> int:
        return self.launch.config.cta_threads

    @property
    def numbers(self) -> Array:
        """The numbers of the warp's threads in the whole grid."""
        return self.holders(WARP)

    def holders(self, count: int) -> Array:
        """Return the numbers of the threads that the warp holds a matrix with: its own, or a warpgroup's."""
        first = WARP * self.warp // count * count
        inside = np.arange(first, min(first + count, self.threads))
        return number_of(self.launch.config, self.cta) + inside

    @property
    def lanes(self) -> range | tuple[int]:
        return range(len(self.numbers)) if self.lane is None else (self.lane,)


def number_of(config: LaunchConfig, cta: tuple[int, ...]) -> int:
    """Return the number in the whole grid of the first thread of a CTA."""
    x, y, z = (*cta, 0, 0)[:3]
    width, height, _ = config.grid
    return ((z * height + y) * width + x) * config.cta_threads


def check_type(name: str | None) -> None:
    """Raise PtxlabError unless bits can be read as the type of that name."""
    if name is not None and (name not in _READABLE or _READABLE[name].kind == "packed"):
        known = [name for name, kind in _READABLE.items() if kind.kind != "packed"]
        raise PtxlabError(f"registers are not read as {name!r}", hint=f"types: {', '.join(known)}")


def text(
    shown: ShownDump,
    paint: Paint = plain,
    width: int | None = None,
    verdicts: Sequence[list[str]] = (),
) -> str:
    """Return what was looked at: ``verdicts`` on it, operands as matrices, registers by lane, memory."""
    blocks = [_header(shown), *verdicts, *_matrices(shown, paint, width)]
    if shown.dumped.registers:
        blocks.append(stacked(_table(shown), width))
    held = shown.dumped.shared
    blocks += shared.text(held, shown.spots, shown.tiles, width)
    blocks += tensor_memory.text(held, shown.tensor_tiles, paint, width)
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def as_json(shown: ShownDump) -> dict[str, Any]:
    dumped, columns = shown.dumped, _columns(shown)
    threads = shown.numbers
    return {
        "schema": SCHEMA,
        "file": shown.launch.file,
        "device": shown.launch.device,
        "arch": shown.launch.arch,
        **members(shown.launch.config, "grid", "block"),
        **members(dumped.dump, "at", "nth", "before"),
        "places": [
            {
                "function": place.function,
                "line": place.instruction.position.line,
                "instruction": place.name,
                "registers": list(place.registers),
                "source": place.source and place.source._asdict(),
            }
            for place in dumped.places
        ],
        **members(dumped, "registers", "types"),
        **members(shown, "cta", "warp"),
        **members(shown.launch, "unverified"),
        "lanes": [
            {
                "lane": lane,
                "thread": threads[lane],
                "passes": dumped.passes[threads[lane]],
                "reached": dumped.reached[threads[lane]],
                "words": [
                    column.hexadecimal(int(word))
                    for column, word in zip(columns, dumped.words[threads[lane]], strict=True)
                ],
                "values": [
                    column.values(int(word))
                    for column, word in zip(columns, dumped.words[threads[lane]], strict=True)
                ],
            }
            for lane in shown.lanes
        ],
        "matrices": {layout.operand: matrix for layout, matrix in _fragments(shown)},
        **shared.as_json(dumped.shared, shown.spots, shown.tiles),
        "tensor_memory": tensor_memory.as_json(dumped.shared, shown.tensor_tiles),
    }


def _header(shown: ShownDump) -> list[str]:
    dumped, launch = shown.dumped, shown.launch
    first = dumped.places[0]
    lines = sorted({place.instruction.position.line for place in dumped.places})
    where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines)} lines, {lines[0]} and later"
    where += " of its PTX" * is_cuda(launch.file)
    moment = "before" if dumped.dump.before else "after"
    reached = int(np.count_nonzero(dumped.reached))
    time = "" if dumped.dump.nth == 1 else f", time {dumped.dump.nth}"
    return [
        f"{moment} {first.name} ({where}){time}",
        *fields(
            [
                ("launch", f"{launch.file} on {launch.device} ({launch.arch})"),
                ("shown", f"warp {shown.warp} of CTA {','.join(map(str, shown.cta))}"),
                ("reached", f"{reached} of {len(dumped.reached)} threads"),
                *_made_from(dumped),
                *_one_register(dumped),
            ]
        ),
        *unverified(launch.unverified),
    ]


def _made_from(dumped: Dumped) -> list[tuple[str, str]]:
    """Return what machine code was made from there."""
    origins = sorted({place.source for place in dumped.places if place.source is not None})
    more = f" and {len(origins) - 1} more" if len(origins) > 1 else ""
    return [("made from", f"{origins[0].path}:{origins[0].line}{more}")] if origins else []


def _one_register(dumped: Dumped) -> list[tuple[str, str]]:
    """Return what an operand holds that has the registers of another, where these are another's at the time."""
    place, before = dumped.places[0], dumped.dump.before
    operands = dict(zip(OPERANDS, place.of.operands, strict=False))
    looked_at = {name[0] for name in place.asked}
    if place.of is not place.instruction or "C" not in operands or operands["C"] != operands["D"]:
        return []
    if before and "D" in looked_at:
        return [("D", "the registers of C too, and still holds C")]
    return [("C", "the registers of D too, and holds D")] if "C" in looked_at else []


# ---- by lane --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """A register that was dumped: how many bits it has, and the type they are read as."""

    bits: int
    kind: ScalarType

    def cell(self, word: int) -> str:
        bits = self.hexadecimal(word)
        if self.kind.kind == "bits" and self.kind.bits >= self.bits:
            return bits
        text = " ".join(number(value) for value in self.values(word))
        return text if self.kind.kind in ("predicate", "signed", "unsigned") else f"{text} ({bits})"

    def values(self, word: int) -> Array:
        """Return the elements, low bits first."""
        mask = (1 << self.kind.bits) - 1
        parts = [(word >> low) & mask for low in range(0, self.bits, self.kind.bits)]
        if self.kind.kind == "predicate":
            return np.array(parts)
        return values(np.array(parts, np.uint64), self.kind.dtype)

    def hexadecimal(self, word: int) -> str:
        return str(word) if self.bits == 1 else hexadecimal(word, self.bits)


def _columns(shown: ShownDump) -> list[_Column]:
    """Return the columns, read as what the user says, as their fragment's type, or as their own."""
    layouts, asked = _layouts(shown), shown.dumped.places[0].asked
    shown_columns = []
    for name, own in zip(asked, shown.dumped.types, strict=True):
        layout = layouts.get(name[0]) if name[1:2] in ("", "[") else None
        kind = _READABLE.get(shown.read_as or (layout.dtype if layout else own), _READABLE[own])
        if kind.kind == "packed":
            kind = _READABLE[packing(kind.name)[0]]
        bits = TYPES[own].bits
        shown_columns.append(_Column(bits, kind if kind.bits <= bits else _READABLE[own]))
    return shown_columns


def _table(shown: ShownDump) -> list[list[str]]:
    dumped, threads, columns = shown.dumped, shown.numbers, _columns(shown)
    rows = [["lane", *_names(dumped)]]
    for lane in shown.lanes:
        words = zip(columns, dumped.words[threads[lane]], strict=True)
        reached = dumped.reached[threads[lane]]
        cells = [column.cell(int(word)) if reached else "-" for column, word in words]
        rows.append([str(lane), *cells])
    return rows


def _names(dumped: Dumped) -> list[str]:
    """Return the columns' registers or, where they are others at other places, what was asked for."""
    places = zip(*(place.registers for place in dumped.places), strict=True)
    asked = dumped.places[0].asked
    return [names[0] if len(set(names)) == 1 else asked[i] for i, names in enumerate(places)]


# ---- as matrices ----------------------------------------------------------------------------


def operands(shown: ShownDump) -> list[tuple[FragmentLayout, int]]:
    """Return the operands that were asked for by letter and are matrices, with their first column."""
    dumped, layouts = shown.dumped, _layouts(shown)
    return [
        (
            layouts[letter],
            next(
                i
                for i, name in enumerate(dumped.places[0].asked)
                if name in (letter, f"{letter}[0]")
            ),
        )
        for letter in dict.fromkeys(dumped.dump.registers)
        if letter in layouts
    ]


def _layouts(shown: ShownDump) -> dict[str, FragmentLayout]:
    """Return the operands of the instruction that are matrices, by letter, without those that are names of registers."""
    place = shown.dumped.places[0]
    variant = ".rs" if "A[1]" in place.asked else ".ss"
    try:
        form = matching(place.of.name + variant * place.of.name.startswith("wgmma.mma_async"))[0]
    except UnknownInstruction:
        return {}
    operands = [operand for operand in form.signature if operand.role in ("result", "source")]
    return {
        letter: operand.layout
        for letter, operand in zip(OPERANDS, operands, strict=False)
        if operand.layout is not None and letter not in shown.dumped.registers
    }


def _fragments(shown: ShownDump) -> list[tuple[FragmentLayout, Array]]:
    dumped = shown.dumped
    result = []
    for layout, first in operands(shown):
        kind = _READABLE.get(shown.read_as or layout.dtype)
        threads = shown.holders(layout.threads)
        whole = len(threads) == layout.threads and dumped.reached[threads].all()
        if not whole or kind is None or kind.bits != layout.bits:
            continue
        words = dumped.words[threads, first : first + layout.registers_per_lane]
        result.append((layout, values(layout.unpack(words), kind.dtype)))
    return result


def _matrices(shown: ShownDump, paint: Paint, width: int | None) -> list[list[str]]:
    drawn = []
    for layout, matrix in _fragments(shown):
        cells = [[number(value) for value in row] for row in matrix]
        lanes = {index: layout.registers(*index)[0].lane for index in np.ndindex(matrix.shape)}
        title = f"{layout.operand}  {layout.rows} x {layout.cols}"
        drawn.append([title, *grid(cells, lanes, paint, width=width)])
    return drawn
