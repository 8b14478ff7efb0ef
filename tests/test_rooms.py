"""What import-linter cannot say: no files import each other, and what of CUDA's packages each door may use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ptxlab"
TOOLS = (
    "cuda.pathfinder", "cuda.bindings.nvrtc", "cuda.bindings.nvjitlink", "cuda.bindings.utils",
)  # fmt: skip


STATEMENT = re.compile(
    r"^[ \t]*((?:from[ \t]+\S+[ \t]+)?import[ \t]+(?:\([^)]*\)|[^\n(#;]+))", re.MULTILINE
)
"""To parse nothing else of all files takes a tenth of the time. In a docstring it is an example of a user's."""


def imports(source: str) -> Iterator[str]:
    """Yield every module or name that ``source`` imports, as ``package.name``."""
    for (node,) in (ast.parse(statement).body for statement in STATEMENT.findall(source)):
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


def circle(sources: Mapping[str, str]) -> list[str]:
    """Return files that import each other, the first again at the end: in functions or for types alone as well."""
    imported = {
        file: {
            next((known for known in (name, name.rpartition(".")[0]) if known in sources), file)
            for name in imports(source)
        }
        - {file}
        for file, source in sources.items()
    }
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other() -> None:
    root = PACKAGE.parent
    assert not circle(
        {
            ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): (
                file.read_text(encoding="utf-8")
            )
            for file in PACKAGE.rglob("*.py")
        }
    )


def test_a_circle_for_types_alone_is_found() -> None:
    hidden = "if TYPE_CHECKING:\n    from a.one import One\n"
    sources = {"a": "", "a.one": "from a import two", "a.two": "from a.three import f"}
    assert circle({**sources, "a.three": ""}) == []
    assert set(circle({**sources, "a.three": hidden})) == {"a.one", "a.two", "a.three"}
