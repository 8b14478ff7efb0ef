"""What import-linter cannot say: which parts of CUDA's packages each door may use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ptxlab"
TOOLS = (
    "cuda.pathfinder", "cuda.bindings.nvrtc", "cuda.bindings.nvjitlink", "cuda.bindings.utils",
)  # fmt: skip


def imports(source: str) -> Iterator[str]:
    """Yield every module or name that ``source`` imports, as ``package.name``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def beyond_the_tools(source: str) -> list[str]:
    return [
        name
        for name in imports(source)
        if name.split(".")[0] == "cuda" and not f"{name}.".startswith(tuple(f"{t}." for t in TOOLS))
    ]


@pytest.mark.parametrize(
    "file", sorted((PACKAGE / "toolchain").glob("*.py")), ids=lambda file: file.name
)
def test_the_toolchain_needs_no_driver(file: Path) -> None:
    assert beyond_the_tools(file.read_text(encoding="utf-8")) == []


def test_the_check_finds_a_driver() -> None:
    assert beyond_the_tools("def f():\n    from cuda.bindings import driver, nvrtc\n") == [
        "cuda.bindings.driver"
    ]
    assert beyond_the_tools("import cuda.core") == ["cuda.core"]
