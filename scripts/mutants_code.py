"""Where in Python code a deliberate mistake is made: within a function, found by the tree of what it replaces.

So neither line breaks, comments, brackets that change nothing nor quotes count, nor where in its file the
function stands.
"""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any


class StaleError(ValueError):
    """What a mistake replaces is not, or not only once, where it was."""


@dataclass(frozen=True, slots=True)
class Site:
    """Nodes that a mistake replaces, in a statement that is written anew with it."""

    statement: ast.Module
    owner: ast.AST
    field: str
    at: int
    length: int

    @property
    def first(self) -> ast.AST:
        """The first of the nodes."""
        return _nodes(getattr(self.owner, self.field))[self.at]

    @property
    def line(self) -> int:
        """The line it stands in; that of what it belongs to, where it has none of its own."""
        line: int = getattr(self.first, "lineno", 0) or getattr(self.owner, "lineno", 1)
        return line

    def written(self, new: list[ast.AST]) -> str:
        """Return the statement with ``new`` in the place of the nodes. Raises StaleError."""
        before = getattr(self.owner, self.field)
        nodes = [*_nodes(before)]
        nodes[self.at : self.at + self.length] = new
        setattr(self.owner, self.field, nodes if isinstance(before, list) else nodes[0])
        try:
            text = ast.unparse(self.statement)
            ast.parse(text)
        except (SyntaxError, ValueError):
            raise StaleError(f"this cannot stand there: {_text(new)}") from None
        finally:
            setattr(self.owner, self.field, before)
        return text


def change(old: str, new: str) -> tuple[list[ast.AST], list[ast.AST]]:
    """Return the nodes of an expression and of what replaces it, or those of statements.

    Raises StaleError.
    """
    before, after = _statements(old), _statements(new.strip() or "pass")
    match before, after:
        case [ast.Expr(this)], [ast.Expr(that)]:
            return [this], [that]
    return [*before], [*after]


def site(text: str, within: str, old: list[ast.AST]) -> Site:
    """Return the one place of ``old`` in a function, class or table of the file ``text``.

    ``within`` "" is what stands outside of all functions and classes. Raises StaleError.
    """
    everything = _everything(text)
    statements = [own for name, own in everything if name == within]
    if not statements:
        names = dict.fromkeys((name for name, _ in everything), "")
        raise StaleError(f"there is no {within}{_nearest(within, names)}")
    sites = [own for statement in statements for own in _sites(statement, old)]
    if len(sites) == 1:
        return sites[0]
    where = within or "what stands outside of functions and classes"
    if sites:
        lines = " and ".join(str(own.line) for own in sites)
        raise StaleError(f"{where} has it {len(sites)} times, in lines {lines}: quote more")
    fitting = [name for name, own in everything if name and len(list(_sites(own, old))) == 1]
    if fitting:
        raise StaleError(f'{where} does not have it; it fits within = "{fitting[-1]}"')
    kind = ast.expr if isinstance(old[0], ast.expr) else ast.stmt
    candidates = {
        ast.unparse(node): f", in line {node.lineno}"
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, kind)
    }
    nearest = _nearest(_text(old), candidates)
    raise StaleError(f"{where} does not have it{nearest}")


def replaced(text: str, within: str, old: list[ast.AST], new: list[ast.AST]) -> str:
    """Return the file ``text`` with ``new`` in the place of ``old``. Raises StaleError."""
    own = site(text, within, old)
    statement = own.statement.body[0]
    decorators = getattr(statement, "decorator_list", [])
    begin = min(node.lineno for node in (statement, *decorators)) - 1
    margin = " " * statement.col_offset
    lines = text.splitlines(keepends=True)
    lines[begin : statement.end_lineno] = [
        f"{margin}{line}\n" for line in own.written(new).splitlines()
    ]
    return "".join(lines)


def _statements(text: str) -> list[ast.stmt]:
    text = textwrap.dedent(text).strip()
    try:
        if body := ast.parse(text).body:
            return body
    except SyntaxError:
        pass
    what = f"neither an expression nor statements: {text}"
    if text.endswith(":"):
        what += " (of an `if` or a loop quote what stands between its keyword and `:`)"
    raise StaleError(what)


@cache
def _everything(text: str) -> list[tuple[str, ast.Module]]:
    return list(_definitions(ast.parse(text)))


def _definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.Module]]:
    """Yield each statement that defines something, with its qualified name, and the others of a module."""
    for node in ast.iter_child_nodes(tree):
        name = _name(node)
        if isinstance(node, ast.stmt) and (name or isinstance(tree, ast.Module)):
            yield f"{prefix}{name}", ast.Module([node], type_ignores=[])
        if not isinstance(node, ast.expr):
            yield from _definitions(node, f"{prefix}{name}." if name else prefix)


def _name(node: ast.AST) -> str:
    """Return what a function, a class or an assignment defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return target.id if isinstance(target, ast.Name) else ""
    return ""


def _nodes(value: Any) -> list[ast.AST]:
    return value if isinstance(value, list) else [value]


def _sites(statement: ast.Module, old: list[ast.AST]) -> Iterator[Site]:
    for owner in ast.walk(statement):
        for field, value in ast.iter_fields(owner):
            nodes = _nodes(value)
            for at in range(len(nodes) - len(old) + 1):
                if all(map(_same, nodes[at:], old)):
                    yield Site(statement, owner, field, at, len(old))


def _text(nodes: list[ast.AST]) -> str:
    return "\n".join(map(ast.unparse, nodes))


def _same(a: object, b: object) -> bool:
    """Whether two trees say the same, be it read or assigned to."""
    if isinstance(a, ast.expr_context):
        return isinstance(b, ast.expr_context)
    if type(a) is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, ast.AST):
        return all(_same(getattr(a, f, None), getattr(b, f, None)) for f in a._fields)
    return a == b


def _nearest(text: str, candidates: dict[str, str]) -> str:
    """Return the words that name the candidate most like ``text``, if there is one at all."""
    if not candidates:
        return ""
    best = max(candidates, key=lambda own: difflib.SequenceMatcher(None, text, own).ratio())
    return f"; nearest{candidates[best]}: {best}"
