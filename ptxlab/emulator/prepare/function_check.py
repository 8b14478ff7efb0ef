"""What the head of a function may say: linkage, definition, parameters and directives.

The rules are the PTX ISA's ("Kernel and Function Directives", "Performance-Tuning Directives", "Linking
Directives") as ptxas and nvJitLink apply them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import NoReturn

from ptxlab.emulator.prepare.scope import size_of
from ptxlab.errors import PtxSyntaxError, Unsupported
from ptxlab.isa.legality import ANYWHERE, Needs, parse_needs
from ptxlab.isa.targets import target_named
from ptxlab.numbers.types import TYPES
from ptxlab.syntax import locate
from ptxlab.syntax.tree import (
    Alias,
    CallPrototype,
    Declaration,
    Declarator,
    Directive,
    Function,
    Node,
    PtxModule,
)

MOST_PARAMETER_BYTES = 32764
"""PTX ISA, "State Spaces": of a kernel's parameters."""

_MOST_ALIGNMENT = 128
_POINTED = ("", "global", "const", "local", "shared")
_TOO_NARROW = ("pred", "u8", "s8", "u16", "s16")


def reject(module: PtxModule, what: str, node: Node, hint: str | None = None) -> NoReturn:
    raise PtxSyntaxError(what, location=locate(module.source, node.position), hint=hint)


# ---- definitions ----------------------------------------------------------------------------


def check_again(module: PtxModule, function: Function, before: Function) -> None:
    """Refuse what declares a function otherwise than ``before``, or defines it a second time."""
    line = before.position.line
    if before.body is not None:
        reject(module, f"function '{function.name}' is declared already, in line {line}", function)
    linkages = ("extern",) if before.linkage == "extern" else ("", before.linkage)
    if (
        before.is_entry != function.is_entry
        or _signature(before) != _signature(function)
        or function.linkage not in linkages
    ):
        reject(module, f"function '{function.name}' is declared otherwise in line {line}", function)


def check_alias(module: PtxModule, alias: Alias, first: object, other: object) -> None:
    """Refuse an alias of anything but functions, ``one`` without a body for the ``other``, which has one."""
    right = (
        isinstance(first, Function) and first.body is None
        and isinstance(other, Function) and other.body is not None
        and not other.is_entry and other.linkage != "weak"
    )  # fmt: skip
    if not right:
        what = (
            f"'{alias.name}' is to be a function without a body, '{alias.target}' one with a body"
        )
        reject(module, what, alias, "both are declared before, and neither is .weak")


def check_definition(module: PtxModule, function: Function, aliased: Collection[str]) -> None:
    """Refuse a linkage that the definition of a function cannot have, and none where it needs one."""
    if function.linkage == "common" or (function.linkage == "extern" and function.body is not None):
        what = f".{function.linkage} is not for a function that is defined here"
        reject(module, what, function)
    extern = function.linkage == "extern"
    if function.body is None and not extern and function.name not in aliased:
        hint = "one of another module is declared .extern"
        reject(module, f"function '{function.name}' has no body", function, hint)


def _signature(function: Function) -> list[list[tuple[object, ...]]]:
    """Return what two declarations of a function have in common: spaces, types and sizes."""
    return [
        [
            (d.space, d.type, d.vector, prod(size or 0 for n in d.names for size in n.dimensions))
            for d in declarations
        ]
        for declarations in (function.results, function.parameters)
    ]


# ---- directives -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """Whether a directive is for kernels, or else for functions, the least of its values, what it needs."""

    kernel: bool
    least: int = 0
    needs: Needs = ANYWHERE


_CLUSTER = parse_needs("sm_90 7.8")
_RULES = {
    "maxntid": _Rule(True, 1),
    "reqntid": _Rule(True, 1),
    "minnctapersm": _Rule(True, 1),
    "maxnreg": _Rule(True, 1),
    "reqnctapercluster": _Rule(True, needs=_CLUSTER),
    "explicitcluster": _Rule(True, needs=_CLUSTER),
    "maxclusterrank": _Rule(True, needs=_CLUSTER),
    "blocksareclusters": _Rule(True, needs=parse_needs("sm_90 9.0")),
    "noreturn": _Rule(False, needs=parse_needs("sm_30 6.4")),
    "abi_preserve": _Rule(False, needs=parse_needs("sm_80 9.0")),
    "abi_preserve_control": _Rule(False, needs=parse_needs("sm_80 9.0")),
}
_EXCLUDED = (("maxntid", "reqntid"), ("reqnctapercluster", "maxclusterrank"))
_REQUIRED = {"blocksareclusters": ("reqntid", "reqnctapercluster")}


