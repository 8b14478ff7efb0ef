"""Operands of tcgen05.mma as the PTX ISA lays them out, written element by element."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from ptxlab.arrays import Array
from ptxlab.matrix.instruction_descriptor import encode
from tests.emulator.blackwell.cells import COLUMNS, LANES, Tile

CODED: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "s8": np.int8,
    "u8": np.uint8,
}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e2m3": 6, "e3m2": 6, "e2m1": 4}
STEP = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
"""The k of a dense product."""


def coded(values: Array, dtype: str) -> Array:
    """Return the bit patterns of numbers that ``dtype`` has."""
    words: Array = values.astype(CODED[dtype])
    assert (words.astype(np.float64) == values).all()
    raw: Array = words.view(f"u{words.itemsize}")
    return raw


def whole_numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return small numbers that every sum of products of them is exact with."""
    low = 0 if dtype == "u8" else -3
    return rng.integers(low, 4, shape).astype(np.float64)


def in_units(codes: Array, dtype: str, *, packed: bool) -> Array:
    """Return a matrix [lines, k or mn] as it lies in shared memory: words, or bytes of narrow types."""
    bits = BITS.get(dtype, 8)
    if bits >= 8:
        return codes
    if packed:
        pairs = codes.reshape(len(codes), -1, 2)
        both: Array = pairs[..., 0] | pairs[..., 1] << 4
        return both.astype(np.uint8)
    octets_of_rows = np.full(codes.shape, 0xA5, np.uint8)  # what pads is not read
    for row, at in np.ndindex(len(codes), codes.shape[1] // 16):
        number = 0
        for i in range(16):
            number |= int(codes[row, 16 * at + i]) << bits * i
        octets = np.frombuffer(number.to_bytes(2 * bits, "little"), np.uint8)
        octets_of_rows[row, 16 * at : 16 * at + 2 * bits] = octets
    return octets_of_rows


def in_containers(codes: Array, dtype: str) -> Array:
    """Return numbers in the bytes of Tensor Memory: 00xxxx00 and 0xxxxxx0 (CUTLASS, cp_narrow_a_to_tmem_mma.py)."""
    return codes << {"e2m1": 2, "e2m3": 1, "e3m2": 1}.get(dtype, 0)


def lane_column(m: int, n: int, big_m: int, big_n: int, form: str) -> tuple[int, int, int]:
    """Return (CTA, lane, column) of an element of D, by the layouts' names. PTX ISA, tcgen05."""
    if form == "D":
        return 0, m, n
    if form == "F":
        return 0, 32 * (m // 16) + m % 16, n
    if form == "E":
        return 0, m + 64 * (n >= big_n // 2), n % (big_n // 2)
    if form == "G":
        return 0, m + 32 * (n // (big_n // 4)), n % (big_n // 4)
    if form == "A":
        return m // 128, m % 128, n
    if form == "B":
        return m // 64, m % 64 + 64 * (n >= big_n // 2), n % (big_n // 2)
    assert form == "C"
    return m // 64, 32 * (m % 64 // 16) + m % 16, n


LAYOUTS = {
    (128, 1, False): "D", (64, 1, False): "F", (128, 1, True): "D", (64, 1, True): "E", (32, 1, True): "G",
    (256, 2, False): "A", (128, 2, False): "B",
}  # fmt: skip


@dataclass
class Problem:
    """One product, and where its operands lie. ``columns`` are those of D, A, scales and metadata."""

    kind: str
    m: int
    n: int
    a_type: str
    b_type: str
    d_type: str = "f32"
    group: int = 1
    stationary: bool = False
    swizzles: tuple[str, str] = ("none", "none")
    majors: tuple[str, str] = ("k", "k")
    more: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    d: int = 32

    def __post_init__(self) -> None:
        rng = self.rng = np.random.default_rng(self.seed)
        self.k = 96 if self.more.get("k") == "96" else STEP[self.kind]
        self.packed = self.kind in ("mxf4", "mxf4nvf4")
        self.a = whole_numbers(rng, self.a_type, (self.m, self.k))
        self.b = whole_numbers(rng, self.b_type, (self.n, self.k))
        self.c = rng.integers(-100, 100, (self.m, self.n)).astype(np.float64)
        self.form = LAYOUTS[self.m, self.group, self.stationary]

    @property
    def idesc(self) -> int:
        fields: dict[str, Any] = {
            "a type": self.a_type, "b type": self.b_type, "m": self.m, "n": self.n,
            "major of a": self.majors[0], "major of b": self.majors[1],
        }  # fmt: skip
        if not self.kind.startswith("mx"):
            fields["d type"] = self.d_type
        return encode(self.kind, fields | self.more)

    def tiles(self) -> tuple[Tile, Tile]:
        """Return how A and B of a CTA lie in shared memory, from 0 on and from 16384 on."""
        layouts = []
        for mn, dtype, swizzle, major, start in zip(
            (self.m // self.group, self.n // self.group),
            (self.a_type, self.b_type),
            self.swizzles,
            self.majors,
            (0, 16384),
            strict=True,
        ):
            if major == "mn":
                layouts.append(Tile.densely(start, mn, self.k, swizzle, major))
            else:
                bits = 4 if self.packed else max(8, BITS.get(dtype, 8))
                layouts.append(Tile.densely(start, mn, self.k * bits // 8, swizzle, "k"))
        return layouts[0], layouts[1]

    def shared(self) -> Array:
        """Return shared memory [ctas, bytes] with A and B: of a pair each CTA has half of the rows of both."""
        memory = np.full((self.group, 32768), 0x7F, np.uint8)
        for values, dtype, tile, major in zip(
            (self.a, self.b), (self.a_type, self.b_type), self.tiles(), self.majors, strict=True
        ):
            codes = coded(values, dtype)
            if major == "k":
                lines = in_units(codes, dtype, packed=self.packed)
            else:
                lines = in_units(codes.T, dtype, packed=self.packed).T
            for cta, half in enumerate(np.split(lines, self.group)):
                tile.write(memory[cta], half)
        return memory

    def words(self) -> list[int]:
        """Return what the instruction's registers hold: both matrix descriptors, the instruction's."""
        a, b = self.tiles()
        return [a.descriptor, b.descriptor, self.idesc]

    def cells(self) -> Array:
        """Return Tensor Memory with C in the columns of D, and other numbers everywhere else."""
        cells = self.rng.integers(0, 1 << 32, (self.group, LANES, COLUMNS), dtype=np.uint32)
        self.put(cells, self.c)
        return cells

    def put(self, cells: Array, values: Array) -> None:
        """Write an accumulator into Tensor Memory."""
        kinds = {"f32": np.float32, "f16": np.float16, "s32": np.int32}
        words = values.astype(kinds[self.d_type])
        words = words.view(np.dtype(f"u{words.itemsize}"))
        for m, n in np.ndindex(self.m, self.n):
            cta, lane, column = lane_column(m, n, self.m, self.n, self.form)
            cells[cta, lane, self.d + column] = words[m, n]

    def result(self) -> Array:
        product: Array = self.a @ self.b.T + self.c
        return product
