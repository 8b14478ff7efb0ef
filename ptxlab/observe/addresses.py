"""Registers that hold addresses, clocks and the like: what differs between devices and is no result.

Found by following names through the text: whatever is computed from the address of a buffer or a
variable, or from a special register that a device fills in its own way, is one too, and so is a
64-bit number that a function makes of one, or a narrower one that is used as an address. What is loaded from memory is not, but for parameters and
variables that are known to hold one. A name stands for all registers of that name in the function.
"""

from __future__ import annotations

from collections.abc import Collection

from ptxlab.emulator.operations.memory import state_space
from ptxlab.emulator.prepare.forms import effects_of
from ptxlab.instrument.sites import Scoped, instructions
from ptxlab.observe.value_flow import fills_parameter, loads, results
from ptxlab.syntax.tree import Address, Element, Function, Group, Name, Operand, Symbol

_OWN_WAY = (
    "%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid", "%envreg", "%pm",
    "%total_smem_size", "%current_graph_exec",
)  # fmt: skip
_WIDE = ("b64", "u64", "s64")


def device_dependent(function: Function, buffers: Collection[str]) -> frozenset[str]:
    """Return the registers whose bits may differ between devices though nothing is wrong.

    ``buffers`` are the kernel parameters and the variables that are addresses of buffers.
    """
    sites = list(instructions(function))
    operands = (operand for site in sites for operand in site.instruction.operands)
    bases = {o.base.text for o in operands if isinstance(o, Address) and o.base is not None}
    names: set[str] = set()
    before = -1
    while before < len(names):
        before = len(names)
        held = set(buffers)  # also parameters of the call at hand that are addresses
        for site in sites:
            depends = _depends(site, names, held)
            for name in _handed(site):
                (held.add if depends else held.discard)(name)
            if depends:
                names.update(name for name in results(site) if _may_be_address(site, name, bases))
    return frozenset(names)


def _depends(site: Scoped, known: Collection[str], held: Collection[str]) -> bool:
    instruction = site.instruction
    sources = instruction.operands[1:]
    if effects_of(instruction).leads == "function":
        given = [name for operand in sources[1:] for name in _names(operand)]
        return any(name in known or name in held for name in given)
    if loads(instruction):
        bases = [x.base.text for x in sources if isinstance(x, Address) and x.base is not None]
        return any(base in held and not site.type_of(base) for base in bases)
    return any(
        _is_address(site, operand) or any(name in known for name in site.registers(operand))
        for operand in sources
    )


def _handed(site: Scoped) -> list[str]:
    """Return the parameters that the instruction fills: those of a call to come, or its results."""
    instruction = site.instruction
    first = instruction.operands[0] if instruction.operands else None
    if effects_of(instruction).leads == "function" and isinstance(first, Group):
        return _names(first)
    filled = fills_parameter(instruction)
    return [first.base.text] if filled and isinstance(first, Address) and first.base else []


def _names(operand: Operand) -> list[str]:
    elements = operand.elements if isinstance(operand, Group) else ()
    return [element.text for element in elements if isinstance(element, Name)]


def _may_be_address(site: Scoped, register: str, bases: Collection[str]) -> bool:
    """Say whether a register can be one: what a function makes of an address often is none, unless memory is there."""
    instruction = site.instruction
    returned = (
        effects_of(instruction).leads == "function" or state_space(instruction.modifiers) == "param"
    )
    return not returned or register in bases or site.type_of(register) in _WIDE


def _is_address(site: Scoped, operand: object) -> bool:
    if isinstance(operand, Element):
        return True
    if isinstance(operand, Symbol):
        return not site.type_of(operand.name)
    if not isinstance(operand, Name) or site.type_of(operand.text):
        return False
    return not operand.text.startswith("%") or operand.text.startswith(_OWN_WAY)
