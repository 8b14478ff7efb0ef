"""ldmatrix and mma.sync on whole warps, with the fragment layouts of ``ptxlab.isa``.

Source: PTX ISA, "Warp-level Matrix Instructions".
"""

from __future__ import annotations

import numpy as np

from ptxlab.emulator.access import Access
from ptxlab.emulator.context import Context
from ptxlab.emulator.fragments import to_registers
from ptxlab.emulator.lanes import Lanes
from ptxlab.emulator.operation import Modifiers, UnknownForm, step
from ptxlab.emulator.operations.memory import gather, memory_operand
from ptxlab.emulator.operations.warp import (
    by_warp,
    require_whole_warps,
    whole_warps,
    write_warps,
)
from ptxlab.emulator.program import Destination, Source, Step
from ptxlab.emulator.tensor_core import multiply_add
from ptxlab.emulator.wave import WARP, Frame
from ptxlab.isa import MMA, MatrixInstruction, Target
from ptxlab.syntax.tree import Instruction

ROW_BYTES = 16


class LoadMatrix:
    """ldmatrix.m8n8.b16: up to four 8x8 matrices, a 16-byte row for each of the first lanes."""

    __slots__ = ("_access", "_destinations", "_trans")

    participants = staticmethod(whole_warps)

    def __init__(self, access: Access, destinations: list[Destination], trans: bool) -> None:
        self._access = access
        self._destinations = destinations
        self._trans = trans

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Run for the warps of ``lanes``."""
        warps = require_whole_warps(frame, lanes, "ldmatrix", self._access.line)
        count = len(self._destinations)
        suppliers = lanes
        if count < 4:
            lane = np.arange(frame.wave.width) % WARP
            suppliers = Lanes(frame.wave.width, mask=lanes.mask & (lane < 8 * count))
        rows = gather(self._access, frame, suppliers)
        warp_count = frame.wave.warps if warps is None else warps.shape[0]
        if rows.shape[0] == 1:
            rows = np.repeat(rows, warp_count * 8 * count)
        matrices = rows.view(np.uint16).reshape(warp_count, count, 8, 8)
        if self._trans:
            matrices = matrices.transpose(0, 1, 3, 2)
        for position, destination in enumerate(self._destinations):
            words = np.ascontiguousarray(matrices[:, position]).view(np.uint32)
            write_warps(frame, lanes, destination, words)


@step("ldmatrix", collective=True)
def load_matrix(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """ldmatrix.sync.aligned.m8n8.{x1,x2,x4}[.trans].shared.b16."""
    for name in ("sync", "aligned", "m8n8"):
        modifiers.one_of(name)
    count = int(modifiers.one_of("x1", "x2", "x4")[1:])
    trans = modifiers.take("trans")
    modifiers.type("b16")
    needs(context, "sm_75", instruction)
    target, address = instruction.operands
    destinations = [context.destination(e, "b32") for e in context.elements(target, count)]
    access = memory_operand(
        context, modifiers, address, ROW_BYTES, "ldmatrix row read", writes=False
    )
    if access.space not in ("shared", "generic"):
        raise UnknownForm("reads shared memory only")
    return LoadMatrix(access, destinations, trans)


class MatrixMultiply:
    """mma.sync: D = A*B + C for every active warp at once."""

    __slots__ = ("_destinations", "_instruction", "_line", "_sources", "_target")

    participants = staticmethod(whole_warps)

    def __init__(
        self,
        instruction: MatrixInstruction,
        target: Target,
        destinations: list[Destination],
        sources: dict[str, list[Source]],
        line: int,
    ) -> None:
        self._instruction = instruction
        self._target = target
        self._destinations = destinations
        self._sources = sources
        self._line = line

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Run for the warps of ``lanes``."""
        form = self._instruction
        warps = require_whole_warps(frame, lanes, form.name, self._line)
        a, b, c = (
            frame.wave.fragments.matrix(
                form.operand(name),
                [source.read(frame.registers) for source in self._sources[name]],
                lambda value: by_warp(value, frame, warps),
                warps is None,
            )
            for name in "ABC"
        )
        d = multiply_add(a, b, c, dtype=form.a_type, acc=form.d_type, rules=self._target.dot16)
        layout = form.operand("D")
        rows = to_registers(layout, d)
        for position, destination in enumerate(self._destinations):
            write_warps(frame, lanes, destination, rows[position])
        if warps is None:
            values = [frame.registers[destination.slot] for destination in self._destinations]
            frame.wave.fragments.remember(layout, values, d)


_BY_NAME = {instruction.name: instruction for instruction in MMA}


@step("mma", collective=True)
def matrix_multiply(context: Context, instruction: Instruction, modifiers: Modifiers) -> Step:
    """mma.sync.aligned of the forms in the instruction table."""
    form = _BY_NAME.get(instruction.name)
    if form is None:
        context.refuse(instruction.name, hint=f"modelled are {', '.join(_BY_NAME)}")
    for name in modifiers.rest():
        modifiers.take(name)
    needs(context, form.minimum_target, instruction)
    if len(instruction.operands) != 4:
        context.reject(f"{instruction.name} takes 4 operands, found {len(instruction.operands)}")
    target, *rest = instruction.operands
    layout = form.operand("D")
    register_type = "f32" if form.d_type == "f32" else "b32"
    destinations = [
        context.destination(e, register_type)
        for e in context.elements(target, layout.registers_per_lane)
    ]
    sources = {
        name: [
            context.source(e, "b32")
            for e in context.elements(operand, form.operand(name).registers_per_lane)
        ]
        for name, operand in zip("ABC", rest, strict=True)
    }
    return MatrixMultiply(form, context.target, destinations, sources, context.line)


def needs(context: Context, target: str, instruction: Instruction) -> None:
    """Refuse the instruction when the chosen target cannot run it."""
    if not context.target.runs(target):
        context.refuse(
            f"{instruction.name} on {context.target.name}", hint=f"it needs {target} or newer"
        )
