"""The operands of the instructions that a recording has: registers with their names, types and fragments.

And the factors of a warpgroup's products that lie in shared memory, where the descriptors say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of, form_of
from ptxlab.emulator.prepare.row import RowForm, UnknownForm
from ptxlab.emulator.run.tensor_work import TensorCoreAccess
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame, Wave
from ptxlab.instrument.naming import is_machine_register
from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.matrix.descriptor import WGMMA_DESCRIPTOR
from ptxlab.matrix.form import Form, SharedOperand
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import RowMove
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.naming import named
from ptxlab.matrix.shared_matrix import addresses
from ptxlab.numbers.types import TYPES
from ptxlab.observe.recording import Factor, FragmentInfo, RecordedOperands, RegisterInfo
from ptxlab.observe.value_flow import RegisterNames, slots
from ptxlab.syntax.tree import Address, Integer, Operand

RegisterNumbers = tuple[int | None, ...]
"""The numbers of the registers of an operand in a frame, None for what is no register."""


class KnownRegisters:
    """The registers that instructions name, numbered in the order in which they are met.

    Where machine code was ``lifted``, those of the machine.
    """

    def __init__(self, *, lifted: bool) -> None:
        self._lifted = lifted
        self._sites: dict[Site, None] = {}
        self._names = RegisterNames()
        self._numbers: dict[str, dict[int, int]] = {}
        self._declared: list[tuple[str, str, str]] = []

    def meet(self, site: Site) -> dict[int, int]:
        """Return the registers of a site's function that are known: their numbers here by those in a frame."""
        numbers = self._numbers.setdefault(site.function, {})
        if site not in self._sites:
            self._sites[site] = None
            names = self._names.seen_from(site.scope)
            for slot in sorted(site.reads | site.writes):
                name = names.get(slot)
                if name is not None and self._lifted and not is_machine_register(name):
                    continue
                register = None if slot in numbers or name is None else site.register(name)
                if name is not None and register is not None:
                    numbers[slot] = len(self._declared)
                    self._declared.append((name, site.function, register.type))
        return numbers

    def operands(self, sites: Sequence[Site]) -> RecordedOperands:
        """Return the operands of an instruction, of machine code those of all that it was lifted into."""
        reads, writes, fragments, descriptors = (
            set[int](),
            set[int](),
            list[FragmentInfo](),
            dict[int, str](),
        )
        for site in sites:
            numbers = self._numbers[site.function]
            reads |= {numbers[slot] for slot in site.reads if slot in numbers}
            writes |= {numbers[slot] for slot in site.writes if slot in numbers}
            fragments += (
                FragmentInfo(
                    layout, tuple(None if s is None else numbers.get(s) for s in held), result
                )
                for layout, held, result in _fragments(site)
            )
            descriptors |= {
                numbers[slot]: site.instruction.opcode
                for _, slot in descriptor_slots(site)
                if slot in numbers
            }
        return RecordedOperands(
            tuple(sorted(reads)), tuple(sorted(writes)), tuple(fragments), descriptors
        )

    def infos(self) -> tuple[RegisterInfo, ...]:
        """Return what the instructions say of each register: the first of its fragments most of all."""
        holds: dict[int, str] = {}
        for claims in (_of_fragments, self._of_declarations, _of_results, _of_sources):
            for site in self._sites:
                for slot, kind in claims(site):
                    number = self._numbers[site.function].get(-1 if slot is None else slot)
                    if number is not None and _may_hold(self._declared[number][2], kind):
                        holds.setdefault(number, kind)
        return tuple(
            RegisterInfo(name, function, kind, holds.get(number, kind), TYPES[kind].bits)
            for number, (name, function, kind) in enumerate(self._declared)
        )

    def _of_declarations(self, site: Site) -> Iterator[tuple[int, str]]:
        numbers = self._numbers[site.function]
        for slot in site.reads | site.writes:
            if slot in numbers:
                yield slot, self._declared[numbers[slot]][2]


def _may_hold(declared: str, kind: str) -> bool:
    """Say whether a type tells more of all bits of a register than that they are bits."""
    bits = TYPES[kind].bits if kind in TYPES else 0
    return not _is_bits(kind) and bits in (0, TYPES[declared].bits)


def _is_bits(kind: str) -> bool:
    return kind.startswith("b") and kind[1:].isdecimal()


def _fragments(site: Site) -> Iterator[tuple[FragmentLayout, RegisterNumbers, bool]]:
    """Yield the matrices in registers of an instruction, which of its operands have them, and if it writes them."""
    form, operands = matrix_form(site), site.instruction.operands
    if form is None:
        return
    for operand, written in zip(form.signature, operands, strict=False):
        layout = operand.layout
        if isinstance(form, RowMove) and operand.role in ("result", "source"):
            layout = form.operands[0]
        if layout is not None:
            yield layout, slots(site, written), operand.role == "result"


