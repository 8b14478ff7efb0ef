"""Shared memory: banks, the passes of an access, and how many wavefronts a layout costs.

Shared memory has 32 banks of 4 bytes, bank = address / 4 mod 32. A warp's access is done in passes of
at most 128 bytes: all lanes together up to 32 bits each, half a warp for 64 bits, a quarter for 128
bits, and 8 rows of 16 bytes for ``ldmatrix`` and ``stmatrix``. A pass takes as many wavefronts as the
most distinct words it wants of one bank; the same word is one, whoever asks for it.

Source: CUDA C++ Programming Guide, "Shared Memory"; Nsight Compute, "Memory Tables", wavefronts and
their ideal; PTX ISA, "Warp-level matrix load instruction: ldmatrix".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Integers
from ptxlab.layouts.layout import IDENTITY, Layout, Mapping, Swizzle

BANKS = 32
BANK_BYTES = 4
PASS_BYTES = BANKS * BANK_BYTES


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """One way for warps to go over a tile in shared memory.

    Every lane (for matrix accesses, every lane that gives an address) touches ``bytes`` contiguous
    bytes. ``order`` says which vectors the lanes of a pass take: neighbours ``along`` the contiguous
    direction, line after line; neighbours ``across`` it; or ``matrix``, those of 8 lines one below
    the other, whose number must be a multiple of 8.
    """

    name: str
    bytes: int
    order: str

    @property
    def lanes_per_pass(self) -> int:
        """How many lanes one pass serves."""
        return min(32, PASS_BYTES // self.bytes)


ACCESSES: dict[str, AccessPattern] = {
    access.name: access
    for access in (
        *(
            AccessPattern(f"{verb}matrix{trans}", 16, "matrix")
            for verb in ("ld", "st")
            for trans in ("", ".trans")
        ),
        *(
            AccessPattern(f"{verb}{8 * size}{suffix}", size, order)
            for verb in ("ld", "st")
            for size in (1, 2, 4, 8, 16)
            for suffix, order in (("", "along"), (".across", "across"))
        ),
    )
}
"""Accesses by name. x1, x2 and x4 need no names: each matrix is a pass of its own. Neither does
``cp.async``: its 4, 8 or 16 bytes a lane are stored as those of st32, st64 or st128."""


@dataclass(frozen=True, slots=True)
class Conflicts:
    """What an access of a whole tile costs, counted pass by pass.

    ``worst`` is the most wavefronts of one pass, and ``example`` the byte addresses of the lanes of
    the first such pass.
    """

    access: AccessPattern
    wavefronts: int
    ideal: int
    worst: int
    example: tuple[int, ...]

    @property
    def excess(self) -> int:
        """The wavefronts that bank conflicts cost: none when it is free of conflicts."""
        return self.wavefronts - self.ideal


def bank(address: int) -> int:
    """Return the bank of a byte address."""
    return address // BANK_BYTES % BANKS


def wavefronts(addresses: Integers, size: int) -> Integers:
    """Return the wavefronts [...] of passes: byte addresses [..., lanes of a pass], ``size`` bytes each."""
    lanes = np.asarray(addresses, np.int64)
    words = lanes[..., np.newaxis] // BANK_BYTES + np.arange(max(1, size // BANK_BYTES))
    words = np.sort(words.reshape(*lanes.shape[:-1], -1), axis=-1)
    distinct = np.ones(words.shape, bool)
    distinct[..., 1:] = words[..., 1:] != words[..., :-1]
    passes = np.arange(words[..., 0].size).reshape(*words.shape[:-1], 1)
    wanted = (passes * BANKS + words % BANKS)[distinct]
    counts = np.bincount(wanted, minlength=passes.size * BANKS)
    return np.asarray(counts.reshape(*words.shape[:-1], BANKS).max(axis=-1))


def lines(layout: Mapping, bits: int, size: int) -> tuple[Integers, int]:
    """Return the byte addresses, [lines, vectors], of the vectors of ``size`` bytes of a tile.

    The tile has two modes, rows and columns, of elements of ``bits``; it starts at an address that is
    a multiple of 128. Also returned is along which mode its vectors lie: 1 when its lines are rows,
    0 when they are columns. Raises ValueError when vectors are not contiguous and aligned.
    """
    if isinstance(layout.shape, int) or len(layout.shape) != 2:
        raise ValueError(f"{layout.notation} has no rows and columns")
    count, rest = divmod(8 * size, bits)
    if rest or count == 0:
        raise ValueError(f"{size} bytes hold no whole number of elements of {bits} bits")
    vectors = layout.vectorize(count)
    elements = [part.size for part in vectors.element.parts]
    height, width = (part.size for part in vectors.grid.parts)
    offsets = np.asarray(vectors.origins(np.arange(height * width)), np.int64) * bits // 8
    grid = offsets.reshape(width, height).T
    along = 1 if elements[1] == count else 0
    return (grid, 1) if along else (grid.T, 0)


def passes(access: AccessPattern, layout: Mapping, bits: int) -> Integers:
    """Return the byte addresses, [passes, lanes], with which warps go over a whole tile.

    Raises ValueError when the tile is not made of whole passes of the access.
    """
    grid, _ = lines(layout, bits, access.bytes)
    lanes = access.lanes_per_pass
    if access.order == "matrix" and len(grid) % lanes:
        raise ValueError(f"{access.name} takes {lanes} lines at a time, and there are {len(grid)}")
    if grid.size % lanes:
        raise ValueError(
            f"{access.name} takes {lanes} vectors of {access.bytes} bytes at a time, and there are "
            f"{grid.size}"
        )
    if access.order == "matrix":
        return grid.reshape(-1, lanes, grid.shape[1]).transpose(0, 2, 1).reshape(-1, lanes)
    return (grid if access.order == "along" else grid.T).reshape(-1, lanes)


def conflicts(access: AccessPattern, layout: Mapping, bits: int) -> Conflicts:
    """Count the wavefronts of an access of a whole tile. Raises ValueError as ``passes`` does."""
    addresses = passes(access, layout, bits)
    counts = wavefronts(addresses, access.bytes)
    worst = int(counts.argmax())
    example = tuple(map(int, addresses[worst]))
    return Conflicts(access, int(counts.sum()), len(counts), int(counts.max()), example)


def smallest_swizzle(
    layout: Layout, bits: int, accesses: Sequence[AccessPattern]
) -> Swizzle | None:
    """Return the swizzle of fewest bits, then least shift, that frees all accesses of conflicts.

    None when no swizzle does that keeps vectors whole and the tile in its place. A layout that is
    free as it is needs the identity. Raises ValueError as ``passes`` does.
    """
    if _free(layout, bits, accesses):
        return IDENTITY
    base = (8 * max(access.bytes for access in accesses) // bits).bit_length() - 1
    for candidate in _swizzles(base, layout.cosize):
        swizzled = candidate.compose(layout)
        if _free(swizzled, bits, accesses):
            return candidate
    return None


def smallest_padding(layout: Layout, bits: int, accesses: Sequence[AccessPattern]) -> Layout | None:
    """Return the layout with the least added between lines that frees all accesses of conflicts.

    None when the layout is not of one stride a mode, or no padding helps. A layout that is free as it
    is comes back unchanged. Raises ValueError as ``passes`` does.
    """
    if _free(layout, bits, accesses):
        return layout
    if len(layout.modes) != 2:
        return None
    size = max(access.bytes for access in accesses)
    _, along = lines(layout, bits, size)
    shape, stride = zip(*layout.modes, strict=True)
    for padding in range(8 * size // bits, 8 * PASS_BYTES // bits + 1, 8 * size // bits):
        padded = Layout(
            shape, tuple(step + padding * (mode != along) for mode, step in enumerate(stride))
        )
        if _free(padded, bits, accesses):
            return padded
    return None


def _free(layout: Mapping, bits: int, accesses: Iterable[AccessPattern]) -> bool:
    return all(conflicts(access, layout, bits).excess == 0 for access in accesses)


def _swizzles(base: int, cosize: int) -> Iterator[Swizzle]:
    """Yield swizzles, smallest first, that map every offset below ``cosize`` to one below it."""
    for bits in range(1, cosize.bit_length()):
        if cosize % (1 << (base + bits)) == 0:
            for shift in range(bits, cosize.bit_length() - base):
                yield Swizzle(bits, base, shift)
