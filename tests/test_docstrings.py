"""What is public says which errors it raises, of arrays their shapes and types, of numbers their units."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.together import in_one_test

ROOT = Path(__file__).parents[1] / "ptxlab"
ROOMS = ("layouts", "matrix", "device", "testing")
MODULES = (
    *("errors", "launch_config", "triton", "numba", "driver"),
    *("prediction/predict", "prediction/model", "tensormap/tensor_map"),
)
PUBLIC = [
    *(file for room in ROOMS for file in sorted((ROOT / room).glob("*.py"))),
    *(ROOT / f"{name}.py" for name in MODULES),
]


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


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


def called(node: ast.AST) -> Iterator[str]:
    """Yield the private functions that a node calls, by name or of ``self``, but for what it tries."""
    if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef | ast.Try):
        return
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).removeprefix("self.")
        if name.startswith("_"):
            yield name
    for child in ast.iter_child_nodes(node):
        yield from called(child)


def untold(text: str) -> list[str]:
    """Return the public functions that raise an error which their docstring does not name.

    What the private functions of the same file raise that they call is theirs too, where they have a docstring:
    without one they do what the method says that they override.
    """
    nodes = [node for node in ast.walk(parsed(text)) if isinstance(node, ast.FunctionDef)]
    functions = {node.name: node for node in nodes}

    def errors(function: ast.FunctionDef, seen: set[str]) -> Iterator[str]:
        for statement in function.body:
            yield from raised(statement)
            for name in called(statement) if ast.get_docstring(function) or seen else ():
                if name in functions and name not in seen:
                    yield from errors(functions[name], seen | {name})

    return [
        f"{node.name}: {error}"
        for node in nodes
        if not node.name.startswith("_")
        for error in dict.fromkeys(errors(node, set()))
        if error[:1].isupper() and error not in (ast.get_docstring(node) or "")
    ]


def bare(node: ast.Module | ast.ClassDef) -> list[str]:
    """Return what has no docstring: public functions and classes, but for methods that may override."""
    missing = []
    for child in node.body:
        if not isinstance(child, ast.FunctionDef | ast.ClassDef) or child.name.startswith("_"):
            continue
        overrides = isinstance(node, ast.ClassDef) and bool(node.bases)
        if not ast.get_docstring(child) and not overrides:
            missing.append(child.name)
        if isinstance(child, ast.ClassDef):
            missing += bare(child)
    return missing


@in_one_test("file", PUBLIC)
def test_what_is_public_has_a_docstring(file: Path) -> None:
    assert bare(parsed(file.read_text(encoding="utf-8"))) == []


def test_what_has_no_docstring_is_found() -> None:
    code = (
        "class A:\n    def f(self): ...\n    def _g(self): ...\nclass B(A):\n    def f(self): ..."
    )
    assert bare(ast.parse(code)) == ["A", "f", "B"]


_ARRAYS = re.compile(r"\b(Array|IntOrArray|ArrayLike)\b")
_SHAPE = re.compile(r"\[[a-z0-9., /]+\]|shape", re.IGNORECASE)
_TYPE = re.compile(r"\bu?int\d+|\bbool\b|\bunsigned integers|type")


def undescribed(text: str) -> list[str]:
    """Return the public functions whose docstring does not say of what shape and type their arrays are.

    One without a docstring does what the method says that it overrides.
    """
    missing = []
    for function in ast.walk(parsed(text)):
        if not isinstance(function, ast.FunctionDef) or function.name.startswith("_"):
            continue
        every = (*function.args.args, *function.args.kwonlyargs)
        types = [ast.unparse(argument.annotation) for argument in every if argument.annotation]
        types += [ast.unparse(function.returns)] if function.returns else []
        told = ast.get_docstring(function)
        if told is not None and any(map(_ARRAYS.search, types)):
            wanted = {"shape": _SHAPE, "type": _TYPE}
            missing += [
                f"{function.name}: {w}" for w, said in wanted.items() if not said.search(told)
            ]
    return missing


@in_one_test("file", PUBLIC)
def test_public_docstrings_say_what_arrays_are(file: Path) -> None:
    assert undescribed(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("Return the lanes [rows] of int64.", []),
        ("Return the lanes, of the shape and type of ``x``.", []),
        ("Return the lanes [rows].", ["f: type"]),
        ("Return the lanes, uint32.", ["f: shape"]),
    ],
)
def test_an_array_of_which_nothing_is_told_is_found(told: str, expected: list[str]) -> None:
    for signature in ("(x: Array)", "(*, x: npt.ArrayLike | int)", "() -> tuple[Array, int]"):
        assert undescribed(f'def f{signature}:\n    """{told}"""\n') == expected
    assert undescribed(f'def f(x: int) -> str:\n    """{told}"""\n') == []


_NUMBER = re.compile(r"\b(int|float)\b")
_UNITS = {
    "clock": "MHz",
    "power": r"\bW\b",
    "power_limit": r"\bW\b",
    "period": "seconds|bytes",
    **dict.fromkeys(("median", "p20", "p80"), "seconds"),
    **dict.fromkeys(("shared", "row_bytes"), "bytes"),
    **dict.fromkeys(("stride", "strides", "offset", "offsets", "cosize"), "elements?|bytes?|units"),
}
"""Of the names of numbers that do not carry their unit: what says it."""


def unitless(text: str) -> list[str]:
    """Return the numbers of public functions and classes of which their docstring does not say the unit."""
    missing = []
    for node in ast.walk(parsed(text)):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
            numbers = {ast.unparse(field.target): field.annotation for field in fields}
        else:
            every = (*node.args.args, *node.args.kwonlyargs)
            numbers = {each.arg: each.annotation for each in every if each.annotation}
            numbers |= {node.name: node.returns} if node.returns else {}
        told = ast.get_docstring(node)
        missing += [
            f"{node.name}: {name}"
            for name, annotation in numbers.items()
            if told is not None and name in _UNITS and _NUMBER.search(ast.unparse(annotation))
            if not re.search(_UNITS[name], told, re.IGNORECASE)
        ]
    return missing


@in_one_test("file", PUBLIC)
def test_public_docstrings_say_the_units_of_numbers(file: Path) -> None:
    assert unitless(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('def f(clock: int | None) -> None: """At ``clock`` in MHz."""', []),
        ('def f(clock: int | None) -> None: """At a ``clock``."""', ["f: clock"]),
        ('def power(self) -> float: """The power."""', ["power: power"]),
        ('def f(clock: Clock) -> None: """At a ``clock``."""', []),
        ('class A:\n    """Of so many bytes."""\n    shared: int', []),
        ('class A:\n    """All."""\n    shared: int', ["A: shared"]),
    ],
)
def test_a_number_without_a_unit_is_found(code: str, expected: list[str]) -> None:
    assert unitless(code) == expected


@in_one_test("file", PUBLIC)
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


def test_an_error_of_a_function_that_is_called_is_found() -> None:
    code = "def f():\n    'Do it.'\n    _g()\ndef _g(): self._h()\ndef _h(): raise KeyError"
    assert untold(code) == ["f: KeyError"]
    assert untold(code.replace("Do it.", "Raises KeyError.")) == []
    assert untold(code.replace("_g()", "try: _g()\n    except KeyError: pass", 1)) == []
    assert untold(code.replace("'Do it.'\n    ", "")) == []  # it overrides


_SOURCE = re.compile(
    r"PTX ISA|CUDA\s(Driver|C\+\+|Compatibility)|NVML|arXiv|IEEE|CuTe|CUTLASS|Numba|Triton|pytest"
    r"|ptxas takes|Nsight|DLPack|Source:|``section``|ptxlab/prediction/chips"
)
OWN = (
    *("device/dump", "device/emulator", "device/host_memory", "device/loading", "device/memory"),
    *("device/opening", "device/protocol", "driver", "errors", "matrix/bit_fields"),
    "matrix/catalog",
    "testing/assertions",
)
"""Files that state no fact from outside: what they say is ptxlab's own."""


def says_its_source(text: str) -> bool:
    """Say whether a docstring, of the module or of what is in it, names where its facts are from."""
    strings = (
        node.value.value
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
    return any(isinstance(string, str) and _SOURCE.search(string) for string in strings)


def test_public_files_name_the_source_of_their_facts() -> None:
    files = {
        file.relative_to(ROOT).with_suffix("").as_posix(): file.read_text(encoding="utf-8")
        for file in PUBLIC
        if file.name != "__init__.py"
    }
    assert sorted(name for name, text in files.items() if not says_its_source(text)) == sorted(OWN)


def test_a_file_without_a_source_is_found() -> None:
    assert says_its_source('"""Numbers. Source: a paper."""')
    assert says_its_source('X = 1\n"""PTX ISA, "mma"."""')
    assert not says_its_source('"""Numbers."""\nX = "PTX ISA"\n# PTX ISA\n')
