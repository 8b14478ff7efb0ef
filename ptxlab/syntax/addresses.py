"""Registers that hold addresses, clocks and the like: what differs between devices and is no result.

Found by following names through the text: whatever is computed from the address of a buffer or a
variable, or from a special register that a device fills in its own way, is one too. What is loaded
from memory is not. A name stands for all registers of that name in the function.
"""

from __future__ import annotations

from collections.abc import Collection

from ptxlab.syntax.sites import Site, instructions, register_type, registers_of, results
from ptxlab.syntax.tree import Address, Function, Name, Symbol

_OWN_WAY = (
    "%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid", "%envreg", "%pm",
    "%total_smem_size", "%current_graph_exec",
)  # fmt: skip
_LOADS = ("ld", "ldu", "ldmatrix", "atom", "wmma")


def device_dependent(function: Function, buffers: Collection[str]) -> frozenset[str]:
    """Return the registers whose bits may differ between devices though nothing is wrong.

    ``buffers`` are the kernel parameters that are addresses of buffers.
    """
    sites = list(instructions(function))
    found: set[str] = set()
    while True:
        more = {
            name
            for site in sites
            if _depends(site, found, buffers)
            for name in results(site)
            if name not in found
        }
        if not more:
            return frozenset(found)
        found |= more


def _depends(site: Site, known: Collection[str], buffers: Collection[str]) -> bool:
    """Say whether what the instruction computes depends on the device."""
    instruction = site.instruction
    sources = instruction.operands[1:]
    if instruction.opcode in _LOADS:
        return "param" in instruction.modifiers and any(
            isinstance(operand, Address)
            and operand.base is not None
            and operand.base.text in buffers
            for operand in sources
        )
    return any(
        _is_address(site, operand) or any(name in known for name in registers_of(site, operand))
        for operand in sources
    )


def _is_address(site: Site, operand: object) -> bool:
    if isinstance(operand, Symbol):
        return True
    if not isinstance(operand, Name) or register_type(site.declarations, operand.text):
        return False
    return not operand.text.startswith("%") or operand.text.startswith(_OWN_WAY)
