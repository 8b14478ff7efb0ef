"""Answers of ``ptxlab layout`` on tiles in shared memory: bank conflicts, and plans of instructions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import TARGETS
from ptxlab.layouts.code import swizzled
from ptxlab.layouts.layout import ComposedLayout, Layout, Mapping, Swizzle
from ptxlab.layouts.shared_memory import (
    BANKS,
    AccessPattern,
    Conflicts,
    bank,
    conflicts,
    lines,
    smallest_padding,
    smallest_swizzle,
)
from ptxlab.matrix.matrix_plan import Plan
from ptxlab.verbs.layout.layouts import SCHEMA, Cell, layout_json, picture
from ptxlab.view.json import members
from ptxlab.view.text import aligned, counted, fields

SHARED_BYTES = max(target.shared_bytes for target in TARGETS.values())
"""The most shared memory a CTA can have on any target."""


@dataclass(frozen=True, slots=True)
class Banks:
    """The conflicts of a tile, of the plain layout and, if it is another, of the swizzled one.

    Where nothing frees all of several accesses, ``alone`` is what frees each of them.
    """

    plain: Layout
    layout: Mapping
    bits: int
    counts: tuple[tuple[Conflicts, ...], ...]
    swizzle: Swizzle | None
    padded: Layout | None
    alone: tuple[tuple[Swizzle | None, Layout | None], ...] = ()

    def text(self, width: int | None = None) -> str:
        parts = [f"{self.bits}-bit elements, from an address that is a multiple of 128"]
        for layout, counts in zip((self.plain, self.layout), self.counts, strict=False):
            head = ("access", "wavefronts", "ideal", "excess", "worst pass")
            rows: list[tuple[str, ...]] = [head]
            for count in counts:
                worst = f"{count.worst}-way" if count.excess else "free"
                numbers = map(str, (count.wavefronts, count.ideal, count.excess))
                rows.append((count.access.name, *numbers, worst))
            parts.append("\n".join([layout.notation, *aligned(rows), *map(_example, counts)]))
        names = ", ".join(count.access.name for count in self.counts[0])
        parts.append("\n".join([f"free of conflicts for {names}", *fields(self._remedies())]))
        return "\n\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return the same as data; ``before`` is the plain layout, ``after`` the one asked about."""
        return {
            "schema": SCHEMA,
            **layout_json(self.layout),
            "bits": self.bits,
            "conflicts": {
                "before": [_conflicts_json(count) for count in self.counts[0]],
                "after": [_conflicts_json(count) for count in self.counts[-1]],
            },
            **_remedies_json(self.swizzle, self.padded),
            "alone": [_remedies_json(*remedies) for remedies in self.alone],
        }

    def svg(self) -> str:
        """Return the vectors of the widest access, coloured by bank, numbered by their first bank."""
        size = max(count.access.bytes for count in self.counts[0])
        grid, along = lines(self.layout, self.bits, size)
        names = ", ".join(count.access.name for count in self.counts[0])
        told = [
            f"{count.access.name}: {count.wavefronts} wavefronts, ideal {count.ideal}"
            + (f", {count.worst}-way conflicts" if count.excess else ", free of conflicts")
            for count in self.counts[-1]
        ]
        return picture(
            f"{names} on {self.layout.notation}",
            _vectors(grid.tolist(), along, size, {}),
            [*told, *_legend(size, along, self.bits)],
        )

    def _remedies(self) -> list[tuple[str, str]]:
        swizzle, padding = self._swizzle(self.swizzle), self._padding(self.padded)
        if self.alone and self.swizzle is None:
            swizzle = self._for_each([self._swizzle(swizzle) for swizzle, _ in self.alone])
        if self.alone and self.padded is None:
            padding = self._for_each([self._padding(padded) for _, padded in self.alone])
        remedies = [("smallest swizzle", swizzle), ("smallest padding", padding)]
        if self.swizzle is not None and self.swizzle.bits:
            remedies.insert(1, ("its offset", f"{swizzled(self.swizzle)}, of elements"))
        return remedies

    def _for_each(self, remedies: Sequence[str]) -> str:
        pairs = zip(self.counts[0], remedies, strict=True)
        told = ", ".join(f"{count.access.name} {remedy}" for count, remedy in pairs)
        return f"none found for all; {told}"

    def _swizzle(self, swizzle: Swizzle | None) -> str:
        if swizzle is None:
            return "none found"
        return swizzle.notation if swizzle.bits else "none needed"

    def _padding(self, padded: Layout | None) -> str:
        if padded is None:
            return "none found"
        return padded.notation if padded != self.plain else "none needed"


