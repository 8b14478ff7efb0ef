"""The handwritten programs: the kernel, its one ``mma`` and its registers, and what these must hold.

The prediction knows nothing of how a program computes addresses: registers are the host matrices seen
through the layouts of ``ptxlab.matrix``, and D is a product in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from ptxlab import resources
from ptxlab.arrays import Array
from ptxlab.errors import PtxlabError, PtxSyntaxError, Unsupported
from ptxlab.fragments.misplaced import Held
from ptxlab.fragments.numbers import Fill, OwnFill
from ptxlab.fragments.probes.multiply import patterns
from ptxlab.fragments.probes.one_hot import filled_probe
from ptxlab.fragments.report import FragmentRun, Mismatch, differences
from ptxlab.instrument.sites import instructions
from ptxlab.matrix.catalog import nearest_names
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout, Place
from ptxlab.matrix.mma import MMA, program
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.naming import named
from ptxlab.syntax.lexer import locate
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Function, Instruction, Name, Operand, PtxModule, Vector

OPERAND_ORDER = "DABC"
"""How PTX writes the operands of ``mma``: destination first."""

PARAMETERS = ("a", "b", "d", "k")
"""What the kernel takes: A (m x k) and B (k x n), D (m x n, C before the launch), and k."""


@cache
def verifiable() -> tuple[MatrixInstruction, ...]:
    """Return the instructions that a program comes with ptxlab for, in the order of the table."""
    return tuple(i for i in MMA if resources.shipped(program(i)))


def handwritten(instruction: Form) -> tuple[MatrixInstruction, str]:
    """Return ``instruction``, and the path of the program that comes with ptxlab for it.

    Raises Unsupported when there is none.
    """
    for form in verifiable():
        if form == instruction:
            return form, str(resources.path(program(form)))
    raise Unsupported(
        f"a program for {instruction.name} cannot be looked at",
        hint=f"those for {', '.join(form.name for form in verifiable())} can",
    )


def is_as_ours(module: PtxModule) -> bool:
    """Say whether a program is made as those are: one mma in its kernels, with their parameters."""
    instructions = _every_mma(module)
    return len(instructions) == 1 and len(instructions[0][0].parameters) == len(PARAMETERS)


def find_mma(module: PtxModule, instruction: MatrixInstruction) -> tuple[Function, Instruction]:
    """Return the kernel and the statement of it that is ``instruction``.

    Raises PtxSyntaxError for an mma that is none, and PtxlabError unless the module's kernels hold that
    instruction exactly once, in a kernel with the parameters of the handwritten programs.
    """
    instructions = _every_mma(module)
    path = module.source.path
    if len(instructions) != 1:
        count = (
            "no mma instruction" if not instructions else f"{len(instructions)} mma instructions"
        )
        raise PtxlabError(f"{path} has {count} in its kernels", hint="it must have exactly one")
    kernel, statement = instructions[0]
    if named(statement.name) is None:
        raise PtxSyntaxError(
            f"ptxas takes no {statement.name}",
            location=locate(module.source, statement.position),
            hint=f"the nearest are {', '.join(nearest_names(statement.name))}",
        )
    if named(statement.name) != instruction:
        raise PtxlabError(
            f"this is {statement.name}, not {instruction.name}",
            location=locate(module.source, statement.position),
            hint="--op, --dtype and --acc say which instruction to look at",
        )
    if len(kernel.parameters) != len(PARAMETERS):
        raise PtxlabError(
            f"kernel {called(kernel.name)} has {len(kernel.parameters)} parameters",
            location=locate(module.source, kernel.position),
            hint=f"it must have {', '.join(PARAMETERS)}, as ptxlab's own programs have",
        )
    return kernel, statement


def _every_mma(module: PtxModule) -> list[tuple[Function, Instruction]]:
    return [
        (kernel, site.instruction)
        for kernel in module.entries
        for site in instructions(kernel)
        if site.instruction.opcode == "mma"
    ]


def registers(
    module: PtxModule, statement: Instruction, instruction: MatrixInstruction
) -> dict[str, tuple[str, ...]]:
    """Return the names of the registers of operands D, A, B and C, in fragment order.

    Raises Unsupported, with the line, for an operand that is not a list of that many registers.
    """
    if len(statement.operands) != len(OPERAND_ORDER):
        raise Unsupported(
            f"mma has {len(statement.operands)} operands, not d, a, b, c",
            location=locate(module.source, statement.position),
        )
    return {
        operand: _names(module, statement, written, instruction.operand(operand))
        for operand, written in zip(OPERAND_ORDER, statement.operands, strict=True)
    }


def _names(
    module: PtxModule, statement: Instruction, written: Operand, layout: FragmentLayout
) -> tuple[str, ...]:
    elements = written.elements if isinstance(written, Vector) else (written,)
    names = tuple(element.text for element in elements if isinstance(element, Name))
    count = layout.registers_per_lane
    if len(names) != count or len(elements) != count:
        raise Unsupported(
            f"operand {layout.operand} is not a list of {count} registers",
            location=locate(module.source, statement.position),
            hint="only registers can be dumped: move constants into registers first",
        )
    return names


def matrices(instruction: MatrixInstruction, fill: Fill) -> dict[str, Array]:
    """Return the expected bit patterns of each operand's matrix by name, D after the instruction.

    The fills are small integers: every sum is exact in float64, and partial sums along k are exact
    in the type of D up to its range, so the one rounding at the end is that of every target however
    many products it fuses in a step. Past the range of f16 it gives an infinity.
    """
    probe = filled_probe(instruction, fill)
    matrices = {}
    for layout in map(instruction.operand, "ABC"):
        name = layout.operand
        words = probe.numbers(name, layout).patterns[probe.given[name][0]]
        matrices[name] = words.astype(f"u{max(8, layout.bits) // 8}")
    return matrices | {"D": patterns(instruction, probe, ())[0]}


def mismatches(instruction: MatrixInstruction, runs: Sequence[FragmentRun]) -> tuple[Mismatch, ...]:
    """Return every wrong element of every run: registers of A, B, C and D, then D in memory."""
    return tuple(mismatch for run in runs for mismatch in _of_run(instruction, run))


def explained(instruction: MatrixInstruction, runs: Sequence[FragmentRun]) -> tuple[str, ...]:
    """Say what registers hold instead, of each operand in the run whose numbers tell most elements apart.

    D is what A, B and C make, and is told of when these are right.
    """
    every = [(run, matrices(instruction, run.fill)) for run in runs]
    told: list[str] = []
    for layout in map(instruction.operand, "ABCD"):
        name = layout.operand
        if name == "D" and told:
            break
        run, expected = max(every, key=lambda each: len(np.unique(each[1][name])))
        if name == "D" and isinstance(run.fill, OwnFill):
            break
        sentences = Held(layout, run.registers[name], expected[name]).explained()
        told += [f"{name} is WRONG: {sentence}" for sentence in sentences]
    return tuple(told)


def _of_run(instruction: MatrixInstruction, run: FragmentRun) -> Iterator[Mismatch]:
    expected = matrices(instruction, run.fill)
    if isinstance(run.fill, OwnFill):  # any numbers, whose sums a tensor core rounds as it will
        del expected["D"]
    for layout in instruction.operands:
        if layout.operand not in expected:
            continue
        words = layout.pack(expected[layout.operand])
        held = run.registers[layout.operand]
        for lane, register in np.argwhere(words != held).tolist():
            both = int(words[lane, register]), int(held[lane, register])
            for element, right, wrong in differences(layout, *both):
                place = Place(lane, register, element)
                yield Mismatch.of(str(run.fill), "register", layout, place, right, wrong)
    if run.result is None or "D" not in expected:
        return
    d = instruction.operand("D")
    for row, col in np.argwhere(expected["D"] != run.result).tolist():
        (owner,) = d.registers(row, col)
        both = int(expected["D"][row, col]), int(run.result[row, col])
        yield Mismatch.of(str(run.fill), "memory", d, owner, *both)