def matrix_form(site: Site) -> Form | None:
    """Return the form of a matrix instruction; of an asynchronous product the one with A where it is."""
    matrix, operands = _form(site), site.instruction.operands
    form = None if matrix is None else matrix.matrix
    if form is None or not form.variant:
        return form
    variant = "ts" if isinstance(operands[1], Address) else "ss"
    if len(slots(site, operands[1])) > 1:
        variant = "rs"
    return named(f"{form.name}.{variant}") or form


def descriptor_slots(site: Site) -> Iterator[tuple[str, int | None]]:
    """Yield by its name, ``a``, ``b`` or ``s``, the register that holds each matrix descriptor."""
    form = matrix_form(site)
    if form is None or not effects_of(site.instruction).begins:
        return
    for operand, written in zip(form.signature, site.instruction.operands, strict=False):
        if operand.name.endswith("-desc"):
            [slot] = slots(site, written)
            yield operand.name.removesuffix("-desc"), slot


def _of_fragments(site: Site) -> Iterator[tuple[int | None, str]]:
    for layout, held, _ in _fragments(site):
        several = layout.elements_per_register
        kind = layout.dtype if several == 1 else f"{layout.dtype}x{several}"
        if not _is_bits(layout.dtype):
            yield from ((slot, kind) for slot in held)


def _of_results(site: Site) -> Iterator[tuple[int | None, str]]:
    if form := _form(site):
        yield from _typed(site, site.instruction.operands[:1], form.results)


def _of_sources(site: Site) -> Iterator[tuple[int | None, str]]:
    if form := _form(site):
        yield from _typed(site, site.instruction.operands[1:], form.operands)


def _form(site: Site) -> RowForm | None:
    """Return the form of an instruction, None for calls and others that no row has."""
    try:
        return form_of(site.instruction)
    except (KeyError, UnknownForm):
        return None


def _typed(
    site: Site, operands: Sequence[Operand], kinds: Sequence[str]
) -> Iterator[tuple[int | None, str]]:
    for operand, kind in zip(operands, kinds, strict=False):
        if kind in TYPES:
            yield from ((slot, kind) for slot in slots(site, operand))


# ---- factors in shared memory -------------------------------------------------------------------


def factors(site: Site, frame: Frame, threads: Threads, position: int) -> Iterator[Factor]:
    """Yield what a ``wgmma`` that ``threads`` begin reads of the shared memory of the CTA at a position."""
    form = matrix_form(site)
    if not isinstance(form, MatrixInstruction):
        return
    wave, first = frame.wave, position * frame.wave.cta_width
    mine = threads.index[(threads.index >= first) & (threads.index < first + wave.cta_width)]
    given = dict(
        zip((operand.name for operand in form.signature), site.instruction.operands, strict=True)
    )
    for name, slot in descriptor_slots(site):
        operand = form.held(name.upper())
        if slot is None or not isinstance(operand, SharedOperand):
            continue
        words = np.broadcast_to(frame.registers[slot], (threads.width,))
        major = "mn" if _is_one(given.get(f"imm-trans-{name}")) else "k"
        for group in np.unique((mine - first) // WARPGROUP).tolist():
            word = words[first + group * WARPGROUP]
            yield _factor(operand, major, int(word), group * WARPGROUP // WARP, wave.shared_base)


def _is_one(operand: Operand | None) -> bool:
    return isinstance(operand, Integer) and operand.value == 1


def _factor(operand: SharedOperand, major: str, word: int, warp: int, base: int) -> Factor:
    [units] = addresses(operand, major, np.array([word], np.uint64)) - base
    swizzle = str(WGMMA_DESCRIPTOR.decode(word)["swizzle"])
    return Factor(operand, (operand.operand == "A") == (major == "k"), warp, swizzle, units)


def tensor_factors(
    access: TensorCoreAccess, threads: Threads, wave: Wave, position: int
) -> Iterator[Factor]:
    """Yield what tensor cores read, for threads that have issued it, of the shared memory of the CTA at a position."""
    problem = access.problem
    if problem is None:
        return
    own = wave.cta_of[threads.index]
    ctas = (own - own % access.group)[:, np.newaxis] + np.arange(access.group)
    for at in np.flatnonzero(ctas.ravel() == position).tolist():
        thread = int(threads.index[at // access.group])
        warp = thread % wave.cta_width // WARP if wave.cta_of[thread] == position else 0
        for name, first in access.shared.items():
            operand, major = (
                (problem.a, problem.majors[0]) if name == "A" else (problem.b, problem.majors[1])
            )
            units = first[at] - position * wave.shared_pitch
            by_row = (name == "A") == (major == "k")
            yield Factor(operand, by_row, warp, access.swizzles[name], units)
