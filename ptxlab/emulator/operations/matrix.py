"""mma.sync and mma.sp on whole warps, with the fragment layouts of ``ptxlab.matrix``.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma" and "mma.sp".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptxlab.emulator.fragments import to_registers
from ptxlab.emulator.operations.matrix_arithmetic import Factors, arithmetic
from ptxlab.emulator.operations.warp import (
    ALIGNED,
    by_warp,
    require_whole_warps,
    write_warps,
)
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.forms import require_form
from ptxlab.emulator.prepare.program import Step
from ptxlab.emulator.prepare.row import Form, row
from ptxlab.emulator.run.registers import Array, Destination, Source
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError, did_you_mean
from ptxlab.isa.targets import WARP, Target
from ptxlab.matrix.catalog import MULTIPLICATIONS
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import InvalidMetadata, Metadata
from ptxlab.syntax.tree import Instruction, Integer, Operand

Split = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class SparsityOperands:
    """The metadata operand of a sparse instruction, and the selector."""

    metadata: Metadata
    source: Source
    selector: int


@dataclass(frozen=True, slots=True)
class ScaleOperands:
    """The scales of A or B: their register, byte-id and thread-id."""

    scale: Scale
    source: Source
    byte_id: Source
    thread_id: Source


class MatrixMultiply:
    """mma.sync, mma.sp and wmma.mma: D = A*B + C for every active warp at once."""

    __slots__ = ("_compute", "_destinations", "_form", "_line", "_scales", "_sources", "_sparsity")

    participants = ALIGNED

    def __init__(
        self,
        form: MatrixInstruction,
        target: Target,
        destinations: list[Destination],
        sources: dict[str, list[Source]],
        line: int,
        sparsity: SparsityOperands | None = None,
        scales: tuple[ScaleOperands, ...] = (),
    ) -> None:
        self._form = form
        self._compute = arithmetic(form, target)
        self._destinations = destinations
        self._sources = sources
        self._line = line
        self._sparsity = sparsity
        self._scales = scales

    def run(self, frame: Frame, threads: Threads) -> None:
        """Run for the warps of ``threads``."""
        form = self._form
        warps = require_whole_warps(frame, threads, form.name, self._line)

        def split(value: Array) -> Array:
            return by_warp(value, frame, warps)

        a, b, c = (
            frame.wave.fragments.matrix(
                form.operand(name),
                [source.read(frame.registers) for source in self._sources[name]],
                split,
                warps is None,
            )
            for name in "ABC"
        )
        scales = tuple(self._read_scales(operand, frame, split) for operand in self._scales)
        d = self._compute(Factors(a, b, c, self._places(frame, warps, split), scales))
        layout = form.operand("D")
        for destination, value in zip(self._destinations, to_registers(layout, d), strict=True):
            write_warps(frame, threads, destination, value)
        if warps is None:
            values = [frame.registers[destination.slot] for destination in self._destinations]
            frame.wave.fragments.remember(layout, values, d)

    def _places(self, frame: Frame, warps: Array | None, split: Split) -> Array | None:
        """Return the k of every element of a sparse A, [m, k / 2, warps]."""
        operand = self._sparsity
        if operand is None:
            return None
        words = split(operand.source.read(frame.registers))
        values = operand.metadata.decode(words, operand.selector)
        try:
            operand.metadata.validate(values)
        except InvalidMetadata as error:
            lane, _ = operand.metadata.place(error.row, error.chunk, operand.selector)
            warp = error.matrix if warps is None else int(warps[error.matrix])
            raise LaunchError(
                f"{error}, held by {frame.wave.thread(warp * WARP + lane)}, is undefined",
                location=frame.wave.locate(self._line),
                hint=f"defined are {', '.join(f'{v:#06b}' for v in operand.metadata.allowed)}",
            ) from None
        return np.moveaxis(operand.metadata.columns(values), 0, -1)

    def _read_scales(self, operand: ScaleOperands, frame: Frame, split: Split) -> Array:
        """Return [m, blocks, warps] of A's scales, or [blocks, n, warps] of B's."""
        ids = []
        for name, source in (("byte-id", operand.byte_id), ("thread-id", operand.thread_id)):
            found = np.unique(split(source.read(frame.registers)))
            if found.size > 1:
                raise self._wrong(frame, f"{name} differs between threads")
            ids.append(int(found[0]))
        words = split(operand.source.read(frame.registers))
        try:
            scales = operand.scale.unpack(words, *ids)
        except ValueError as error:
            raise self._wrong(frame, str(error)) from None
        return scales.transpose(1, 2, 0) if operand.scale.operand == "A" else scales.T

    def _wrong(self, frame: Frame, what: str) -> LaunchError:
        return LaunchError(f"{self._form.name}: {what}", location=frame.wave.locate(self._line))


_BY_NAME = {form.name: form for form in MULTIPLICATIONS}
_AFTER_LAYOUTS = ("kind::", "block_scale", "scale_vec::")


def matrix_multiply(context: Context, instruction: Instruction, asked: Form) -> Step:
    """Multiply matrices, dense or sparse, plain or scaled."""
    form = named_form(context, canonical(instruction))
    operands = list(instruction.operands)
    expected = 4 + 2 * (form.metadata is not None) + 2 * len(form.scales)
    if len(operands) != expected:
        context.reject(f"{instruction.name} takes {expected} operands, found {len(operands)}")
    destinations, sources = multiply_operands(context, form, operands[:4])
    more = operands[4:]
    sparsity = None
    if form.metadata is not None:
        sparsity = _sparsity(context, form.metadata, more[0], more[1])
        more = more[2:]
    scales = tuple(
        _scale(context, scale, *more[2 * i : 2 * i + 2]) for i, scale in enumerate(form.scales)
    )
    return MatrixMultiply(
        form, context.target, destinations, sources, context.line, sparsity, scales
    )


def canonical(instruction: Instruction) -> str:
    """Return the name with its qualifiers where the table has them.

    ptxas takes ``kind`` and what belongs to it, and ``sp``, before the shape as well as after it.
    """
    names = list(instruction.modifiers)
    first = [name for name in names if name.startswith("sp")]
    late = [name for name in names if name.startswith(_AFTER_LAYOUTS)]
    if not late or "col" not in names:
        return instruction.name
    rest = [name for name in names if name not in (*first, *late)]
    end = rest.index("col") + 1
    return ".".join([instruction.opcode, *first, *rest[:end], *late, *rest[end:]])


def named_form(context: Context, name: str) -> MatrixInstruction:
    """Return the instruction called ``name``, which must exist for the target and the version."""
    form = _BY_NAME.get(name)
    if form is None:
        context.refuse(name, hint=did_you_mean(name, _BY_NAME, most=3))
    require_form(context, form)
    return form


def multiply_operands(
    context: Context, form: MatrixInstruction, operands: list[Operand]
) -> tuple[list[Destination], dict[str, list[Source]]]:
    """Return the registers of D, and those of A, B and C by name, of operands d, a, b, c."""
    target, *rest = operands
    layout = form.operand("D")
    destinations = [
        context.destination(e, f"b{layout.register_bits}")
        for e in context.elements(target, layout.registers_per_lane)
    ]
    sources = {}
    for name, operand in zip("ABC", rest, strict=True):
        layout = form.operand(name)
        elements = context.elements(operand, layout.registers_per_lane)
        sources[name] = [context.source(e, f"b{layout.register_bits}") for e in elements]
    return destinations, sources


def _sparsity(
    context: Context, metadata: Metadata, register: Operand, selector: Operand
) -> SparsityOperands:
    allowed = metadata.selectors
    if not isinstance(selector, Integer) or selector.value not in allowed:
        choice = f"0 to {allowed[-1]}" if allowed[-1] else "0"
        context.reject(f"the sparsity selector must be a constant, {choice} here", selector)
    [element] = context.elements(register, 1)
    return SparsityOperands(metadata, context.source(element, "b32"), selector.value)


def _scale(context: Context, scale: Scale, register: Operand, ids: Operand) -> ScaleOperands:
    [element] = context.elements(register, 1)
    byte_id, thread_id = context.elements(ids, 2)
    for name, operand, allowed in (
        ("byte-id", byte_id, scale.byte_ids),
        ("thread-id", thread_id, scale.thread_ids),
    ):
        if isinstance(operand, Integer) and operand.value not in allowed:
            choice = " or ".join(map(str, allowed))
            context.reject(f"{name} of scale {scale.operand} must be {choice} here", operand)
    return ScaleOperands(
        scale,
        context.source(element, "b32"),
        context.source(byte_id, "u16"),
        context.source(thread_id, "u16"),
    )


row("mma.*", "", step=matrix_multiply, mix="matrix multiply", collective=True)
