"""From the addresses of warps to what they cost: sectors, wavefronts, and lanes in each other's way.

Addresses come as a table with a row for each warp and a column for each item a warp asks for, one a
lane or several. Everything is counted for each warp by itself, and all warps are counted at once.

Source: Nsight Compute, "Metrics Reference: Source Metrics" and "Memory Tables"; CUDA C++ Programming
Guide, "Device Memory Accesses" (sectors of 32 bytes; consecutive words of local memory belong to
consecutive threads).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ptxlab.arrays import Array
from ptxlab.isa.targets import WARP
from ptxlab.layouts.local_memory import places
from ptxlab.layouts.shared_memory import ACCESSES, BANK_BYTES, PASS_BYTES, bank, wavefronts

SECTOR_BYTES = 32
"""What memory is fetched in. Addresses moved by a multiple of this cost the same, in any space."""


@dataclass(frozen=True, slots=True)
class Items:
    """What warps ask for: ``addresses`` [warps, items], each of ``nbytes`` and aligned to them.

    ``asked`` says which of the items are asked for; None when it is all of them.
    """

    addresses: Array
    nbytes: int
    asked: Array | None = None

    @property
    def count(self) -> int:
        """How many items are asked for."""
        return self.addresses.size if self.asked is None else int(np.count_nonzero(self.asked))


@dataclass(frozen=True, slots=True)
class Conflict:
    """The lanes of one pass that want different words of the same bank of shared memory.

    ``addresses`` are the bytes each of the ``lanes`` asks for first. ``warp`` counts the warps of
    CTA ``cta``, which counts the CTAs of the grid.
    """

    cta: int
    warp: int
    lanes: tuple[int, ...]
    addresses: tuple[int, ...]
    bank: int

    @property
    def ways(self) -> int:
        return len(self.lanes)

    @property
    def step(self) -> int | None:
        """How many bytes further each lane asks than the one before it, None where they differ."""
        pairs = pairwise(zip(self.lanes, self.addresses, strict=True))
        steps = {(b - a) / (later - lane) for (lane, a), (later, b) in pairs}
        (step, *others) = steps
        return None if others or step % 1 else int(step)

    def moved(self, by: int) -> Conflict:
        addresses = tuple(address + by for address in self.addresses)
        return replace(self, addresses=addresses, bank=bank(self.bank * BANK_BYTES + by))


@dataclass(frozen=True, slots=True)
class Traffic:
    """What items cost. ``requests`` counts the warps that ask for any, ``nbytes`` what they ask for.

    ``units`` are sectors, of shared memory wavefronts, and ``ideal`` is the least that these bytes
    need. ``conflict`` is in a pass of shared memory that takes the most wavefronts. ``collisions``
    counts the items of atomics that an item before them in the same warp has the address of.
    """

    requests: int
    units: int
    ideal: int
    conflict: Conflict | None = None
    nbytes: int = 0
    collisions: int = 0

    def times(self, count: int) -> Traffic:
        sums = (self.requests, self.units, self.ideal, self.nbytes, self.collisions)
        requests, units, ideal, nbytes, collisions = (count * amount for amount in sums)
        return Traffic(requests, units, ideal, self.conflict, nbytes, collisions)

    def moved(self, by: int) -> Traffic:
        """Return what the same costs when all addresses are ``by`` larger, a multiple of a sector."""
        return self if self.conflict is None else replace(self, conflict=self.conflict.moved(by))


def merged(several: Sequence[Items]) -> Items:
    """Return as one request what the same warps ask for bit by bit, in the smallest unit of it."""
    unit = min(items.nbytes for items in several)
    columns, asked = [], []
    for items in several:
        parts = items.nbytes // unit
        table = items.addresses[..., np.newaxis] + unit * np.arange(parts)
        columns.append(table.reshape(len(table), -1))
        mask = np.ones(items.addresses.shape, bool) if items.asked is None else items.asked
        asked.append(np.repeat(mask, parts, axis=1))
    return Items(np.concatenate(columns, axis=1), unit, np.concatenate(asked, axis=1))


def of_global(items: Items) -> Traffic:
    """Count the sectors that hold the items. Ideally these are the different bytes, packed."""
    rows, _ = _filled(items.addresses, items.asked)
    ordered = _ordered(rows)
    sectors = int(_different(ordered // SECTOR_BYTES).sum())
    ideal = int(-(-_different(ordered) * items.nbytes // SECTOR_BYTES).sum())
    return Traffic(len(rows), sectors, ideal)


def of_local(items: Items) -> Traffic:
    """Count the sectors of items of local memory, whose addresses are each lane's own.

    A word of a lane lies beside the same word of the next lane, so a sector is one word of 8 lanes.
    """
    sectors = places(items.addresses, items.nbytes) // SECTOR_BYTES
    words = sectors.shape[1]
    asked = items.asked
    wide = None if asked is None else np.tile(asked, words)
    rows, _ = _filled(sectors.reshape(len(sectors), -1), wide)
    if asked is None:
        lanes = np.full(len(rows), items.addresses.shape[1])
    else:
        lanes = asked.sum(axis=1)[asked.any(axis=1)]
    ideal = -(-lanes * words * BANK_BYTES // SECTOR_BYTES)
    touched = _different(_ordered(rows))
    return Traffic(len(rows), int(touched.sum()), int(ideal.sum()))


def of_shared(items: Items, *, whole: bool = False) -> Traffic:
    """Count the wavefronts of items of shared memory, pass by pass.

    Ideally each pass with an active lane takes one. ``whole`` takes all items of a warp as one pass,
    whoever asks for them, whose ideal is its different bytes, packed.
    """
    count = items.addresses.shape[1]
    width = count if whole else min(count, ACCESSES[f"ld{8 * items.nbytes}"].lanes_per_pass)
    asked = None if items.asked is None else items.asked.reshape(-1, width)
    rows, kept = _filled(items.addresses.reshape(-1, width), asked)
    if not len(rows):
        return Traffic(0, 0, 0)
    counts = wavefronts(rows, items.nbytes)
    requests = len(items.addresses) if items.asked is None else int(items.asked.any(axis=1).sum())
    ideal = len(rows)
    if whole:
        ideal = int(-(-_different(_ordered(rows)) * items.nbytes // PASS_BYTES).sum())
    worst = int(counts.argmax())
    conflict = None
    if counts[worst] > 1:
        warp, number = divmod(int(kept[worst]), count // width)
        conflict = _conflict(rows[worst], items.nbytes, warp, number * width)
    return Traffic(requests, int(counts.sum()), ideal, conflict)


def collisions(items: Items) -> int:
    rows, _ = _filled(items.addresses, items.asked)
    return items.count - int(_different(_ordered(rows)).sum())


def _conflict(addresses: Array, nbytes: int, warp: int, first: int) -> Conflict:
    """Say which lanes of a pass, whose first item is number ``first`` of a warp, collide most."""
    wanted: dict[int, dict[int, int]] = {}
    for position, address in enumerate(addresses.tolist()):
        for word in range(address // BANK_BYTES, -(-(address + nbytes) // BANK_BYTES)):
            wanted.setdefault(bank(word * BANK_BYTES), {}).setdefault(word, position)
    number, words = max(wanted.items(), key=lambda entry: (len(entry[1]), -entry[0]))
    positions = sorted(words.values())
    return Conflict(
        0,
        warp,
        tuple((first + position) % WARP for position in positions),
        tuple(int(addresses[position]) for position in positions),
        number,
    )


def _filled(table: Array, asked: Array | None) -> tuple[Array, Array]:
    """Return the rows with an item that is asked for, and their numbers.

    Items that are not asked for become the first of their row that is, which costs nothing more.
    """
    if asked is None:
        return table, np.arange(len(table))
    kept = np.flatnonzero(asked.any(axis=1))
    rows, mask = table[kept], asked[kept]
    first = np.take_along_axis(rows, mask.argmax(axis=1)[:, np.newaxis], axis=1)
    return np.where(mask, rows, first), kept


def _ordered(rows: Array) -> Array:
    if (rows[:, 1:] >= rows[:, :-1]).all():
        return rows
    return np.sort(rows, axis=1)


def _different(ordered: Array) -> Array:
    changes: Array = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)
    return changes + 1
