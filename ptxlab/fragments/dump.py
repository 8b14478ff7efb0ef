"""Running a program with its registers dumped around the instruction that is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike

from ptxlab.device.loading import load_ptx
from ptxlab.device.protocol import Device, Kernel
from ptxlab.fragments import trials
from ptxlab.fragments.fill import Fill, inputs
from ptxlab.fragments.handwritten import find_mma, registers
from ptxlab.fragments.numbers import Array
from ptxlab.fragments.report import Run
from ptxlab.fragments.specimen import module
from ptxlab.fragments.trials.trial import launch
from ptxlab.instrument.rewrite import Probe, dump_registers
from ptxlab.instrument.sites import instructions
from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wmma import WmmaMove
from ptxlab.syntax.parser import parse
from ptxlab.syntax.printer import to_text
from ptxlab.syntax.tree import Module, Position


@dataclass(frozen=True, slots=True)
class Watched:
    """An operand: its layout, its registers in the program, and whether they are looked at ``after``."""

    layout: FragmentLayout
    registers: tuple[str, ...]
    after: bool


@dataclass(frozen=True, slots=True, eq=False)
class Instrumented:
    """A kernel of the handwritten kind that also writes its operands' registers to a buffer."""

    device: Device
    instruction: MatrixInstruction
    watched: tuple[Watched, ...]
    kernel: Kernel

    @classmethod
    def load(
        cls, device: Device, instruction: MatrixInstruction, source: str | PathLike[str]
    ) -> Instrumented:
        """Insert the dumps into the program at ``source`` (a file, or PTX text) and load it."""
        program = load_ptx(source, device.target)
        function, statement = find_mma(program, instruction)
        names = registers(program, statement, instruction)
        watched = tuple(
            Watched(layout, names[layout.operand], after=layout.operand == "D")
            for layout in instruction.operands
        )
        text = _with_dumps(program, function.name, statement.position, watched)
        return cls(device, instruction, watched, device.load(text).kernel(function.name))

    def run(self, fill: Fill) -> Run:
        """Launch one warp on what ``fill`` means; return its registers and the D it stored."""
        given = inputs(self.instruction, fill)
        device = self.device
        with (
            device.upload(given.a) as a,
            device.upload(given.b) as b,
            device.upload(given.c) as d,
            device.zeros((WARP, _slots(self.watched)), "u64") as dump,
        ):
            self.kernel.launch(1, WARP, [a, b, d, self.instruction.k, dump])
            return _run(fill, self.watched, dump.numpy(), d.numpy())


def run_generated(device: Device, form: Form, fill: Fill) -> Run:
    """Launch one warp of a generated program on what ``fill`` means, and dump its registers."""
    trial = trials.filled(form, fill)
    program = parse(module([(form, trial.body)], device.target.name), f"<{form.name}>")
    (kernel,) = program.entries
    position = next(
        site.instruction.position
        for site in instructions(kernel)
        if site.instruction.name == form.name
    )
    watched = tuple(_watched(form))
    loaded = device.load(_with_dumps(program, kernel.name, position, watched))
    with device.zeros((WARP, _slots(watched)), "u64") as dump:
        found = launch(device, loaded.kernel(), trial, dump)
        return _run(fill, watched, dump.numpy(), trial.result(found))


def _watched(form: Form) -> Iterator[Watched]:
    """Yield the operands of an instruction, with what generated programs call their registers."""
    roles = {operand.name: operand.role for operand in form.signature}
    for layout in form.operands:
        letter = layout.operand.lower()
        names = tuple(f"{letter}{i}" for i in range(layout.registers_per_lane))
        role = roles["r" if isinstance(form, WmmaMove) else letter]
        yield Watched(layout, names, after=role == "result")


def _with_dumps(
    program: Module, kernel: str, position: Position, watched: Sequence[Watched]
) -> str:
    probes = [Probe(position, each.registers, each.after) for each in watched]
    return to_text(dump_registers(program, kernel, probes))


def _slots(watched: Sequence[Watched]) -> int:
    return sum(len(each.registers) for each in watched)


def _run(fill: Fill, watched: Sequence[Watched], words: Array, result: Array | None) -> Run:
    """Return a run of the dumped words of a warp, [32, registers of all operands]."""
    held: dict[str, Array] = {}
    first = 0
    for each in watched:
        columns = words[:, first : first + len(each.registers)]
        held[each.layout.operand] = columns.astype(f"u{each.layout.register_bits // 8}")
        first += len(each.registers)
    after = frozenset(each.layout.operand for each in watched if each.after)
    return Run(fill, held, after, result)
