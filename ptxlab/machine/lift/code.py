"""Addresses of code: an instruction is 16 bytes times its number, and behind the last are the functions of the driver."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ptxlab.machine.control import INSTRUCTION_BYTES
from ptxlab.machine.image import KernelImage
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import SassName
from ptxlab.toolchain.constant_memory import ADDRESSES

PROVIDED = {
    "vprintf": (("u64", "u64"), "b32"),
    "__assertfail": (("u64", "u64", "u32", "u64", "u64"), ""),
    "malloc": (("u64",), "b64"),
    "free": (("u64",), ""),
}
"""What the driver provides to machine code: what each function takes and returns."""


NAMED = re.compile(r"`\((?P<name>[^()]+)\)")
"""A function, as nvdisasm names one."""


@dataclass(frozen=True, slots=True)
class CodeAddresses:
    """Where calls and returns of a kernel may lead that go where a register says.

    ``functions`` are the numbers of the first instructions of functions, ``provided`` the addresses of what the driver
    has, ``called`` the numbers that a register may name, and ``returns`` where each return may lead, by number.
    """

    functions: Mapping[str, int]
    provided: Mapping[str, int]
    called: Sequence[int]
    returns: Mapping[int, Sequence[int]]

    @property
    def named(self) -> dict[str, int]:
        """The addresses of all that has a name."""
        own = {name: first * INSTRUCTION_BYTES for name, first in self.functions.items()}
        return own | dict(self.provided)


def code_addresses(kernel: KernelImage, code: Sequence[DecodedInstruction]) -> CodeAddresses:
    """Return the addresses of code that a kernel knows, as its banks and its calls name them."""
    named = {reference.symbol for reference in kernel.references.get(ADDRESSES, ())}
    named |= {name for i in code if (name := provided_directly(i))}
    behind = len(code) + 1
    provided = {
        name: (behind + n) * INSTRUCTION_BYTES
        for n, name in enumerate(name for name in PROVIDED if name in named)
    }
    elsewhere = [i for i in code if i.does == "call" and i.target is None]
    computed = [i for i in elsewhere if provided_directly(i) is None]
    called = {*_entered(kernel, code)} if computed else set()
    return CodeAddresses(kernel.functions, provided, sorted(called), _returns(code, computed))


def provided_directly(i: DecodedInstruction) -> str | None:
    """Return what the driver provides that a call names, without a register: None of other instructions."""
    operand = i.operands[0] if i.does == "call" and i.operands else None
    named = NAMED.fullmatch(operand.text) if isinstance(operand, SassName) else None
    return named["name"] if named and named["name"] in PROVIDED else None


_LEAVES = ("exit", "return", "branch")


def _entered(kernel: KernelImage, code: Sequence[DecodedInstruction]) -> Iterator[int]:
    """Yield where functions may begin: each that has a name, or is called, and what stands behind where all threads leave."""
    yield from (first for first in kernel.functions.values() if first)
    for i in code:
        if i.does == "call" and i.target is not None:
            yield i.target
        if i.does in _LEAVES and i.guard is None and i.number + 1 < len(code):
            yield i.number + 1


def _returns(
    code: Sequence[DecodedInstruction], computed: Sequence[DecodedInstruction]
) -> dict[int, list[int]]:
    """Return behind which calls each return may lead: those of the function that it stands in, and computed ones."""
    calls = [i for i in code if i.does == "call" and i.target is not None]
    starts = sorted({i.target for i in calls if i.target is not None})
    returns = {}
    for i in code:
        if i.does == "return":
            at = bisect_right(starts, i.number) - 1
            entered = starts[at] if at >= 0 else None
            own = [call for call in calls if call.target == entered]
            returns[i.number] = [call.number + 1 for call in (*own, *computed)]
    return returns
