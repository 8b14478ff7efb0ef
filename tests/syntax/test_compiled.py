"""What NVRTC writes parses, prints and parses again, and the printed text means the same to ptxas."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ptxlab.syntax import parse, to_text
from ptxlab.syntax.tree import (
    Aggregate,
    Block,
    CallPrototype,
    Declaration,
    Directive,
    Function,
    Loc,
    Section,
    Statement,
    Symbol,
)
from ptxlab.toolchain.nvrtc import compile_cuda

SOURCES = sorted(Path(__file__).with_name("cuda").glob("*.cu"))
OPTIONS = {"plain": (), "lineinfo": ("-lineinfo",), "debug": ("-G",)}

Assemble = Callable[[str], dict[str, bytes]]


def compiled(path: Path, options: str) -> str:
    return compile_cuda(path.read_text(), path=path.name, arch="sm_90a", options=OPTIONS[options])


def flattened(statements: Sequence[Statement]) -> list[Statement]:
    flat: list[Statement] = []
    for statement in statements:
        flat.append(statement)
        if isinstance(statement, Block):
            flat += flattened(statement.statements)
    return flat


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_round_trip(path: Path, options: str, assemble: Assemble) -> None:
    text = compiled(path, options)
    module = parse(text, path.name)
    printed = to_text(module)
    assert parse(printed) == module
    assert to_text(parse(printed)) == printed
    # Unoptimised code differs between [x+0] and [x], which the tree does not tell apart.
    before, after = assemble(text.replace("+0]", "]")), assemble(printed)
    assert any(name.startswith(".text") for name in before)
    assert after == before


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_statement_is_kept(path: Path) -> None:
    """A count by text, made without the parser: statements end in ';', and .loc has none."""
    text = compiled(path, "lineinfo")
    module = parse(text)
    lines = [line.split("//")[0] for line in text.splitlines()]
    bodies = [s for f in module.functions if f.body is not None for s in flattened(f.body)]
    kinds = Counter(type(statement).__name__ for statement in bodies)
    declared = sum(isinstance(item, Declaration) for item in module.items)
    prototypes = sum(f.body is None for f in module.functions)
    simple = sum(n for kind, n in kinds.items() if kind not in ("Label", "Block", "Loc"))
    assert sum(line.count(";") for line in lines) == simple + declared + prototypes
    assert kinds["Loc"] == sum(re.match(r"\s*\.loc\s", line) is not None for line in lines)
    opened = sum(re.match(r"\s*\{(\s|$)", line) is not None for line in lines)
    bare = kinds["Block"] + sum(f.body is not None for f in module.functions)
    sections = sum(isinstance(item, Section) for item in module.items)
    assert opened == bare + sections


def test_the_sources_reach_the_rare_constructs() -> None:
    """Keep the CUDA sources from losing what they are there for."""
    modules = [parse(compiled(path, options)) for path in SOURCES for options in OPTIONS]
    statements = [
        statement
        for module in modules
        for function in module.functions
        for statement in flattened(function.body or ())
    ]
    initializers = [
        name.initializer
        for module in modules
        for item in module.items
        if isinstance(item, Declaration)
        for name in item.names
    ]
    elements = [e for i in initializers if isinstance(i, Aggregate) for e in i.elements]
    functions: list[Function] = [f for module in modules for f in module.functions]
    assert any(isinstance(s, CallPrototype) for s in statements)
    assert any(isinstance(s, Loc) and "inlined_at" in s.rest for s in statements)
    assert any(isinstance(e, Symbol) and e.generic and e.offset for e in elements)
    assert any(isinstance(item, Section) for module in modules for item in module.items)
    assert {d.name for f in functions for d in f.directives if isinstance(d, Directive)} >= {
        "maxntid",
        "minnctapersm",
        "reqnctapercluster",
        "explicitcluster",
        "maxnreg",
    }
    assert any(p.alignment == 128 for f in functions for p in f.parameters)


def test_the_comparison_notices_a_changed_operand(assemble: Assemble) -> None:
    text = compiled(Path(__file__).with_name("cuda") / "assembly.cu", "plain")
    module = to_text(parse(text))
    old, new = "fma.rn.relu.f16", "fma.rn.f16"
    assert module.count(old) == 1
    assert assemble(module.replace(old, new)) != assemble(text)
