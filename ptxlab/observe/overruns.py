"""Accesses to shared memory that begin with one variable and end in another.

Found by names: an address that is computed from one variable, and from no other one nor from anything
loaded, belongs to that variable. What addresses else are made of is not known, and not looked at.
"""

from __future__ import annotations

from collections import defaultdict

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.prepare.scope import Variable
from ptxlab.emulator.run.memory import pitched
from ptxlab.instrument.sites import Scoped, instructions
from ptxlab.observe.check_context import CheckContext
from ptxlab.observe.value_flow import loads, results
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Address, Function, Name, Operand, Symbol

_UNKNOWN = "?"


class Overruns:
    """Reports accesses outside of the variable that their address is made of."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._bases: dict[str, dict[str, set[str]]] = {}
        self._variables: dict[Site, Variable | None] = {}

    def touch(self, threads: Array, first: Array, nbytes: int) -> None:
        """See accesses to ``nbytes`` from each of the bytes ``first`` of all CTAs' shared memory on."""
        context, site = self._context, self._context.site
        if site not in self._variables:
            self._variables[site] = self._variable(site)
        variable = self._variables[site]
        if variable is None:
            return
        start = context.wave.shared.starts[variable]
        offset = first % pitched(context.wave.shared_bytes) - start
        if offset.min() >= 0 and offset.max() + nbytes <= variable.size:
            return
        wrong = (offset < 0) | (offset + nbytes > variable.size)
        at = int(wrong.argmax())
        message = (
            f"{context.thread(int(threads[at]))} accesses {nbytes} bytes at byte {int(offset[at])} of "
            f"{called(variable.name)}, which has {variable.size}"
        )
        hint = "what lies there is another variable, in an order that ptxas chooses"
        context.find("bounds", "error", "overrun", int(wrong.sum()) * nbytes, (message, hint))

    def _variable(self, site: Site) -> Variable | None:
        """Return the variable that an instruction's address belongs to."""
        addresses = [
            operand for operand in site.instruction.operands if isinstance(operand, Address)
        ]
        base = addresses[0].base if addresses else None
        if base is None:
            return None
        known = {
            name: variable
            for outer in reversed([*site.scope.outward()])
            for name, variable in outer.variables.items()
        }
        names = {base.text}
        if site.register(base.text) is not None:
            names = self._of(site.function)[base.text]
        variable = known.get(next(iter(names))) if len(names) == 1 else None
        return variable if variable is not None and variable.space == "shared" else None

    def _of(self, name: str) -> dict[str, set[str]]:
        """Return the variables that each register of a function is computed from."""
        bases = self._bases.get(name)
        if bases is None:
            [function] = [each for each in self._context.wave.functions if each.name == name]
            bases = self._bases[name] = _bases(function)
        return bases


def _bases(function: Function) -> dict[str, set[str]]:
    flows = [(*_made_of(site), results(site)) for site in instructions(function)]
    bases: dict[str, set[str]] = defaultdict(set)
    size = -1
    while size < (now := sum(map(len, bases.values()))):
        size = now
        for names, read, written in flows:
            made = names.union(*(bases[register] for register in read))
            for register in written:
                bases[register] |= made
    return bases


def _made_of(site: Scoped) -> tuple[set[str], list[str]]:
    """Return the variables that an instruction names, and the registers that it computes from."""
    if loads(site.instruction):
        return {_UNKNOWN}, []
    operands = site.instruction.operands[1:]
    names = {name for operand in operands for name in _named(operand)}
    read = [register for operand in operands for register in site.registers(operand)]
    return {name for name in names if site.type_of(name) is None}, read


def _named(operand: Operand) -> set[str]:
    """Return the name of a variable, or what may be one, that an operand is."""
    if isinstance(operand, Symbol):
        return {operand.name}
    return {operand.text} if isinstance(operand, Name) and operand.text[0] != "%" else set()
