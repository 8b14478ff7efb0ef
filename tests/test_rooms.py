"""What import-linter cannot say: no files import each other, and what of CUDA's packages each door may use."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
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


# ---- what is written about rooms ----

FILE = re.compile(r"`([a-z0-9_]+(?:/[a-z0-9_]+)*(?:\.(?:py|cuh|toml|h)|/))`")


def missing(text: str, known: Callable[[Path], bool]) -> list[str]:
    """Return the files and folders that a page names and that are not: a bare name is in a folder that its section names."""
    absent = []
    for section in text.split("\n## "):
        names = FILE.findall(section)
        folders = {Path(), *(Path(name).parent for name in names if "/" in name)}
        folders |= {folder.parent for folder in folders}
        absent += [name for name in names if not any(known(folder / name) for folder in folders)]
    return absent


def rooms(listed: str) -> set[str]:
    """Return the rooms of CONTRIBUTING's list, of which several may stand before what is said of them."""
    lines = re.findall(r"^    ([a-z_]+(?:, [a-z_]+)*) {2,}(.*)$", listed, re.MULTILINE)
    names = {name for several, _ in lines for name in several.split(", ")}
    return names | {name for _, said in lines for name in re.findall(r" {2,}([a-z_]+) {2,}", said)}


def test_the_page_of_the_structure_names_files_that_there_are() -> None:
    root = PACKAGE.parent
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert missing(page, lambda path: (root / path).exists()) == []


def test_a_file_that_is_not_there_is_found() -> None:
    page = "`a/b.py`, `c.py`\n## More\n`c.py`, `d/e/`, `e.toml`"
    assert missing(page, {Path("a/b.py"), Path("a/c.py"), Path("d/e")}.__contains__) == [
        "c.py",
        "e.toml",
    ]


def test_every_room_is_in_the_list() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = text.partition("## The rooms")[2].partition("\n## ")[0]
    there = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    there = {name for name in there if not name.startswith("__")}
    assert rooms(listed) == there
