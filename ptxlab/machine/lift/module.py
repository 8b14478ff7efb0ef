"""Machine code as a program in PTX, which the emulator runs as any other.

An instruction of the machine is the one line of the text of the module that is made, and all that it became
stands on that line: whoever names lines names machine code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ptxlab.errors import Unsupported
from ptxlab.machine.image import KernelImage, ModuleImage, Variable
from ptxlab.machine.lift.banks import Placed
from ptxlab.machine.lift.kernel import LiftedBody, lift_body, runs_on, shared_declarations
from ptxlab.machine.lift.listing import Listing
from ptxlab.syntax import parse, tree

_ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64)
_BYTES = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


def lift(
    image: ModuleImage, names: Sequence[str], path: str, ptx: tree.PtxModule | None = None
) -> tree.PtxModule:
    """Return some kernels of a cubin as PTX; what they are called with is taken from the ``ptx`` where there is any.

    Raises Unsupported for an instruction that no rule lifts.
    """
    listing = Listing(path)
    known = {} if ptx is None else {entry.name: entry for entry in ptx.entries}
    items: list[tree.Item] = [_variable(variable) for variable in image.variables.values()]
    shared: dict[str, tree.Item] = {}
    for name in names:
        lifted = _kernel(image, image.kernels[name], known.get(name), listing)
        shared |= {
            item.names[0].name: item for item in lifted.items if isinstance(item, tree.Declaration)
        }
        items += lifted.functions
    head = parse(runs_on(image.target))
    arguments = {} if ptx is None else ptx.source.arguments
    source = tree.SourceText(listing.text, path, arguments)
    return replace(head, items=(*shared.values(), *items), source=source, lifted=True)


def declared(image: ModuleImage, path: str) -> tree.PtxModule:
    """Return the kernels and variables of a cubin as PTX declares them, without what kernels do."""
    heads = [
        f".visible .entry {name}({', '.join(_parameters(kernel))})\n"
        + "\n".join(_directives(kernel))
        + "\n{ ret; }"
        for name, kernel in image.kernels.items()
    ]
    module = parse("\n".join([runs_on(image.target), *heads]) + "\n", path)
    variables = map(_variable, image.variables.values())
    return replace(module, items=(*variables, *module.items))


def _kernel(
    image: ModuleImage, kernel: KernelImage, known: tree.Function | None, listing: Listing
) -> tree.PtxModule:
    if known is None:
        placed = [
            Placed(f"param_{n}", parameter.offset, parameter.size)
            for n, parameter in enumerate(kernel.parameters)
        ]
        declarations = _parameters(kernel)
    else:
        declarations = []
        names = [declaration.names[0].name for declaration in known.parameters]
        placed = [
            Placed(name, parameter.offset, parameter.size)
            for name, parameter in zip(names, kernel.parameters, strict=True)
        ]
    body = lift_body(image, kernel, placed, listing)
    lines = [
        runs_on(image.target),
        *shared_declarations(kernel),
        f".visible .entry {kernel.name}({', '.join(declarations)})",
        *([] if known is not None else _directives(kernel)),
        "{",
        *body.lines,
        "}",
    ]
    module = parse("\n".join(lines) + "\n", listing.path)
    return replace(module, items=tuple(_at_home(item, body, known) for item in module.items))


def _at_home(item: tree.Item, body: LiftedBody, known: tree.Function | None) -> tree.Item:
    """Have every statement stand at its line of machine code, and a kernel be called as it was."""
    if not isinstance(item, tree.Function) or item.body is None:
        return item
    first = item.body[0].position.line
    statements = tuple(_moved(s, body.origins[s.position.line - first]) for s in item.body)
    called = item if known is None else known
    return replace(
        item, body=statements, parameters=called.parameters, directives=called.directives
    )


def _moved(statement: tree.Statement, line: int) -> tree.Statement:
    return replace(statement, position=tree.Position(line, 5))


def _parameters(kernel: KernelImage) -> list[str]:
    """Declare the parameters of a kernel of which nobody has the PTX, so that they lie where the cubin has them."""
    declarations, end = [], 0
    for number, parameter in enumerate(kernel.parameters):
        name, kind = f"param_{number}", _BYTES.get(parameter.size)
        able = [a for a in _ALIGNMENTS if end + -end % a == parameter.offset]
        if not able:
            raise Unsupported(
                f"parameter {number} of {kernel.name} lies {parameter.offset - end} bytes behind the one before, "
                "which is not modelled"
            )
        if kind and parameter.size in able:
            declarations.append(f".param .{kind} {name}")
        else:
            declarations.append(f".param .align {able[-1]} .b8 {name}[{parameter.size}]")
        end = parameter.offset + parameter.size
    return declarations


def _directives(kernel: KernelImage) -> list[str]:
    entry = kernel.entry
    told = {"reqntid": entry.reqntid, "maxntid": entry.maxntid, "reqnctapercluster": entry.cluster}
    return [f".{name} {', '.join(map(str, sizes))}" for name, sizes in told.items() if sizes]


def _variable(variable: Variable) -> tree.Declaration:
    """Return a variable as bytes, or as words where some of them are addresses."""
    references = {reference.offset: reference for reference in variable.references}
    width = 8 if references else 1
    data = variable.data
    values: list[tree.Initializer] = []
    for at in range(0, len(data), width):
        reference = references.get(at)
        if reference is not None:
            values.append(tree.Symbol(reference.symbol, reference.addend))
        else:
            values.append(tree.Integer(int.from_bytes(data[at : at + width], "little")))
    initial = tree.Aggregate(tuple(values)) if any(data) or references else None
    declarator = tree.Declarator(variable.name, None, (len(data) // width,), initial)
    return tree.Declaration(
        variable.space, _BYTES[width], (declarator,), "visible", max(variable.align, width)
    )