def banks(plain: Layout, layout: Mapping, bits: int, accesses: Sequence[AccessPattern]) -> Banks:
    tiles = (plain,) if layout is plain else (plain, layout)
    counts = tuple(tuple(conflicts(access, tile, bits) for access in accesses) for tile in tiles)

    def remedies(some: Sequence[AccessPattern]) -> tuple[Swizzle | None, Layout | None]:
        return smallest_swizzle(plain, bits, some), smallest_padding(plain, bits, some)

    both = remedies(accesses)
    each = len(accesses) > 1 and None in both
    alone = tuple(remedies([access]) for access in accesses) if each else ()
    return Banks(plain, layout, bits, counts, *both, alone)


@dataclass(frozen=True, slots=True)
class Planned:
    """One ldmatrix or stmatrix on a tile, lane by lane."""

    layout: Mapping
    bits: int
    plan: Plan

    def text(self, width: int | None = None) -> str:
        plan = self.plan
        named: list[tuple[str, ...]] = [("lane", "matrix", "row", "first", "address", "banks")]
        named += [
            (*map(str, (n.lane, n.matrix, n.row)), _pair(n.first), str(n.address), _banks(n.bank))
            for n in plan.addresses
        ]
        held = [("lane", *(f"r{register}" for register in range(len(plan.held[0]))))]
        held += [
            (str(lane), *(" ".join(map(_pair, register)) for register in registers))
            for lane, registers in enumerate(plan.held)
        ]
        counts = " + ".join(map(str, plan.wavefronts))
        gets = "gives" if plan.form.name.startswith("st") else "receives"
        return "\n".join(
            [
                plan.form.name,
                f"{self.layout.notation}, {self.bits}-bit elements",
                f"wavefronts {counts} = {sum(plan.wavefronts)}, ideal {len(plan.wavefronts)}",
                "",
                "the row each lane names, by its first element",
                *aligned(named),
                "",
                f"the elements row,column each lane {gets}, low bits first",
                *aligned(held),
            ]
        )

    def as_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "schema": SCHEMA,
            **layout_json(self.layout),
            "bits": self.bits,
            "plan": {
                "instruction": plan.form.name,
                "addresses": [dataclasses.asdict(named) for named in plan.addresses],
                **members(plan, "held", "wavefronts"),
                "ideal": len(plan.wavefronts),
            },
        }

    def svg(self) -> str:
        """Return the rows of 16 bytes coloured by bank; those that are named say by which lane."""
        named = {n.address: f"lane {n.lane}" for n in self.plan.addresses}
        grid, along = lines(self.layout, self.bits, 16)
        return picture(
            f"{self.plan.form.name} on {self.layout.notation}",
            _vectors(grid.tolist(), along, 16, named),
            [
                f"wavefronts {sum(self.plan.wavefronts)}, ideal {len(self.plan.wavefronts)}",
                "framed: a row of a matrix, and the lane that gives its address",
                *_legend(16, along, self.bits),
            ],
        )


def check_shared(layout: Layout | ComposedLayout, bits: int) -> None:
    """Raise PtxlabError for a tile that no CTA has room for."""
    plain = layout if isinstance(layout, Layout) else layout.layout
    size = plain.cosize * bits // 8
    if size > SHARED_BYTES:
        raise PtxlabError(
            f"{layout.notation} takes {size:,} bytes of shared memory, and a CTA has {SHARED_BYTES:,}",
            hint="--bits gives the size of an element, 16 if left out",
        )


def _vectors(grid: list[list[int]], along: int, size: int, labels: dict[int, str]) -> list[Cell]:
    cells = []
    for line, addresses in enumerate(grid):
        for vector, address in enumerate(addresses):
            first = bank(address)
            last = (first + max(1, size // 4) - 1) % BANKS
            label = labels.get(address, str(first))
            row, col = (line, vector) if along else (vector, line)
            title = f"{row},{col}: byte {address}, banks {first} to {last}"
            cells.append(Cell(row, col, label, first, title, address in labels))
    return cells


def _legend(size: int, along: int, bits: int) -> list[str]:
    way = "a row" if along else "a column"
    each = f"{8 * size // bits} elements of {way}"
    return [f"cell: {counted(size, 'byte')}, {each}; number and colour: the first bank it lies in"]


def _example(count: Conflicts) -> str:
    if not count.excess:
        return f"{count.access.name}: every pass takes one wavefront"
    banks = " ".join(str(bank(address)) for address in count.example)
    return f"{count.access.name}: lanes of one pass start in banks {banks}"


def _remedies_json(swizzle: Swizzle | None, padded: Layout | None) -> dict[str, Any]:
    return {
        "smallest_swizzle": swizzle and dataclasses.astuple(swizzle),
        "smallest_padding": padded and layout_json(padded),
    }


def _conflicts_json(count: Conflicts) -> dict[str, Any]:
    return {
        "access": count.access.name,
        **members(count, "wavefronts", "ideal", "excess", "worst", "example"),
    }


def _pair(element: tuple[int, int]) -> str:
    return f"{element[0]},{element[1]}"


def _banks(first: int) -> str:
    return f"{first}-{first + 3}"
