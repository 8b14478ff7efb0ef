"""Going over the statements of a function without regard to its scopes."""

from __future__ import annotations

from collections.abc import Iterator

from ptxlab.syntax.tree import Block, Function, Statement


def statements(function: Function) -> Iterator[Statement]:
    """Yield the statements of ``function`` in text order, those inside ``{ }`` in place of the block."""
    yield from _flat(function.body or ())


def _flat(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        if isinstance(statement, Block):
            yield from _flat(statement.statements)
        else:
            yield statement
