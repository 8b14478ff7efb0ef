"""SASS as data: the instructions of every function in the text that nvdisasm prints.

Format: CUDA Binary Utilities, "nvdisasm"; the opcodes are listed there under "Instruction Set
Reference".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ptxlab.errors import ToolchainError
from ptxlab.garbage import record
from ptxlab.machine.control import INSTRUCTION_BYTES
from ptxlab.toolchain.cubin import Cubin
from ptxlab.toolchain.nvdisasm import disassemble

_TARGET = re.compile(r"^\s*\.target\s+(?P<name>\S+)", re.MULTILINE)
_FLAGS = re.compile(
    r'^\s*\.headerflags\s+@".*?(?P<own>EF_CUDA_ACCELERATORS )?EF_CUDA_SM(?P<number>\d+)', re.M
)
_SECTION = re.compile(r"\s*\.section\s+\.text\.(?P<name>[^,\s]+)")
_KERNEL = re.compile(r'\s*\.other\s+(?P<name>\S+),@"STO_CUDA_ENTRY')
_LINE = re.compile(r'\s*//## File "[^"]*", line (?P<line>\d+)')
_LABEL = re.compile(r"(?P<label>\.L\w+|\$[\w$]+):")
_INSTRUCTION = re.compile(
    r"\s*/\*(?P<address>[0-9a-f]+)\*/\s+(?:(?P<guard>@!?\w+)\s+)?(?P<name>[A-Z][\w.]*)\s*(?P<rest>[^;]*);"
)

NAMELESS = "NAMELESS"
"""The opcode of what nvdisasm leaves out, as it does with instructions that a chip does not have."""


@record(frozen=True, slots=True)
class SassInstruction:
    """One machine instruction: ``@!P0 IMAD.WIDE R2, R3, R4, R6`` at ``address`` in its function.

    ``guard`` is ``@!P0``, or "" where there is none; ``opcode`` is ``IMAD`` and ``modifiers`` are
    ``("WIDE",)``. ``line`` is the line of the PTX it was made from, None where the cubin says none.
    """

    address: int
    guard: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    line: int | None

    @property
    def name(self) -> str:
        """The opcode with its modifiers: ``IMAD.WIDE``."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def text(self) -> str:
        """The instruction as nvdisasm writes it, without blanks that carry nothing."""
        guard = f"{self.guard} " if self.guard else ""
        return f"{guard}{self.name} {', '.join(self.operands)}".rstrip()

    @property
    def target(self) -> str | None:
        """The label it branches to, None where it names none."""
        for operand in self.operands:
            if operand.startswith("`("):
                return operand[2:-1]
        return None


@record(frozen=True, slots=True)
class SassFunction:
    """One function: a ``kernel``, or what kernels call.

    ``labels`` gives the address each stands at. The padding that the assembler puts behind a
    function, a branch to itself and NOPs, is left out.
    """

    name: str
    kernel: bool
    instructions: tuple[SassInstruction, ...]
    labels: dict[str, int]

    def opcodes(self) -> Counter[str]:
        """Count the instructions by opcode, without modifiers."""
        return Counter(instruction.opcode for instruction in self.instructions)


def sass(cubin: Cubin) -> dict[str, SassFunction]:
    """Disassemble a cubin and return its functions by name, in the order of its sections."""
    return {name: whole(each) for name, each in read_sass(disassemble(cubin)).items()}


def whole(function: SassFunction) -> SassFunction:
    """Return a function with an instruction at every address: ``NAMELESS`` where nvdisasm printed none."""
    every: list[SassInstruction] = []
    for each in function.instructions:
        while (address := INSTRUCTION_BYTES * len(every)) < each.address:
            every.append(SassInstruction(address, "", NAMELESS, (), (), each.line))
        every.append(each)
    return replace(function, instructions=tuple(every))


def read_sass(text: str) -> dict[str, SassFunction]:
    """Read what ``nvdisasm -c -gp`` prints: the functions by name."""
    return {function.name: function for function in _functions(text)}


def read_target(text: str) -> str:
    """Read what ``nvdisasm -c`` says machine code is for."""
    if match := _TARGET.search(text):
        return match["name"]
    if before := _FLAGS.search(text):  # a cubin from before CUDA 13
        return f"sm_{before['number']}{'a' * bool(before['own'])}"
    raise ToolchainError("nvdisasm does not say which target this cubin is for")


def _functions(text: str) -> Iterator[SassFunction]:
    name: str | None = None
    kernels = {match["name"] for match in map(_KERNEL.match, text.splitlines()) if match}
    instructions: list[SassInstruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []  # labels whose instruction is still to come
    line: int | None = None
    for row in text.splitlines():
        if section := _SECTION.match(row):
            if name is not None:
                yield _function(name, kernels, instructions, labels)
            name, instructions, labels, waiting, line = section["name"], [], {}, [], None
        elif line_info := _LINE.match(row):
            line = int(line_info["line"])
        elif label := _LABEL.match(row):
            waiting.append(label["label"])
        elif printed := _INSTRUCTION.match(row):
            address = int(printed["address"], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting = []
            opcode, *modifiers = printed["name"].split(".")
            operands = tuple(_operands(printed["rest"].strip()))
            instructions.append(
                SassInstruction(
                    address, printed["guard"] or "", opcode, tuple(modifiers), operands, line
                )
            )
    if name is not None:
        yield _function(name, kernels, instructions, labels)


def _function(
    name: str, kernels: set[str], instructions: list[SassInstruction], labels: dict[str, int]
) -> SassFunction:
    end = len(instructions)
    while end and instructions[end - 1].opcode == "NOP":
        end -= 1
    if end and _loops_on_itself(instructions[end - 1], labels):
        end -= 1
    return SassFunction(name, name in kernels, tuple(instructions[:end]), labels)


def _loops_on_itself(instruction: SassInstruction, labels: dict[str, int]) -> bool:
    target = instruction.target
    return (
        instruction.opcode == "BRA"
        and not instruction.guard
        and target is not None
        and labels.get(target) == instruction.address
    )


def _operands(text: str) -> Iterator[str]:
    """Split operands at the commas outside brackets."""
    depth, start = 0, 0
    for at, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    if text:
        yield text[start:].strip()
