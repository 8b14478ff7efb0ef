"""tcgen05.cp and tcgen05.shift: what tensor cores move in Tensor Memory by themselves.

A copy reads rows of 16 or 32 bytes of shared memory through a matrix descriptor, and writes each to one
lane or several. Of a pair each CTA copies from its own shared memory into its own Tensor Memory. A shift
has the lanes of a quarter take 32 bytes of the next one each; the last of the 32 keeps what it has.

Source: PTX ISA, "Tensorcore 5th Generation Instructions: tcgen05.cp, tcgen05.shift", whose shape is 31x256b;
which row goes to which lanes after CUTLASS's ``copy_traits_sm100.hpp`` and kernels that are right on a GPU.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.tensor_core_issue import Cells, Issued, Operation
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.tensor_memory import CELL_BYTES, LANES
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.matrix.canonical import UNIT_BYTES
from ptxlab.matrix.form import SharedOperand
from ptxlab.matrix.shared_matrix import unpadded
from ptxlab.matrix.tensor_memory_operand import QUARTER, held_bit, lanes_of_copy, shifted

_PACKED_BITS = {"b4x16_p64": 4, "b6x16_p32": 6}
_SHIFTED_COLUMNS = 8


def copy(context: Context, asked: RowForm) -> Step:
    """Copy rows of shared memory to lanes of Tensor Memory, in their turn."""
    operation = Operation.of(context, asked)
    address, source = context.operands(2)
    target, descriptor = context.address(address), context.source(source, "b64")
    rows, width, lanes = lanes_of_copy(asked.modifiers)
    operand = SharedOperand("A", rows, width // 8, "b8", 8)
    bits = next((_PACKED_BITS[part] for part in asked.modifiers if part in _PACKED_BITS), 0)
    columns = np.arange(width // (8 * CELL_BYTES))
    # What refreshes one lane of each quarter may name that lane.
    anywhere = rows < QUARTER

    def run(frame: Frame, threads: Threads) -> None:
        for issued in operation.issued(frame, threads):
            allowed = range(QUARTER) if anywhere else (0,)
            cells = issued.cells(target, columns.size, "the target", lanes=allowed)
            units = issued.lines(operand, "k", issued.values(descriptor)).units
            issued.start(partial(land, issued, cells, units), partial(access, issued, cells, units))

    def access(issued: Issued, cells: Cells, units: Array) -> TensorCoreAccess:
        targets = cells.at(lanes[..., np.newaxis], columns)
        return TensorCoreAccess(
            operation.group, shared={"S": units * UNIT_BYTES}, written={"T": targets}
        )

    def land(issued: Issued, cells: Cells, units: Array, chosen: Array | None) -> None:
        some = issued.of_ctas(chosen)
        read = issued.wave.regions["shared"].items(UNIT_BYTES)[units[some]]
        octets = np.ascontiguousarray(read).view(np.uint8)
        if bits:
            octets = unpadded(octets, bits) << np.uint8(held_bit(bits))
        targets = cells.part(some).at(lanes[..., np.newaxis], columns)
        issued.wave.tensor_memory.cells[targets] = octets.view(np.uint32)[:, np.newaxis]

    return run


def shift(context: Context, asked: RowForm) -> Step:
    """Have the lanes of a quarter take 32 bytes of the next one, in their turn."""
    operation = Operation.of(context, asked)
    [address] = context.operands(1)
    target = context.address(address)
    quarters = range(0, LANES, QUARTER)
    lanes, columns = np.arange(QUARTER)[:, np.newaxis], np.arange(_SHIFTED_COLUMNS)

    def run(frame: Frame, threads: Threads) -> None:
        for issued in operation.issued(frame, threads):
            cells = issued.cells(target, columns.size, "what is shifted", lanes=quarters)
            issued.start(partial(land, issued, cells), partial(access, cells))

    def access(cells: Cells) -> TensorCoreAccess:
        before, after = shifted(cells.at(lanes, columns))
        return TensorCoreAccess(operation.group, read={"T": before}, written={"T": after})

    def land(issued: Issued, cells: Cells, chosen: Array | None) -> None:
        before, after = shifted(cells.part(issued.of_ctas(chosen)).at(lanes, columns))
        memory = issued.wave.tensor_memory.cells
        memory[after] = memory[before]

    return run


_issue = partial(row, operands="", mix="matrix move")
_issue("tcgen05.cp.*", step=copy, effects=Effects(begins="tensor_work", work="copy"))
_issue("tcgen05.shift.*", step=shift, effects=Effects(begins="tensor_work", work="shift"))
