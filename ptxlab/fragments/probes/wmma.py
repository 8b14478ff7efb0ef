"""Probe kernels of ``wmma``: from memory to memory, through load, multiplication and store.

PTX leaves it to the target which lane holds what, so that only together do the instructions mean
something. The registers are written to the record all the same, as what PTX does not specify.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxlab.arrays import Array
from ptxlab.fragments.numbers import Fill
from ptxlab.fragments.probe_kernel import (
    SHARE_BYTES,
    WORD_BYTES,
    Body,
    KernelStep,
    TypedRegister,
    statement,
)
from ptxlab.fragments.probes.kernel import ProbeKernel, packed, record
from ptxlab.fragments.probes.multiply import blame, fragments, patterns
from ptxlab.fragments.probes.one_hot import Probes, filled_probe, layout_probes
from ptxlab.fragments.report import Mismatch, differences
from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import SignatureOperand
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wmma import WMMA
from ptxlab.matrix.wmma_move import WmmaMove, move_name

ALIGNMENT = 128
_UNTOUCHED = 0xA5
"""What D's memory holds before it is stored."""


@dataclass(frozen=True, slots=True)
class _Matrix:
    """One operand in shared memory, from byte ``first`` on; ``move`` loads or stores it.

    ``layout`` is that over the warp, ``order`` that in memory: ``row`` or ``col``.
    """

    move: str
    layout: FragmentLayout
    order: str
    first: int

    @property
    def nbytes(self) -> int:
        return self.layout.rows * self.layout.cols * self.layout.bits // 8


@dataclass(frozen=True, slots=True, eq=False)
class MemoryProbeKernel(ProbeKernel):
    """``probes`` of a multiplication whose operands are ``matrices``, A, B, C and D, in memory."""

    multiplication: MatrixInstruction
    probes: tuple[Probes, ...]
    matrices: tuple[_Matrix, ...]

    @property
    def unspecified(self) -> int:
        return len(self.body.results)

    def result(self, records: Array) -> Array | None:
        """Return D, bit patterns, as the first probe stores it; None where it is about a load."""
        d = self.matrices[-1]
        if isinstance(self.form, WmmaMove) and self.form.name != d.move:
            return None
        memory = np.ascontiguousarray(records[0, :, self.unspecified :]).view(np.uint8).ravel()
        words = memory[d.first : d.first + d.nbytes].view(f"u{d.layout.bits // 8}")
        if d.order == "row":
            return words.reshape(d.layout.rows, d.layout.cols)
        return words.reshape(d.layout.cols, d.layout.rows).T

    def explain(
        self, probe: int, lane: int, word: int, expected: int, actual: int
    ) -> Iterator[Mismatch]:
        """Yield what is wrong with the elements in one word: of a register, or of D in memory."""
        slot = word
        for matrix in self.matrices:
            layout = matrix.layout
            if slot < layout.registers_per_lane:
                for element, right, wrong in differences(layout, expected, actual):
                    place = Place(lane, slot, element)
                    yield Mismatch.of("one-hot", "register", layout, place, right, wrong)
                return
            slot -= layout.registers_per_lane
        share = self.body.shared_bytes // WARP
        yield from self._in_memory(probe, share * lane + WORD_BYTES * slot, expected, actual)

    def _in_memory(self, probe: int, byte: int, expected: int, actual: int) -> Iterator[Mismatch]:
        """Yield what is wrong in the 8 bytes from ``byte`` on; what follows a matrix counts as its own."""
        matrix = [each for each in self.matrices if each.first <= byte][-1]
        layout = matrix.layout
        along = layout.cols if matrix.order == "row" else layout.rows
        count = 8 * WORD_BYTES // layout.bits
        for element, right, wrong in differences(layout, expected, actual, count):
            number = 8 * (byte - matrix.first) // layout.bits + element
            line, at = divmod(number % (layout.rows * layout.cols), along)
            row, col = (line, at) if matrix.order == "row" else (at, line)
            if layout.operand == "D":
                in_d = (0, row, col)
                yield blame(self.multiplication, self.probes, probe, (), in_d, right, wrong)
            else:
                place = layout.registers(row, col)[0]
                yield Mismatch.of("one-hot", "memory", layout, place, right, wrong)


