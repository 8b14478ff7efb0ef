"""What sources say of their kernels: the parameters' names, and the instances of templates launched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ptxlab.toolchain.declarations import CppDeclaration, declarations, parameter_names

_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TEMPLATE = re.compile(r"template\s*<")
_DECLTYPE = re.compile(r"\bdecltype\s*\(([^()]*)\)")
_DEEPEST = 4
"""How often a constant may be told by another."""


class Template(NamedTuple):
    """A kernel template: ``name`` with its namespaces, ``head`` as its source has it."""

    name: str
    head: str


def templates(texts: Iterable[str]) -> Iterator[Template]:
    for text in texts:
        if "__global__" in text:
            yield from _templates(text, declarations(text), ())


def _templates(
    text: str, declared: Iterable[CppDeclaration], within: tuple[str, ...]
) -> Iterator[Template]:
    for declaration in declared:
        if declaration.kind == "namespace":
            yield from _templates(
                text,
                declaration.members,
                (*within, declaration.name) if declaration.name else within,
            )
        elif declaration.parameters is not None:
            head = " ".join(text[declaration.start : declaration.parameters[0] - 1].split())
            if head.startswith("template") and "__global__" in head:
                yield Template("::".join((*within, declaration.name)), head)


def launched(host: str, known: Iterable[Template]) -> Iterator[str]:
    """Yield the instances that ``host`` names of ``known`` templates, its constants put in.

    Left out are those that only a function of the host can name, by its parameters and variables.
    """
    host = _COMMENT.sub(" ", host)
    functions = [each for outer in declarations(host) for each in outer.all() if each.parameters]
    for template in known:
        plain = template.name.split("::")[-1]
        for match in re.finditer(rf"\b{plain}\s*<(?!<)", host):
            arguments = _closed(host[match.end() :])
            if arguments is not None:
                told = _told(arguments, host, match.start(), _DEEPEST)
                within = [each for each in functions if each.start <= match.start() < each.end]
                if not any(_names_its_own(told, host[: match.start()], each) for each in within):
                    yield f"{template.name}<{' '.join(told.split())}>"


def _names_its_own(told: str, host: str, function: CppDeclaration) -> bool:
    """Say whether template arguments name a parameter of a function, which ``host`` ends in, or the type of a variable of it."""
    assert function.parameters is not None
    opened, closed = function.parameters
    head = _TEMPLATE.match(host, function.start)
    own = set(parameter_names(host[opened:closed]))
    own |= set(parameter_names(_closed(host[head.end() :]) or "")) if head else set()
    body = host[function.head :]
    variables = (word for asked in _DECLTYPE.findall(told) for word in _WORD.findall(asked))
    return not own.isdisjoint(_WORD.findall(told)) or any(
        re.search(rf"[\w>&*]\s+[&*]*{word}\s*[=({{;]", body) for word in variables
    )


def _closed(text: str) -> str | None:
    """Return what comes before the bracket that closes template arguments."""
    angles, others = 1, 0
    for at, character in enumerate(text):
        others += (character in "([{") - (character in ")]}")
        if not others:
            angles += (character == "<") - (character == ">")
        if not angles:
            return text[:at]
        if character == ";" or others < 0:
            return None
    return None


def _told(text: str, host: str, before: int, deepest: int) -> str:
    """Put in the constants and types that the host gave names to, the nearest ``before`` a place."""

    def value(word: re.Match[str]) -> str:
        name = word[0]
        constant = rf"\b(?:const|constexpr)\b[^;={{}}()]*\b{name}\s*(?:=|\{{)([^;,{{}}]+)"
        types = list(re.finditer(rf"\busing\s+{name}\s*=([^;]+)", host[:before]))
        given = [*re.finditer(constant, host[:before]), *types]
        if not given or not deepest:
            return name
        inside = _told(given[-1][1].strip(), host, given[-1].start(), deepest - 1)
        return inside if types or re.fullmatch(r"[\w:]+", inside) else f"({inside})"

    return _WORD.sub(value, text)


def source_parameters(
    texts: Iterable[str], kernels: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Return what sources call the parameters of ``kernels``, which gives how many each has; ``param_3`` has no name.

    Left out is a kernel that is not found, or found twice with other names.
    """
    from ptxlab.syntax.names import called  # here: the tools can spare the parser

    lists: dict[str, set[tuple[str, ...]]] = {}
    for text in texts:
        if "__global__" in text:
            for declaration in (
                declaration for outer in declarations(text) for declaration in outer.all()
            ):
                if (
                    declaration.parameters is not None
                    and "__global__" in text[declaration.start : declaration.head]
                ):
                    names = tuple(
                        name or f"param_{index}"
                        for index, name in enumerate(
                            parameter_names(text[slice(*declaration.parameters)])
                        )
                    )
                    lists.setdefault(declaration.name, set()).add(names)
    parameters = {}
    for kernel, count in kernels.items():
        plain = called(kernel).partition("<")[0].split("::")[-1]
        fitting = [names for names in lists.get(plain, ()) if len(names) == count]
        if len(fitting) == 1 and len(set(fitting[0])) == count:
            parameters[kernel] = fitting[0]
    return parameters
