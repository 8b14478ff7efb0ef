"""The variables of a module: those in memory, and where the shared ones lie."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxlab.emulator.prepare.scope import Variable, size_of
from ptxlab.errors import Location, Unsupported
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import tree


@dataclass(slots=True)
class ModuleVariables:
    """``in_memory`` are the .global and .const ones by name, ``known`` all that code can name.

    ``shared_bytes`` is what the module-level shared variables take, from offset 0 on.
    """

    in_memory: dict[str, tree.Declaration] = field(default_factory=dict)
    known: dict[str, Variable] = field(default_factory=dict)
    shared_bytes: int = 0


def module_variables(module: tree.Module) -> ModuleVariables:
    """Collect the module-level variables. Raise Unsupported for one of a kind that is not modelled."""
    found = ModuleVariables()
    for item in module.items:
        if isinstance(item, tree.Declaration):
            for declarator in item.names:
                found.known[declarator.name] = _variable(module, item, declarator, found)
    return found


def _variable(
    module: tree.Module, item: tree.Declaration, declarator: tree.Declarator, found: ModuleVariables
) -> Variable:
    name = declarator.name
    if item.type not in TYPES:
        raise Unsupported(
            f"variable '{name}' of type .{item.type} is not modelled", location=_place(module, item)
        )
    size = size_of(item, declarator, TYPES[item.type].bytes)
    if item.space == "shared" and item.linkage == "extern":
        return Variable("dynamic", name, 0, size)
    if item.space == "shared":
        alignment = item.alignment or TYPES[item.type].bytes * item.vector
        offset = -(-found.shared_bytes // alignment) * alignment
        found.shared_bytes = offset + size
        return Variable("shared", name, offset, size)
    if item.space in ("global", "const"):
        found.in_memory[name] = item
        return Variable(item.space, name, -1, size)
    raise Unsupported(
        f"module-level .{item.space} variable '{name}' is not modelled",
        location=_place(module, item),
    )


def _place(module: tree.Module, node: tree.Node) -> Location:
    line, column = node.position
    return Location(module.source.path, line, max(column, 1), module.source.line(line))
