"""Running a program with its registers dumped around the instruction that is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike

from ptxlab.device.loading import load_ptx
from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Device, Kernel
from ptxlab.fragments import trials
from ptxlab.fragments.handwritten import find_mma, matrices, registers
from ptxlab.fragments.numbers import Array, Fill
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
from ptxlab.syntax.tree import Function, Instruction, Module


@dataclass(frozen=True, slots=True)
class Watched:
    """An operand: its layout, its registers in the program, and whether they are looked at ``after``."""

    layout: FragmentLayout
    registers: tuple[str, ...]
    after: bool


@dataclass(frozen=True, slots=True, eq=False)
class Instrumented:
    """A kernel that also writes the registers of operands to a buffer, its last parameter."""

    device: Device
    watched: tuple[Watched, ...]
    kernel: Kernel

    @classmethod
    def load(
        cls,
        device: Device,
        program: Module,
        kernel: Function,
        statement: Instruction,
        watched: Iterable[Watched],
    ) -> Instrumented:
        """Insert the dumps around the statement of the kernel, and load the program."""
        every = tuple(watched)
        probes = [Probe(statement.position, each.registers, each.after) for each in every]
        text = to_text(dump_registers(program, kernel.name, probes))
        return cls(device, every, device.load(text).kernel(kernel.name))

    def run(self, fill: Fill, launch: Callable[[Buffer], Array | None]) -> Run:
        """Return what ``launch``, which is given the buffer, leaves in the registers, and its result."""
        slots = sum(len(each.registers) for each in self.watched)
        with self.device.zeros((WARP, slots), "u64") as dump:
            result = launch(dump)
            words = dump.numpy()
        held: dict[str, Array] = {}
        first = 0
        for each in self.watched:
            columns = words[:, first : first + len(each.registers)]
            held[each.layout.operand] = columns.astype(f"u{each.layout.register_bits // 8}")
            first += len(each.registers)
        after = frozenset(each.layout.operand for each in self.watched if each.after)
        return Run(fill, held, after, result)


def run_handwritten(
    device: Device,
    instruction: MatrixInstruction,
    source: str | PathLike[str],
    fills: Iterable[Fill],
) -> tuple[Run, ...]:
    """Launch one warp of a program (file or PTX text) on what each of ``fills`` means, with dumps."""
    program = load_ptx(source, device.target)
    kernel, statement = find_mma(program, instruction)
    names = registers(program, statement, instruction)
    watched = (Watched(o, names[o.operand], o.operand == "D") for o in instruction.operands)
    loaded = Instrumented.load(device, program, kernel, statement, watched)

    def run(fill: Fill) -> Run:
        given = matrices(instruction, fill)
        with (
            device.upload(given["A"]) as a,
            device.upload(given["B"]) as b,
            device.upload(given["C"]) as d,
        ):

            def launch(dump: Buffer) -> Array:
                loaded.kernel.launch(1, WARP, [a, b, d, instruction.k, dump])
                return d.numpy()

            return loaded.run(fill, launch)

    return tuple(map(run, fills))


def run_generated(device: Device, form: Form, fill: Fill) -> Run:
    """Launch one warp of a generated program on what ``fill`` means, and dump its registers."""
    trial = trials.filled(form, fill)
    program = parse(module([(form, trial.body)], device.target.name), f"<{form.name}>")
    (kernel,) = program.entries
    every = (site.instruction for site in instructions(kernel))
    statement = next(one for one in every if one.name == form.name)
    loaded = Instrumented.load(device, program, kernel, statement, _watched(form))
    return loaded.run(fill, lambda dump: trial.result(launch(device, loaded.kernel, trial, dump)))


def _watched(form: Form) -> Iterator[Watched]:
    """Yield the operands of an instruction, with what generated programs call their registers."""
    roles = {operand.name: operand.role for operand in form.signature}
    for layout in form.operands:
        letter = layout.operand.lower()
        names = tuple(f"{letter}{i}" for i in range(layout.registers_per_lane))
        role = roles["r" if isinstance(form, WmmaMove) else letter]
        yield Watched(layout, names, after=role == "result")
