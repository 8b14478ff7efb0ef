"""setp, set, selp and slct against the tables of the PTX ISA, written out in Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.together import in_one_test

ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
COMBINE: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda t, c: t and c,
    "or": lambda t, c: t or c,
    "xor": lambda t, c: t != c,
}


def _nan(a: Any, b: Any) -> bool:
    return bool(a != a or b != b)


def _float_operators() -> dict[str, Callable[[Any, Any], bool]]:
    operators: dict[str, Callable[[Any, Any], bool]] = {
        "num": lambda a, b: not _nan(a, b),
        "nan": _nan,
    }
    for name, compare in ORDERED.items():
        operators[name] = partial(_ordered, compare)
        operators[name + "u"] = partial(_unordered, compare)
    return operators


def _ordered(compare: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    return not _nan(a, b) and compare(a, b)


def _unordered(compare: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    return _nan(a, b) or compare(a, b)


FLOAT = _float_operators()


def _check(reference: Any, instruction: str, a: list[int], b: list[int], t: list[bool]) -> None:
    """Compare p, q and every combination with a third predicate."""
    operator, name = instruction.split(".", 1)
    result = reference.run(f"setp.{instruction}", a, b)
    if name in ("f16", "bf16"):
        assert result.tolist() == t, instruction
        for combine, both in COMBINE.items():
            c = [bool(i // 2 % 2) for i in range(len(t))]
            result = reference.run(f"setp.{operator}.{combine}.{name}", a, b, c)
            assert result.tolist() == [both(x, y) for x, y in zip(t, c, strict=True)]
        return
    p, q = result
    assert p.tolist() == t, instruction
    assert q.tolist() == [not x for x in t], instruction
    c = [bool(i // 2 % 2) for i in range(len(t))]
    for combine, both in COMBINE.items():
        p, q = reference.run(f"setp.{operator}.{combine}.{name}", a, b, c)
        assert p.tolist() == [both(x, y) for x, y in zip(t, c, strict=True)]
        assert q.tolist() == [both(not x, y) for x, y in zip(t, c, strict=True)]


@in_one_test("name", [f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64)])
def test_setp_integers(reference: Any, name: str) -> None:
    bits = int(name[1:])
    a, b = reference.integers(bits, 2, 100, 1)
    names = ("eq", "ne") if name[0] == "b" else tuple(ORDERED)
    operators = {operator: ORDERED[operator] for operator in names}
    if name[0] == "u":
        operators |= {alias: ORDERED[plain] for alias, plain in UNSIGNED.items()}
    for operator, compare in operators.items():
        rows = zip(a, b, strict=True)
        if name[0] == "s":
            t = [compare(reference.signed(x, bits), reference.signed(y, bits)) for x, y in rows]
        else:
            t = [compare(x, y) for x, y in rows]
        _check(reference, f"{operator}.{name}", a, b, t)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_setp_floats(reference: Any, name: str) -> None:
    a, b = reference.floats(name, 2, 100, 2)
    b[-50:] = a[-50:]
    values = [
        (reference.decode(x, name), reference.decode(y, name)) for x, y in zip(a, b, strict=True)
    ]
    for operator, compare in FLOAT.items():
        _check(reference, f"{operator}.{name}", a, b, [compare(x, y) for x, y in values])


def test_setp_flushes(reference: Any) -> None:
    for name in ("f32", "f16"):
        a, b = reference.floats(name, 2, 50, 3)
        rows = [
            tuple(reference.decode(reference.flush(x, name), name) for x in row)
            for row in zip(a, b, strict=True)
        ]
        result = reference.run(f"setp.lt.ftz.{name}", a, b)
        p = result if name == "f16" else result[0]
        assert p.tolist() == [bool(x < y) for x, y in rows]


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_packed_comparisons(reference: Any, name: str) -> None:
    a, b = reference.integers(32, 2, 200, 4)
    c = [bool(x & 4) for x in a]
    for operator in ("lt", "geu", "num"):
        halves = []
        for shift in (0, 16):
            rows = zip(a, b, strict=True)
            numbers = [
                (
                    reference.decode(x >> shift & 0xFFFF, name),
                    reference.decode(y >> shift & 0xFFFF, name),
                )
                for x, y in rows
            ]
            halves.append([FLOAT[operator](x, y) for x, y in numbers])
        p, q = reference.run(f"setp.{operator}.{name}x2", a, b)
        assert (p.tolist(), q.tolist()) == (halves[0], halves[1])
        p, q = reference.run(f"setp.{operator}.or.{name}x2", a, b, c)
        assert q.tolist() == [x or y for x, y in zip(halves[1], c, strict=True)]
        true = 0x3C00 if name == "f16" else 0x3F80
        got = reference.run(f"set.{operator}.{name}x2.{name}x2", a, b).tolist()
        assert got == [true * low + (true * high << 16) for low, high in zip(*halves, strict=True)]
        got = reference.run(f"set.{operator}.u32.{name}x2", a, b).tolist()
        assert got == [
            0xFFFF * low + (0xFFFF0000 * high) for low, high in zip(*halves, strict=True)
        ]


@pytest.mark.parametrize(
    ("result", "true"),
    [
        ("u32", 0xFFFFFFFF),
        ("s32", 0xFFFFFFFF),
        ("f32", 0x3F800000),
        ("f16", 0x3C00),
        ("bf16", 0x3F80),
    ],
)
def test_set(reference: Any, result: str, true: int) -> None:
    a, b = reference.integers(32, 2, 100, 5)
    reference.matches(f"set.lt.{result}.u32", lambda x, y: true * (x < y), a, b)
    c = [x & 1 for x in a]
    reference.matches(f"set.eq.or.{result}.s32", lambda x, y, z: true * bool(x == y or z), a, b, c)
    f, g = reference.floats("f32", 2, 100, 6)
    reference.matches(
        f"set.gtu.{result}.f32",
        lambda x, y: true * FLOAT["gtu"](reference.decode(x, "f32"), reference.decode(y, "f32")),
        f,
        g,
    )


@pytest.mark.parametrize("name", ["b16", "u32", "s64", "f32", "f64"])
def test_selection(reference: Any, name: str) -> None:
    bits = int(name[1:])
    a, b = reference.integers(bits, 2, 100, 7)
    c = [x ^ y >> 1 & 1 for x, y in zip(a, b, strict=True)]
    reference.matches(f"selp.{name}", lambda x, y, z: x if z & 1 else y, a, b, [z & 1 for z in c])
    control, _ = reference.integers(32, 2, 100, 8)
    control = control[: len(a)]
    reference.matches(f"slct.{name}.s32", lambda x, y, z: x if z < 1 << 31 else y, a, b, control)
    (numbers,) = reference.floats("f32", 1, len(a) - 38, 9)
    for ftz in ("", ".ftz"):

        def expected(x: int, y: int, z: int, flushes: bool = bool(ftz)) -> int:
            value = reference.decode(reference.flush(z, "f32") if flushes else z, "f32")
            return x if value >= 0 else y

        reference.matches(f"slct{ftz}.{name}.f32", expected, a, b, numbers)


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_set_gives_one_in_bf16(reference: Any, source: str) -> None:
    a, b = reference.floats(source, 2, 100, 21)

    def expected(x: int, y: int) -> int:
        return 0x3F80 if reference.decode(x, source) < reference.decode(y, source) else 0

    reference.matches(f"set.lt.bf16.{source}", expected, a, b)