def check_directives(module: PtxModule, function: Function) -> None:
    """Refuse directives that a kernel or function cannot have, alone or together."""
    given = [directive for directive in function.directives if isinstance(directive, Directive)]
    names = {directive.name for directive in given}
    for directive in given:
        rule, name = _RULES[directive.name], f".{directive.name}"
        if rule.kernel != function.is_entry:
            what = "kernels, not for functions" if rule.kernel else "functions, not for kernels"
            reject(module, f"{name} is for {what}", directive)
        if any(not rule.least <= value < 1 << 32 for value in directive.values):
            reject(module, f"{name} takes integers from {rule.least} on, of 32 bits", directive)
        if module.version < rule.needs.ptx:
            major, minor = rule.needs.ptx
            reject(module, f"{name} is in PTX {major}.{minor} and later", directive)
        written = target_named(module.targets[0])
        if missing := rule.needs.missing(written):
            hint = f"it needs {' or '.join(missing)} or newer"
            reject(module, f"{name} is not in the module's .target {written.name}", directive, hint)
        if directive.name == "noreturn" and function.results:
            reject(module, "a function that never returns has no results", directive)
        for other in _REQUIRED.get(directive.name, ()):
            if other not in names:
                reject(module, f"{name} is for kernels with .{other}", directive)
    for first, other in _EXCLUDED:
        if {first, other} <= names:
            reject(module, f".{first} and .{other} exclude each other", function)


# ---- parameters -----------------------------------------------------------------------------


def check_parameter(
    module: PtxModule, declaration: Declaration, to: Function | CallPrototype
) -> None:
    """Refuse a parameter or result that cannot be passed."""
    [declarator] = declaration.names
    name, dimensions = declarator.name, declarator.dimensions
    kernel = isinstance(to, Function) and to.is_entry
    result = any(declaration is each for each in to.results)
    if declarator.count is not None or declarator.initializer is not None:
        reject(module, "a parameter is one name, without a value", declarator)
    if declaration.vector > 1 and kernel:
        reject(module, f"parameter '{name}' of a kernel is no vector", declarator)
    if len(dimensions) > 1:
        reject(module, f"parameter '{name}' has more than one dimension", declarator)
    if dimensions and not dimensions[0]:
        if kernel or result:
            reject(module, f"'{name}' needs the size of its array", declarator)
        if declaration is not to.parameters[-1]:
            what = f"'{name}' needs the size of its array: only the last parameter may lack it"
            reject(module, what, declarator)
    if kernel and declaration.space != "param":
        reject(module, f"parameter '{name}' of a kernel is .param", declarator)
    if declaration.pointer is not None and declaration.pointer[0] not in _POINTED:
        reject(module, f"'{name}' points to global, const, local or shared memory", declarator)
    if isinstance(to, Function):
        check_passed(module, declaration, declarator, kernel=to.is_entry)
    if isinstance(to, Function) and not kernel:
        _check_given(module, declaration, declarator)
    if result and declaration.space == "param" and len(to.results) > 1:
        reject(module, "of several results each is a .reg", declarator)


def check_modelled(module: PtxModule, declaration: Declaration) -> None:
    """Refuse a parameter or result of a prototype that the emulator does not pass."""
    if declaration.vector > 1 and declaration.space == "param":
        what = "a .param vector of a prototype is not modelled"
        raise Unsupported(what, location=locate(module.source, declaration.position))


def check_passed(
    module: PtxModule, declaration: Declaration, declarator: Declarator, *, kernel: bool = False
) -> None:
    """Refuse a ``.param`` variable that no call passes, or a ``kernel`` is given."""
    kind = TYPES.get(declaration.type)
    in_memory = declaration.space == "param" and not declarator.dimensions
    if declaration.vector > 1 and declaration.space == "param":
        hint = "pass a .reg vector, or an array of bytes"
        reject(module, f"no .param is a vector, as '{declarator.name}' is", declarator, hint)
    if kind is not None and kind.kind == "packed" and in_memory:
        reject(module, f"no .param is a .{kind.name}", declarator, f"declare .b{kind.bits}")
    if (declaration.alignment or 1) > _MOST_ALIGNMENT and not kernel:
        reject(module, f"a parameter is aligned to {_MOST_ALIGNMENT} bytes at most", declarator)


def _check_given(module: PtxModule, declaration: Declaration, declarator: Declarator) -> None:
    """Refuse what a function neither takes nor returns."""
    if declaration.pointer is not None:
        reject(
            module, f".ptr is for parameters of kernels, not for '{declarator.name}'", declarator
        )
    if declaration.type in _TOO_NARROW and not declarator.dimensions and declaration.vector == 1:
        hint = "pass it as .b32"
        reject(module, f"no function takes or returns a .{declaration.type}", declarator, hint)
    if declarator.name == "_":
        reject(module, "the parameter of a function has a name", declarator)


def check_parameter_bytes(module: PtxModule, kernel: Function) -> None:
    size = sum(size_of(d, n) for d in kernel.parameters for n in d.names if d.type in TYPES)
    if size > MOST_PARAMETER_BYTES:
        what = f"parameters of {size} bytes, {MOST_PARAMETER_BYTES} at most"
        reject(module, what, kernel)
