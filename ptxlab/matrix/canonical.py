"""The canonical layouts of a matrix in shared memory that ``wgmma`` and ``tcgen05.mma`` can read.

A tile is mn x k: m or n times k. Along its major direction it is cut into spans of 16, 32, 64 or 128
bytes, and 8 spans one after the other, one for each of 8 lines along the other direction, make an atom.
The swizzle of the mode moves the 16-byte units of an atom within their spans. Atoms follow each other
along mn first, then along k, which is how all of the ISA's examples lie; the leading and the stride
byte offset of a matrix descriptor say how far it is from one atom to the next.

Source: PTX ISA, "Shared Memory Matrix Layout" and "Strides" of wgmma and "Major-ness supported by
Strides" of tcgen05; the layouts as CuTe writes them are in CUTLASS's ``mma_traits_sm90_gmma.hpp`` and
``mma_traits_sm100.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.layouts.layout import ComposedLayout, Layout, Swizzle

UNIT_BYTES = 16
STEP_BYTES = 32
"""What one instruction takes of a row along k, whatever the type."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A swizzling mode: atoms of ``lines`` spans of ``span`` bytes, and the swizzle of byte addresses.

    Its pattern repeats every ``period`` bytes, at multiples of which a tile should start: 8 spans, and of one of
    96 bytes 8 of the 32 that it swizzles as.
    """

    name: str
    span: int
    swizzle: Swizzle
    lines: int = 8

    @property
    def period(self) -> int:
        """After how many bytes the pattern repeats."""
        return 8 * (self.span & -self.span)

    def of_elements(self, bits: int) -> Swizzle:
        """Return the swizzle of offsets that count elements of ``bits``."""
        base = self.swizzle.base + 3 - (bits.bit_length() - 1)
        return Swizzle(self.swizzle.bits, base if self.swizzle.bits else 0, self.swizzle.shift)


MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("none", 16, Swizzle(0, 4, 3)),
        Mode("32B", 32, Swizzle(1, 4, 3)),
        Mode("64B", 64, Swizzle(2, 4, 3)),
        Mode("128B", 128, Swizzle(3, 4, 3)),
        Mode("128B.atom32B", 128, Swizzle(2, 5, 2), lines=4),
    )
}
"""The modes by name. The last is that of ``tcgen05`` alone: it keeps units of 32 bytes whole."""


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A tile of ``mn`` x ``k`` elements of ``bits``, contiguous along ``major``, ``k`` or ``mn``.

    Raises ValueError for sizes that are no whole number of atoms and of instructions.
    """

    mn: int
    k: int
    bits: int
    major: str
    mode: Mode

    def __post_init__(self) -> None:
        if self.major not in ("k", "mn"):
            raise ValueError(f"no direction {self.major!r}: a tile is contiguous along k or mn")
        if self.major == "k" and self.mode.lines != 8:
            raise ValueError(f"swizzle {self.mode.name} is for tiles contiguous along mn")
        atom_mn, atom_k = self.atom
        step = 8 * STEP_BYTES // self.bits
        for name, size, whole, why in (
            ("mn", self.mn, atom_mn, "an atom has"),
            ("k", self.k, atom_k, "an atom has"),
            ("k", self.k, step, "an instruction takes"),
        ):
            if size < 1 or size % whole:
                raise ValueError(
                    f"{name} is {size}, no multiple of {whole}, which {why}: {self.bits}-bit "
                    f"elements, contiguous along {self.major}, swizzle {self.mode.name}"
                )

    @property
    def span(self) -> int:
        """How many elements a span has."""
        return 8 * self.mode.span // self.bits

    @property
    def atom(self) -> tuple[int, int]:
        """The size of an atom, along mn and along k."""
        return (8, self.span) if self.major == "k" else (self.span, self.mode.lines)

    @property
    def plain(self) -> Layout:
        """The layout before the swizzle, offsets counting elements."""
        atom_mn, atom_k = self.atom
        shape = ((atom_mn, self.mn // atom_mn), (atom_k, self.k // atom_k))
        size = atom_mn * atom_k
        inside = (self.span, 1) if self.major == "k" else (1, self.span)
        next_k = size * (self.mn // atom_mn)
        return Layout(shape, ((inside[0], size), (inside[1], next_k)))

    @property
    def layout(self) -> Layout | ComposedLayout:
        """The layout, offsets counting elements."""
        swizzle = self.mode.of_elements(self.bits)
        return swizzle.compose(self.plain) if swizzle.bits else self.plain

    @property
    def bytes(self) -> int:
        """How much shared memory the tile takes."""
        return self.mn * self.k * self.bits // 8

    @property
    def leading(self) -> int:
        """The leading dimension byte offset; 16 where it is not used: the ISA assumes a field of 1."""
        next_mn, next_k = self._between_atoms
        if self.major == "mn":
            return next_k if self.mode.span == UNIT_BYTES else next_mn
        return next_k if self.mode.span == UNIT_BYTES else UNIT_BYTES

    @property
    def stride(self) -> int:
        """The stride dimension byte offset."""
        next_mn, next_k = self._between_atoms
        return next_k if self.major == "mn" and self.mode.span > UNIT_BYTES else next_mn

    @property
    def steps(self) -> int:
        """How many instructions go over the tile along k."""
        return self.k * self.bits // (8 * STEP_BYTES)

    def advance(self, step: int) -> int:
        """Return how many bytes the start address of instruction ``step`` lies behind that of the first.

        Steps count from 0. Raises IndexError for one that there is not.
        """
        if not 0 <= step < self.steps:
            raise IndexError(f"no step {step}: there are {self.steps}, counted from 0")
        return int(self.plain(0, step * (self.k // self.steps))) * self.bits // 8

    @property
    def _between_atoms(self) -> tuple[int, int]:
        """The bytes from one atom to the next, along mn and along k."""
        atom_mn, atom_k = self.atom
        size = atom_mn * atom_k * self.bits // 8
        return size, size * (self.mn // atom_mn)