def wmma_probe_kernel(form: MatrixInstruction | WmmaMove, fill: Fill | None) -> ProbeKernel:
    """Return the probe kernel of a multiplication, or of a load or store in the first one that uses it.

    With a ``fill`` it is one launch on what that means.
    """
    orders = {"C": "row", "D": "row"}
    if isinstance(form, WmmaMove):
        operand = form.layout.operand
        orders[operand] = form.order
        user = next(each for each in WMMA if _uses(each, form))
        layouts = [form.layout if o.operand == operand else o for o in user.operands]
        multiplication = replace(user, operands=tuple(layouts))
        probed = "C" if operand == "D" else operand
    else:
        multiplication, probed = form, "ABC"
    orders |= dict(zip("AB", _orders(multiplication), strict=True))
    matrices = _in_shared_memory(multiplication, orders)
    probes = (
        (filled_probe(multiplication, fill),) if fill else layout_probes(multiplication, probed)
    )
    body = _body(multiplication, matrices)
    given, expected = [], []
    for some in probes:
        d = patterns(multiplication, some, ())
        held = [fragments(multiplication, some, name) for name in "ABC"]
        held.append(matrices[-1].layout.pack(d))
        before = _memory(body, multiplication, some, matrices)
        given.append(record(np.empty((some.count, WARP, 0)), before))
        _put(before, matrices[-1], d)
        expected.append(record(np.concatenate(held, axis=-1), before))
    return MemoryProbeKernel(
        form,
        body,
        np.concatenate(given),
        np.concatenate(expected),
        multiplication,
        probes,
        matrices,
    )


def _uses(form: MatrixInstruction, move: WmmaMove) -> bool:
    """Say whether a load or store is one that the multiplication needs."""
    operand = move.layout.operand
    fits = form.shape == move.shape and form.operand(operand).dtype == move.layout.dtype
    return fits and (operand in "CD" or _orders(form)["AB".index(operand)] == move.order)


def _orders(form: MatrixInstruction) -> list[str]:
    """Return the orders of A and B in memory, which are part of the name."""
    return [part for part in form.name.split(".") if part in ("row", "col")]


def _in_shared_memory(form: MatrixInstruction, orders: dict[str, str]) -> tuple[_Matrix, ...]:
    """Return the operands one after the other."""
    matrices: list[_Matrix] = []
    first = 0
    for layout in form.operands:
        order = orders[layout.operand]
        move = move_name(layout, form.shape, order)
        matrices.append(_Matrix(move, layout, order, first))
        first += -(-matrices[-1].nbytes // ALIGNMENT) * ALIGNMENT
    return tuple(matrices)


def _body(form: MatrixInstruction, matrices: Sequence[_Matrix]) -> Body:
    fragment = {o.name.upper(): o for o in form.signature}
    registers: dict[str, tuple[TypedRegister, ...]] = {
        name: tuple((r, o.type) for r in o.registers) for name, o in fragment.items()
    }
    steps = []
    for matrix in matrices[:3]:
        name = matrix.layout.operand
        line = f"{matrix.move} {_list(fragment[name])}, [base+{matrix.first}];"
        steps.append(KernelStep((line,), registers[name]))
    store = matrices[3]
    multiply = statement(form)
    steps.append(KernelStep((multiply,), registers["D"]))
    steps.append(KernelStep((f"{store.move} [base+{store.first}], {_list(fragment['D'])};",)))
    nbytes = store.first + store.nbytes
    shared = -(-nbytes // SHARE_BYTES) * SHARE_BYTES
    return Body(tuple(r for each in registers.values() for r in each), (), tuple(steps), shared)


def _list(operand: SignatureOperand) -> str:
    return f"{{{', '.join(operand.registers)}}}"


def _memory(
    body: Body, form: MatrixInstruction, probes: Probes, matrices: Sequence[_Matrix]
) -> Array:
    """Return shared memory, [probes, bytes], with A, B and C."""
    memory = np.full((probes.count, body.shared_bytes), _UNTOUCHED, np.uint8)
    for matrix in matrices[:3]:
        layout = matrix.layout
        name = layout.operand
        _put(memory, matrix, probes.numbers(name, layout).patterns[probes.of(name)])
    return memory


def _put(memory: Array, matrix: _Matrix, elements: Array) -> None:
    """Write bit patterns, [probes, rows, cols], where the matrix lies in memory."""
    lines = elements if matrix.order == "row" else np.swapaxes(elements, -1, -2)
    flat = np.ascontiguousarray(lines, np.uint64).reshape(len(lines), -1)
    octets = packed(flat, matrix.layout.bits)
    memory[:, matrix.first : matrix.first + matrix.nbytes] = octets
