"""A tree as PTX text: one statement a line, operands in a column, constants in a form that reads back."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ptxlab.syntax import tree

_INDENT = "    "
_WIDTH = 100
_OPERANDS_AT = 16
_LOWEST = -(1 << 63)


def to_text(module: tree.PtxModule) -> str:
    """Return ``module`` as PTX text that parses to an equal tree."""
    major, minor = module.version
    lines = [
        f".version {major}.{minor}",
        f".target {', '.join(module.targets)}",
        f".address_size {module.address_size}",
    ]
    before: tree.Item | None = None
    for item in module.items:
        if not isinstance(item, type(before)) or isinstance(item, tree.Function | tree.Section):
            lines.append("")
        lines += _item(item)
        before = item
    return "\n".join(lines) + "\n"


def operand_text(operand: tree.Operand) -> str:
    match operand:
        case tree.Name():
            return operand.text
        case tree.Integer():
            return _integer(operand.value)
        case tree.Float():
            return _float(operand)
        case tree.Address():
            return _address(operand)
        case tree.Vector(elements):
            return f"{{{_operands(elements)}}}"
        case tree.Group(elements):
            return f"({_operands(elements)})"
        case tree.Pair(first, second):
            return f"{operand_text(first)}|{operand_text(second)}"
        case tree.Not(inner):
            return f"!{inner.text}"
        case tree.Negated(inner):
            return f"-{inner.text}"
        case tree.Symbol():
            return _symbol(operand)
        case tree.Element(name, index):
            return f"{name}[{operand_text(index)}]"


def instruction_text(instruction: tree.Instruction) -> str:
    """Return one instruction as a line of PTX, its operands in a column."""
    guard = instruction.guard
    name = instruction.name
    if guard is not None:
        name = f"@{'!' if guard.negated else ''}{guard.name} {name}"
    if not instruction.operands:
        return f"{name};"
    return f"{name:<{_OPERANDS_AT - 1}} {_operands(instruction.operands)};"


def _operands(operands: tuple[tree.Operand, ...]) -> str:
    return ", ".join([operand_text(operand) for operand in operands])


def _integer(value: int) -> str:
    # 2**63 as a literal is .u64 and stays so when negated.
    return f"{_LOWEST + 1}-1" if value == _LOWEST else str(value)


def _float(value: tree.Float) -> str:
    return f"0f{value.bits:08X}" if value.width == 32 else f"0d{value.bits:016X}"


def _offset(offset: int) -> str:
    # ptxas takes [a+-8] but not [a-8].
    return f"+{_integer(offset)}" if offset else ""


def _address(address: tree.Address) -> str:
    base = address.base.text + _offset(address.offset) if address.base else _integer(address.offset)
    inner = ", ".join((base, *map(operand_text, address.extra)))
    return f"[{inner}]{'.unified' if address.unified else ''}"


def _symbol(symbol: tree.Symbol) -> str:
    name = f"generic({symbol.name})" if symbol.generic else symbol.name
    text = name + _offset(symbol.offset)
    return text if symbol.mask is None else f"0x{symbol.mask:X}({text})"


def _initializer(value: tree.Initializer) -> str:
    if isinstance(value, tree.Aggregate):
        return "{" + ", ".join([_initializer(element) for element in value.elements]) + "}"
    return operand_text(value)


def _declarator(declarator: tree.Declarator) -> str:
    text = declarator.name
    if declarator.count is not None:
        text += f"<{declarator.count}>"
    text += "".join(f"[{'' if size is None else size}]" for size in declarator.dimensions)
    if declarator.initializer is not None:
        text += f" = {_initializer(declarator.initializer)}"
    return text


def _declaration(declaration: tree.Declaration) -> str:
    """Return a declaration without its semicolon."""
    words = [f".{declaration.linkage}"] if declaration.linkage else []
    words.append(f".{declaration.space}")
    if declaration.attributes:
        words.append(_attributes(declaration.attributes))
    if declaration.alignment is not None:
        words.append(f".align {declaration.alignment}")
    if declaration.vector != 1:
        words.append(f".v{declaration.vector}")
    words.append(f".{declaration.type}")
    if declaration.pointer is not None:
        space, alignment = declaration.pointer
        words.append(".ptr")
        words += [f".{space}"] if space else []
        words += [f".align {alignment}"] if alignment is not None else []
    words.append(", ".join([_declarator(name) for name in declaration.names]))
    return " ".join(words)


def _attributes(attributes: tuple[str, ...]) -> str:
    return f".attribute({', '.join(attributes)})"


def _directive(directive: tree.Directive | tree.Pragma) -> str:
    if isinstance(directive, tree.Pragma):
        return _pragma(directive)
    return f".{directive.name} {', '.join(map(str, directive.values))}".rstrip()


def _pragma(pragma: tree.Pragma) -> str:
    return ".pragma " + ", ".join(f'"{text}"' for text in pragma.strings) + ";"


def _parameters(parameters: tuple[tree.Declaration, ...]) -> str:
    return f"({', '.join([_declaration(parameter) for parameter in parameters])})"


def _wrapped(text: str, indent: str) -> Iterator[str]:
    """Yield ``text`` as lines of at most _WIDTH columns where spaces allow it."""
    if len(indent) + len(text) <= _WIDTH:
        yield indent + text
        return
    yield from textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + 2 * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _statements(statements: Sequence[tree.Statement], indent: str) -> Iterator[str]:
    before: tree.Statement | None = None
    for statement in statements:
        if isinstance(before, tree.Declaration) and not isinstance(statement, tree.Declaration):
            yield ""
        before = statement
        match statement:
            case tree.Instruction():
                yield from _wrapped(instruction_text(statement), indent)
            case tree.Declaration():
                yield from _wrapped(_declaration(statement) + ";", indent)
            case tree.Label(name):
                yield f"{indent[len(_INDENT) :]}{name}:"
            case tree.Block(inner):
                yield f"{indent}{{"
                yield from _statements(inner, indent + _INDENT)
                yield f"{indent}}}"
            case tree.Loc():
                rest = f", {statement.rest}" if statement.rest else ""
                yield f"{indent}.loc {statement.file} {statement.line} {statement.column}{rest}"
            case tree.Pragma():
                yield indent + _pragma(statement)
            case tree.BranchTargets(label, targets):
                yield from _wrapped(f"{label}: .branchtargets {', '.join(targets)};", indent)
            case tree.CallTargets(label, targets):
                yield from _wrapped(f"{label}: .calltargets {', '.join(targets)};", indent)
            case tree.CallPrototype():
                yield from _wrapped(_prototype(statement), indent)


def _prototype(prototype: tree.CallPrototype) -> str:
    words = [f"{prototype.label}: .callprototype"]
    words += [_parameters(prototype.results)] if prototype.results else []
    words.append("_")
    words += [_parameters(prototype.parameters)] if prototype.parameters else []
    words += [_directive(directive) for directive in prototype.directives]
    return " ".join(words) + ";"


def _item(item: tree.Item) -> Iterator[str]:
    match item:
        case tree.Function():
            yield from _function(item)
        case tree.Declaration():
            yield from _wrapped(_declaration(item) + ";", "")
        case tree.File():
            rest = "".join(f", {number}" for number in item.rest)
            yield f'.file {item.index} "{item.path}"{rest}'
        case tree.Section():
            yield f".section {item.name}"
            yield "{"
            yield from (_INDENT + line for line in item.lines)
            yield "}"
        case tree.Alias():
            yield f".alias {item.name}, {item.target};"
        case tree.Pragma():
            yield _pragma(item)


def _function(function: tree.Function) -> Iterator[str]:
    words = [f".{function.linkage}"] if function.linkage else []
    words.append(".entry" if function.is_entry else ".func")
    words += [_attributes(function.attributes)] if function.attributes else []
    words += [_parameters(function.results)] if function.results else []
    head = " ".join([*words, function.name])
    end = ";" if function.body is None and not function.directives else ""
    if function.parameters:
        *others, last = map(_declaration, function.parameters)
        yield f"{head}("
        yield from (f"{_INDENT}{parameter}," for parameter in others)
        yield f"{_INDENT}{last}){end}"
    else:
        yield f"{head}(){end}"
    for number, directive in enumerate(function.directives, start=1):
        is_last = function.body is None and number == len(function.directives)
        yield _directive(directive) + (";" if is_last else "")
    if function.body is not None:
        yield "{"
        yield from _statements(function.body, _INDENT)
        yield "}"
