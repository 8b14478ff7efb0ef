"""Probe kernels of ``wgmma``: matrices in shared memory, or A in registers; registers of D out.

A and B lie where the canonical layouts of ``ptxlab.matrix.canonical`` put them, in every swizzling mode
and along either direction that the instruction reads, in a tile of which it takes the last step along
k. All around lies what any product would show. A and B are told by products to which D is not added,
whatever it holds; what D holds is told by products of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.probe_kernel import (
    AFTER,
    BEFORE,
    VECTOR_BYTES,
    Body,
    KernelStep,
    registers,
    statement,
)
from ptxlab.fragments.probes.kernel import ProbeKernel, packed, record
from ptxlab.fragments.probes.multiply import MultiplyProbeKernel, fragments, metadata_words, results
from ptxlab.fragments.probes.one_hot import Probes, filled_probe, layout_probes, metadata_probes
from ptxlab.matrix.canonical import MODES, STEP_BYTES, UNIT_BYTES, Mode, SharedTile
from ptxlab.matrix.descriptor import READERS, of_tile
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.multiplication import MatrixInstruction

_READER = READERS["wgmma"]
_NOT_ADDED = "0x7fffffff"
"""What D holds where it must not matter: NaN, or the largest integer."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """An operand in the last step along k of a tile, which lies from byte ``first`` on."""

    operand: SharedOperand
    tile: SharedTile
    first: int

    @property
    def step(self) -> int:
        return self.tile.steps - _depth(self.operand) * self.tile.bits // (8 * STEP_BYTES)

    @property
    def descriptor(self) -> int:
        return of_tile(_READER, self.tile, self.first, self.step)

    @property
    def elements(self) -> Array:
        """Where each element of the operand, [rows, cols], is among all there are in shared memory."""
        row, col = np.indices((self.operand.rows, self.operand.cols))
        mn, k = (row, col) if self.operand.operand == "A" else (col, row)
        offset = self.tile.layout(mn, k + self.tile.k - _depth(self.operand))
        return np.asarray(offset + 8 * self.first // self.tile.bits)


@dataclass(frozen=True, slots=True)
class _Arrangement:
    """How the operands in shared memory lie: all along ``major``, in the same ``mode``."""

    major: str
    mode: Mode


def warpgroup_probe_kernels(form: MatrixInstruction, fill: Fill | None) -> Iterator[ProbeKernel]:
    """Yield the probe kernels of ``form``: of A and B along each direction, of D, and of metadata.

    With a ``fill`` it is one launch on what that means.
    """
    plain = _Arrangement("k", MODES["none"])
    selectors = form.metadata.selectors if form.metadata else ()
    if fill:
        yield _probe_kernel(form, [((filled_probe(form, fill),), plain)], selectors[:1])
        return
    layouts = layout_probes(form, "AB")
    for major in form.shared[-1].majors:
        probe_kernels = [
            _Arrangement(major, mode) for mode in MODES.values() if _readable(form, major, mode)
        ]
        each = [
            (_share(layouts, form, number, len(probe_kernels)), how)
            for number, how in enumerate(probe_kernels)
        ]
        yield _probe_kernel(form, each, selectors[:1])
    yield _probe_kernel(form, [(layout_probes(form, "C"), plain)], selectors[:1], adds=True)
    if form.metadata:
        yield _probe_kernel(form, [(metadata_probes(form), plain)], selectors)


def _share(
    probes: tuple[Probes, ...], form: MatrixInstruction, number: int, count: int
) -> tuple[Probes, ...]:
    """Return what is probed in one of ``count`` modes: all, but of the many rounds of bits a part."""
    if not form.bit_operation:
        return probes
    return tuple(
        replace(
            some,
            chosen={name: chosen[part] for name, chosen in some.chosen.items()},
            at=some.at[part],
        )
        for some in probes
        for part in [slice(some.count * number // count, some.count * (number + 1) // count)]
    )


def _probe_kernel(
    form: MatrixInstruction,
    arranged: Sequence[tuple[tuple[Probes, ...], _Arrangement]],
    selectors: Sequence[int],
    *,
    adds: bool = False,
) -> ProbeKernel:
    """Return the probe kernel of probes, each with every one of ``selectors`` if there are any."""
    major = arranged[0][1].major
    choices = tuple(_constants(form, major, chosen) for chosen in [[s] for s in selectors] or [[]])
    size = max(_bytes(_placed(form, how)) for _, how in arranged)
    whole = form.threads * VECTOR_BYTES
    body = _body(form, choices, -(-size // whole) * whole, adds)
    every = [(probes, how) for some, how in arranged for probes in some]
    given = [
        _given(form, probes, _placed(form, how), body.shared_bytes, adds) for probes, how in every
    ]
    expected = [
        np.concatenate([results(form, probes, chosen) for chosen in choices], axis=-1)
        for probes, _ in every
    ]
    told = tuple(probes for probes, _ in every)
    return MultiplyProbeKernel(
        form, body, np.concatenate(given), np.concatenate(expected), told, choices
    )


def _constants(form: MatrixInstruction, major: str, selector: list[int]) -> tuple[int, ...]:
    """Return the constants: the sparsity selector, the signs of A and B, how they are contiguous."""
    signs = [] if form.d_type == "s32" else [1, 1]
    along = [int(major == "mn") for operand in form.shared if "mn" in operand.majors]
    return (*selector, *signs, *along)


def _body(
    form: MatrixInstruction, choices: Sequence[Sequence[int]], shared: int, adds: bool
) -> Body:
    sources, d = registers(form, "source"), registers(form, "result")
    descriptors = [register for register, kind in sources if kind == "b64"]
    ready = KernelStep(
        (
            "fence.proxy.async;",
            "bar.sync 0;",
            ".reg .b64 units;",
            "cvt.u64.u32 units, base;",
            "shr.u64 units, units, 4;",
            *(f"add.u64 {register}, {register}, units;" for register in descriptors),
        )
    )
    before = () if adds else tuple(f"mov.b32 {register}, {_NOT_ADDED};" for register, _ in d)
    steps = [
        KernelStep((*before, *BEFORE[form.family], statement(form, chosen), *AFTER[form.family]), d)
        for chosen in choices
    ]
    given = (*sources, *d) if adds else sources
    return Body((*sources, *d), given, (ready, *steps), shared, threads=form.threads, read=True)


def _given(
    form: MatrixInstruction, probes: Probes, placed: Sequence[_Placed], nbytes: int, adds: bool
) -> Array:
    """Return the records: A in registers, descriptors, metadata, whether D is added, D; the matrices."""
    shape = (probes.count, form.threads, 1)
    columns = [fragments(form, probes, "A")] if form.variant == "rs" else []
    columns += [np.full(shape, each.descriptor, np.uint64) for each in placed]
    if form.metadata:
        columns.append(metadata_words(form.metadata, probes))
    columns.append(np.full(shape, adds, np.uint64))
    if adds:
        columns.append(fragments(form, probes, "C"))
    return record(np.concatenate(columns, axis=-1), _memory(probes, placed, nbytes))


def _memory(probes: Probes, placed: Sequence[_Placed], nbytes: int) -> Array:
    """Return shared memory, [probes, bytes]: the matrices, and all around the largest numbers."""
    bits = placed[0].operand.bits
    word = np.dtype(f"u{max(8, bits) // 8}")
    memory = np.full((probes.count, 8 * nbytes // bits), max(1, (1 << bits - 1) - 1), word)
    for each in placed:
        name = each.operand.operand
        memory[:, each.elements] = probes.numbers(name, each.operand).patterns[probes.of(name)]
    return packed(memory, bits) if bits < 8 else memory.view(np.uint8)


# ---- where the matrices lie ------------------------------------------------------------------


def _placed(form: MatrixInstruction, how: _Arrangement) -> list[_Placed]:
    """Return the operands in shared memory, one after the other."""
    placed: list[_Placed] = []
    for operand in form.shared:
        tile = _tile(operand, how.major, how.mode)
        placed.append(_Placed(operand, tile, _bytes(placed)))
    return placed


def _bytes(placed: Sequence[_Placed]) -> int:
    """Return the byte after the last one, where the pattern of every swizzle begins anew."""
    period = max(mode.period for mode in MODES.values())
    return -(-(placed[-1].first + placed[-1].tile.bytes) // period) * period if placed else 0


def _tile(operand: SharedOperand, major: str, mode: Mode) -> SharedTile:
    """Return the tile of several steps along k. Raises ValueError where it is no whole number of atoms."""
    mn = operand.rows if operand.operand == "A" else operand.cols
    steps = 2 * _depth(operand)
    k = max(steps, 8 * mode.span // operand.bits) if major == "k" else steps
    return SharedTile(mn, k, operand.bits, major, mode)


def _depth(operand: SharedOperand) -> int:
    """Return how many elements along k the instruction takes."""
    return operand.cols if operand.operand == "A" else operand.rows


def _readable(form: MatrixInstruction, major: str, mode: Mode) -> bool:
    """Say whether the instruction reads its operands in whole atoms, and a row of k from one."""
    for operand in form.shared:
        try:
            _READER.check(operand.dtype, major, mode)
            _tile(operand, major, mode)
        except ValueError:
            return False
        row = _depth(operand) * operand.bits // 8
        if major == "k" and UNIT_BYTES < mode.span < row:
            return False
    return True
