"""Machine code as a program in PTX, which the emulator runs as any other.

An instruction of the machine is the one line of the text of the module that is made, and all that it became
stands on that line: whoever names lines names machine code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ptxlab.errors import Unsupported
from ptxlab.instrument.sites import sources
from ptxlab.machine.image import KernelImage, ModuleImage, Variable
from ptxlab.machine.launch import constant_bank
from ptxlab.machine.lift.banks import Placed
from ptxlab.machine.lift.kernel import LiftedBody, lift_body, runs_on, shared_declarations
from ptxlab.machine.lift.listing import Listing
from ptxlab.syntax import parse, tree
from ptxlab.syntax.functions import SourceLine

_ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64, 128)
_BYTES = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


def lift(
    image: ModuleImage,
    names: Sequence[str],
    path: str,
    ptx: tree.PtxModule | None = None,
    *,
    checked: bool = False,
) -> tree.PtxModule:
    """Return some kernels of a cubin as PTX; what they are called with is taken from the ``ptx`` where there is any.

    Its lines are those of the machine code, and its ``.loc`` name what that was made from: CUDA C, or the PTX. Raises
    Unsupported for an instruction that no rule lifts and, ``checked``, for one that does not wait for another.
    """
    listing = Listing(path, {} if ptx is None else _origins(ptx, names))
    known = {} if ptx is None else {entry.name: entry for entry in ptx.entries}
    items: dict[str, tree.Item] = {
        name: _variable(variable) for name, variable in image.variables.items()
    }
    for name in names:
        lifted = _kernel(image, image.kernels[name], known.get(name), listing, checked=checked)
        items |= {
            each.names[0].name: each for each in lifted.items if isinstance(each, tree.Declaration)
        }
        items |= {each.name: each for each in lifted.functions}
    files = [tree.File(n, named) for n, named in enumerate(_files(listing), 1)]
    head = parse(runs_on(image.target))
    arguments = {} if ptx is None else ptx.source.arguments
    source = tree.SourceText(listing.text, path, arguments)
    return replace(head, items=(*files, *items.values()), source=source, lifted=True)


def declared(images: Sequence[ModuleImage], path: str) -> tree.PtxModule:
    """Return the kernels and variables of cubins as PTX declares them, without what kernels do.

    A kernel that several have, as each has an instance of a template, is that of the first. Raises Unsupported for
    a variable that several have: it may be one or another.
    """
    kernels: dict[str, KernelImage] = {}
    for image in images:
        kernels = {**kernels, **image.kernels, **kernels}
    heads = [
        f".visible .entry {name}({', '.join(_parameters(kernel, _origin(images[0])))})\n"
        + "\n".join(_directives(kernel))
        + "\n{ ret; }"
        for name, kernel in kernels.items()
    ]
    variables = [variable for image in images for variable in image.variables.values()]
    for name, count in Counter(variable.name for variable in variables).items():
        if count > 1:
            raise Unsupported(
                f"{count} of the programs that {path} is linked of have a variable {name}",
                hint="cuobjdump --extract-elf all takes them out, each a .cubin",
            )
    module = parse("\n".join([runs_on(images[0].target), *heads]) + "\n", path)
    placed = (
        replace(item, origin=_origin(images[0])) if isinstance(item, tree.Function) else item
        for item in module.items
    )
    return replace(module, items=(*map(_variable, variables), *placed))


def _origin(image: ModuleImage) -> int:
    """Return where parameters begin in the bank of constants, where they are aligned."""
    return constant_bank(image.target).parameters


def _kernel(
    image: ModuleImage,
    kernel: KernelImage,
    known: tree.Function | None,
    listing: Listing,
    *,
    checked: bool,
) -> tree.PtxModule:
    if known is None:
        placed = [
            Placed(f"param_{n}", parameter.offset, parameter.size)
            for n, parameter in enumerate(kernel.parameters)
        ]
        declarations = _parameters(kernel, _origin(image))
    else:
        declarations = []
        names = [declaration.names[0].name for declaration in known.parameters]
        placed = [
            Placed(name, parameter.offset, parameter.size)
            for name, parameter in zip(names, kernel.parameters, strict=True)
        ]
    body = lift_body(image, kernel, placed, listing, checked=checked)
    lines = [
        runs_on(image.target),
        *shared_declarations(kernel, image.target),
        *body.declarations,
        f".visible .entry {kernel.name}({', '.join(declarations)})",
        *([] if known is not None else _directives(kernel)),
        "{",
        *body.lines,
        "}",
    ]
    module = parse("\n".join(lines) + "\n", listing.path)
    items = (_at_home(item, body, known, listing) for item in module.items)
    return replace(module, items=tuple(items))


def _origins(ptx: tree.PtxModule, names: Sequence[str]) -> Mapping[int, SourceLine]:
    """Return where lines of PTX come from, those of the kernels and what they may call: they do themselves if nobody says."""
    text = ptx.source.text
    if not re.search(r"^\s*\.loc\b", text, re.MULTILINE):
        lines = range(1, text.count("\n") + 2)
        return {line: SourceLine(ptx.source.path, line) for line in lines}
    entries = {entry.name for entry in ptx.entries}.difference(names)
    return sources(ptx, [f for f in ptx.functions if f.name not in entries and f.body is not None])


def _files(listing: Listing) -> list[str]:
    return sorted({source.path for source in listing.sources.values()})


def _at_home(
    item: tree.Item, body: LiftedBody, known: tree.Function | None, listing: Listing
) -> tree.Item:
    """Have every statement stand at its line of machine code, and a kernel be called as it was."""
    if not isinstance(item, tree.Function) or item.body is None:
        return item
    first = item.body[0].position.line
    moved = (_moved(s, body.origins[s.position.line - first]) for s in item.body)
    statements = tuple(_located(moved, listing))
    called = item if known is None else known
    return replace(
        item,
        body=statements,
        parameters=called.parameters,
        directives=called.directives,
        origin=called.origin,
    )


def _moved(statement: tree.Statement, line: int) -> tree.Statement:
    return replace(statement, position=tree.Position(line, 5))


def _located(statements: Iterable[tree.Statement], listing: Listing) -> Iterator[tree.Statement]:
    """Put before statements where their line comes from, where that is another than the last."""
    numbers = {path: number for number, path in enumerate(_files(listing), 1)}
    here: SourceLine | None = None
    for statement in statements:
        source = listing.sources.get(statement.position.line)
        if source != here:
            here = source
            file, line = (0, 0) if source is None else (numbers[source.path], source.line)
            yield tree.Loc(file, line, 0, position=statement.position)
        yield statement


def _parameters(kernel: KernelImage, origin: int) -> list[str]:
    """Declare the parameters of a kernel of which nobody has the PTX, so that they lie where the cubin has them."""
    declarations, end = [], 0
    for number, parameter in enumerate(kernel.parameters):
        name, kind = f"param_{number}", _BYTES.get(parameter.size)
        able = [a for a in _ALIGNMENTS if end + -(origin + end) % a == parameter.offset]
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
        variable.space,
        "u64" if references else "b8",
        (declarator,),
        "visible",
        max(variable.align, width),
    )
