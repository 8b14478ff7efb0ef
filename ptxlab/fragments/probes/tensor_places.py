"""Where the operands of a ``tcgen05.mma`` are put, in shared memory and in Tensor Memory, CTA by CTA.

All around lies what any product would show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.probes.kernel import packed
from ptxlab.isa.targets import WARPGROUP
from ptxlab.matrix import instruction_descriptor
from ptxlab.matrix.canonical import MODES, STEP_BYTES, UNIT_BYTES, Mode, SharedTile
from ptxlab.matrix.descriptor import READERS, of_tile
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.fragment import number_bits
from ptxlab.matrix.tensor_core_problem import TensorCoreProblem
from ptxlab.matrix.tensor_memory_operand import LANES, held_bit, metadata
from ptxlab.numbers.formats import CONTAINED

COLUMNS = {"d-tmem": 0, "a-tmem": 64, "scale-A-tmem": 76, "scale-B-tmem": 84, "sp-meta-tmem": 92}
"""The first column of each operand."""
WIDTH = 96
_AROUND = 0x7FFFFFFF
"""NaN, or the largest integer."""
_READER = READERS["tcgen05"]


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """The operands of probes, of all CTAs together: bit patterns, [probes, rows, cols] each.

    ``a`` is m x k, or half of that where it is sparse, ``b`` k x n; ``metadata`` has four bits of each chunk of a row.
    ``scales`` are of A, [probes, m, blocks], and of B, [probes, n, blocks]. ``adds`` says whether ``c`` is added.
    """

    a: Array
    b: Array
    c: Array
    adds: bool
    metadata: Array | None = None
    scales: tuple[Array, ...] = ()

    @property
    def probes(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class Placed:
    """An operand in shared memory: its tile from byte ``first`` on, of which the last steps along k are read."""

    operand: SharedOperand
    tile: SharedTile
    first: int

    @property
    def descriptor(self) -> int:
        return of_tile(_READER, self.tile, self.first, self._step)

    @property
    def _step(self) -> int:
        """The step that is the first to be read: a k of 96 takes one and a half."""
        read = _depth(self.operand) * self.tile.bits
        return self.tile.steps - -(-read // (8 * STEP_BYTES))

    def write(self, memory: Array, matrix: Array) -> None:
        """Write a matrix [probes, rows, cols] into memory [probes, bytes]."""
        row, col = np.indices((self.operand.rows, self.operand.cols))
        mn, k = (row, col) if self.operand.operand == "A" else (col, row)
        before = self._step * self.tile.k // self.tile.steps
        offset = np.asarray(self.tile.layout(mn, k + before))
        part = memory[:, self.first : self.first + self.tile.bytes]
        if self.tile.bits == 4:
            nibbles = np.stack([part & 15, part >> 4], axis=-1).reshape(len(part), -1)
            nibbles[:, offset] = matrix
            part[:] = packed(nibbles.astype(np.uint8), 4)
            return
        words = part.copy().view(f"u{self.tile.bits // 8}")
        words[:, offset] = matrix
        part[:] = words.view(np.uint8)
        low, bits = number_bits(self.operand.dtype, 8)
        if self.operand.dtype in CONTAINED and bits < 8:
            units = (part >> low & ((1 << bits) - 1)).reshape(len(part), -1, UNIT_BYTES)
            part[:] = 0xA5
            part.reshape(len(part), -1, UNIT_BYTES)[..., : 2 * bits] = packed(units, bits)


def shared_operands(problem: TensorCoreProblem, turn: int) -> list[Placed]:
    """Return where A, if it lies there, and B of one CTA lie, in a swizzling mode that changes with ``turn``."""
    operands: list[Placed] = []
    wanted = [problem.a, problem.b] if problem.form.variant == "ss" else [problem.b]
    for operand in wanted:
        major = problem.majors[operand.operand == "B"]
        first = 0 if not operands else -(-operands[-1].tile.bytes // 1024) * 1024
        operands.append(Placed(operand, _tile(operand, problem.bits, major, turn), first))
    return operands


def _tile(operand: SharedOperand, bits: int, major: str, turn: int) -> SharedTile:
    """Return the tile of the first mode from number ``turn`` on that can be read so."""
    modes = [*MODES.values()]
    mn = operand.rows if operand.operand == "A" else operand.cols
    depth = _depth(operand)
    for number in range(len(modes)):
        mode = modes[(turn + number) % len(modes)]
        if _readable(operand, bits, major, mode):
            k = max(2 * depth, 8 * mode.span // bits) if major == "k" else 2 * depth
            try:
                return SharedTile(mn, k, bits, major, mode)
            except ValueError:
                continue
    raise ValueError(f"no tile of {operand}")


def _readable(operand: SharedOperand, bits: int, major: str, mode: Mode) -> bool:
    dtype = "e2m1x2" if bits == 4 else operand.dtype if operand.dtype in _READER.types else "e4m3"
    try:
        _READER.check(dtype, major, mode)
    except ValueError:
        return False
    return not (major == "k" and UNIT_BYTES < mode.span < _depth(operand) * bits // 8)


def _depth(operand: SharedOperand) -> int:
    """Return how many elements along k the instruction takes."""
    return operand.cols if operand.operand == "A" else operand.rows


def memory_of(
    problem: TensorCoreProblem, contents: Contents, placed: Sequence[Placed], nbytes: int
) -> Array:
    """Return shared memory, [probes, CTAs, bytes]: of a pair each CTA has half of the rows of A, and columns of B."""
    group = problem.form.group
    filled = np.full((group, contents.probes, nbytes), 0x7F, np.uint8)
    for operand in placed:
        whole, axis = (contents.a, 1) if operand.operand.operand == "A" else (contents.b, 2)
        for memory, half in zip(filled, np.split(whole, group, axis=axis), strict=True):
            operand.write(memory, half)
    return filled.swapaxes(0, 1)


def cells_of(problem: TensorCoreProblem, contents: Contents, first_lane: int) -> Array:
    """Return Tensor Memory, [probes, CTAs, 128, columns]; D, and A where it is there, begin at a lane."""
    path, group = problem.path, problem.form.group
    cells = np.full((contents.probes, group, LANES, WIDTH), _AROUND, np.uint32)
    rows = problem.a.rows
    for cta in range(group):
        own = cells[:, cta]
        of_cta = slice(cta * rows, (cta + 1) * rows)
        put_d(problem, own, contents.c[:, of_cta], first_lane)
        if problem.form.variant == "ts":
            low, bits = number_bits(problem.a_type, problem.bits)
            codes = contents.a[:, of_cta]
            held = codes >> low << held_bit(bits) if bits < 8 == problem.bits else codes
            words = _in_words(held, problem.bits)
            columns = COLUMNS["a-tmem"] + np.arange(words.shape[-1])
            for lanes in first_lane + path.lanes():
                own[:, lanes[:, np.newaxis], columns] = words
        parts = (contents.scales[0][:, of_cta], contents.scales[1]) if contents.scales else ()
        for name, codes, first in zip("AB", parts, problem.scale_ids, strict=False):
            lanes, columns = problem.scale_cells(name)
            octets = own.view(np.uint8).reshape(*own.shape, 4)
            for block in range(codes.shape[-1]):
                word, byte = divmod(first + block, 4)
                at = COLUMNS[f"scale-{name}-tmem"] + columns[:, word]
                octets[:, lanes[..., 0], at, byte] = codes[:, np.newaxis, :, block]
        if contents.metadata is not None:
            _put_metadata(problem, own, contents.metadata[:, of_cta])
    return cells


def put_d(problem: TensorCoreProblem, cells: Array, d: Array, first_lane: int) -> None:
    """Write D, [probes, rows, n] of one CTA, into its cells from a lane on: of 16 bits the low half."""
    lanes, columns = problem.path.d()
    at = (slice(None), first_lane + lanes, COLUMNS["d-tmem"] + columns)
    kept = cells[at] & np.uint32(0xFFFF0000) if problem.d_type == "f16" else np.uint32(0)
    cells[at] = kept | d.astype(np.uint32)


def _in_words(matrix: Array, bits: int) -> Array:
    """Return rows [..., k] of elements of ``bits`` as words of 32, low bits first."""
    octets = packed(np.ascontiguousarray(matrix), bits)
    return np.ascontiguousarray(octets).view(np.uint32)


def _put_metadata(problem: TensorCoreProblem, cells: Array, values: Array) -> None:
    path, (_, rows, chunks) = problem.path, values.shape
    lane, column, bit = metadata(rows, chunks, problem.bits)
    at = COLUMNS["sp-meta-tmem"] + column + problem.selector
    for part in range(path.parts):
        for row, chunk in np.ndindex(rows, chunks):
            cell = (slice(None), int(lane[row, chunk]) + rows * part, int(at[row, chunk]))
            low = np.uint32(bit[row, chunk])
            cells[cell] = (
                cells[cell] & ~(np.uint32(15) << low)
                | values[:, row, chunk].astype(np.uint32) << low
            )


def sources(
    problem: TensorCoreProblem,
    contents: Contents,
    placed: Sequence[Placed],
    word: int,
    first_lane: int,
) -> list[int]:
    """Return what the registers of the operands hold, in PTX's order; ``word`` is the instruction descriptor."""
    values = {f"{each.operand.operand.lower()}-desc": each.descriptor for each in placed}
    values |= {"idesc": word, "enable-input-d": int(contents.adds)}
    values |= COLUMNS | {name: first_lane << 16 | COLUMNS[name] for name in ("d-tmem", "a-tmem")}
    return [values[operand.name] for operand in problem.form.signature]


def shared_bytes(placed: Sequence[Placed]) -> int:
    """Return how much shared memory a CTA takes: each thread copies whole words of an equal share."""
    whole = WARPGROUP * UNIT_BYTES
    return -(-(placed[-1].first + placed[-1].tile.bytes) // whole) * whole


def descriptor_of(problem: TensorCoreProblem) -> int:
    """Return the instruction descriptor that says what a problem is."""
    record = instruction_descriptor.record(problem.form.kind)
    known: dict[str, int | str] = {
        "a type": problem.a_type, "b type": problem.b_type, "d type": problem.d_type, "m": problem.m, "n": problem.n,
        "major of a": problem.majors[0], "major of b": problem.majors[1],
        "sparse": "yes" if problem.form.sparse else "no", "sparsity selector": problem.selector,
        "scale type": problem.scale_type, "scale id of a": problem.scale_ids[0],
        "scale id of b": problem.scale_ids[1],
    }  # fmt: skip
    if problem.k == instruction_descriptor.LONG_K:
        known["k"] = str(problem.k)
    names = {field.name for field in record.fields}
    return instruction_descriptor.encode(
        problem.form.kind, {name: value for name, value in known.items() if name in names}
    )
