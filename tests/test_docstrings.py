"""What is public says which errors it raises."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "ptxlab"
ROOMS = ("layouts", "matrix", "device", "testing")
MODULES = ("errors", "launch_config", "triton", "numba", "driver")
PUBLIC = [
    *(file for room in ROOMS for file in sorted((ROOT / room).glob("*.py"))),
    *(ROOT / f"{name}.py" for name in MODULES),
]


def raised(node: ast.AST) -> Iterator[str]:
    """Yield the errors that a node of a function raises itself, but for those that it catches."""
    if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
        return
    if isinstance(node, ast.Raise) and node.exc is not None:
        called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        yield ast.unparse(called).rpartition(".")[2]
    elif isinstance(node, ast.Try):
        caught = [ast.unparse(handler.type) for handler in node.handlers if handler.type]
        tried = (name for statement in node.body for name in raised(statement))
        yield from (name for name in tried if not any(name in each for each in caught))
        for rest in (*node.handlers, *node.orelse, *node.finalbody):
            yield from raised(rest)
    else:
        for child in ast.iter_child_nodes(node):
            yield from raised(child)


def untold(text: str) -> list[str]:
    """Return the public functions that raise an error which their docstring does not name."""
    functions = (
        function
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef) and not function.name.startswith("_")
    )
    return [
        f"{function.name}: {name}"
        for function in functions
        for statement in function.body
        for name in raised(statement)
        if name[:1].isupper() and name not in (ast.get_docstring(function) or "")
    ]


@pytest.mark.parametrize("file", PUBLIC, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_public_docstrings_name_the_errors(file: Path) -> None:
    assert untold(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('"""Do it."""; raise ValueError("x")', ["f: ValueError"]),
        ('"""Do it. Raises ValueError."""; raise ValueError("x")', []),
        ("raise errors.Unsupported(1) from None", ["f: Unsupported"]),
        ("g = lambda: 1; raise", []),
    ],
)
def test_an_error_that_is_not_told_is_found(body: str, expected: list[str]) -> None:
    assert untold(f"def f():\n    {body}\n") == expected


def test_an_error_that_is_caught_is_nobody_elses() -> None:
    inside = (
        "try:\n        raise TypeError\n    except (TypeError, OSError):\n        raise KeyError"
    )
    assert untold(f"def f():\n    {inside}\n") == ["f: KeyError"]
    inside = "try:\n        raise TypeError\n    except ValueError:\n        pass"
    assert untold(f"def f():\n    {inside}\n") == ["f: TypeError"]
    assert untold("def _f():\n    raise TypeError\n") == []
