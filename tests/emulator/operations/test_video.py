"""Video instructions against the pseudo-code of the PTX ISA, on Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from ptxlab.emulator.operations import video
from ptxlab.emulator.prepare.forms import find
from ptxlab.emulator.prepare.row import UnknownForm
from ptxlab.errors import PtxlabError
from tests.together import in_one_test

MASK = 0xFFFFFFFF
PARTS = {f"b{i}": (8 * i, 8) for i in range(4)} | {"h0": (0, 16), "h1": (16, 16), "": (0, 32)}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}
ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda x, y: (x + y + 1) >> 1 if x + y >= 0 else (x + y) >> 1,
}
SECOND: dict[str, Callable[[int, int], int]] = {"add": lambda t, c: t + c, "min": min, "max": max}


def number(word: int, bits: int, kind: str) -> int:
    word &= (1 << bits) - 1
    return word - (1 << bits) if kind == "s32" and word >> (bits - 1) else word


def clamp(value: int, bits: int, kind: str) -> int:
    if kind == "s32":
        return min(max(value, -(1 << (bits - 1))), (1 << (bits - 1)) - 1)
    return min(max(value, 0), (1 << bits) - 1)


def selected(word: int, selector: str, kind: str) -> int:
    shift, bits = PARTS[selector]
    return number(word >> shift, bits, kind)


def finished(tmp: int, c: int, d: str, sat: bool, second: str, part: str) -> int:
    shift, bits = PARTS[part]
    if sat:
        tmp = clamp(tmp, bits, d)
    if second:
        tmp = SECOND[second](tmp, number(c, 32, d))
    if not part:
        return tmp & MASK
    field = ((1 << bits) - 1) << shift
    return (tmp << shift & field) | (c & ~field)


def build(opcode: str, names: str, parts: Sequence[str], **more: Any) -> Any:
    return video.chosen(
        find(opcode, tuple(name for name in names.split(".") if name)), parts, **more
    )


def check(
    reference: Any, label: str, operation: Any, expected: Callable[..., int], seed: int
) -> None:
    operands = reference.integers(32, 3, 40, seed)
    operands = [column[seed % 41 : -40 : 41] + column[-40:] for column in operands]
    operands = operands[: len(operation.operands)]
    got = reference.run_operation(label, operation, *operands).tolist()
    zeros = [0] * (3 - len(operands))
    for row, actual in zip(zip(*operands, strict=True), got, strict=True):
        right = expected(*row, *zeros)
        assert actual == right, f"{label} of {[hex(x) for x in row]}: {actual:#x}, not {right:#x}"
    first = operands[0][::4]
    shared = [first, *([column[5]] for column in operands[1:])]
    alike = reference.run_operation(label, operation, *shared).tolist()
    rest = [column[5] for column in operands[1:]] + zeros
    assert alike == [expected(x, *rest) for x in first]


SELECTORS = [("", "", ""), ("", "b0", "h1"), ("", "h0", "b3"), ("b2", "", "b1"), ("h1", "h1", "")]


@pytest.mark.parametrize("opcode", ["vadd", "vsub", "vabsdiff", "vmin", "vmax"])
def test_arithmetic(reference: Any, opcode: str) -> None:
    seed = 0
    for d, a, b in product(("u32", "s32"), repeat=3):
        for sat, second, parts in product(("", "sat"), ("", "add", "min", "max"), SELECTORS):
            if second and parts[0]:
                continue
            seed += 1
            names = f"{d}.{a}.{b}.{sat}.{second}"
            operation = build(opcode, names, [*parts, ""])

            def expected(x: int, y: int, z: int, form: Any = (d, a, b, sat, second, parts)) -> int:
                d, a, b, sat, second, (to, from_a, from_b) = form
                tmp = ARITHMETIC[opcode](selected(x, from_a, a), selected(y, from_b, b))
                return finished(tmp, z, d, bool(sat), second, to)

            check(reference, f"{opcode}.{names} {parts}", operation, expected, seed)


@pytest.mark.parametrize("opcode", ["vshl", "vshr"])
def test_shifts(reference: Any, opcode: str) -> None:
    seed = 0
    for d, a, sat, mode, parts in product(
        ("u32", "s32"), ("u32", "s32"), ("", "sat"), ("clamp", "wrap"), SELECTORS
    ):
        for second in ("",) if parts[0] else ("", "min", "add"):
            seed += 1
            names = f"{d}.{a}.u32.{sat}.{mode}.{second}"
            operation = build(opcode, names, [*parts, ""])

            def expected(
                x: int, y: int, z: int, form: Any = (d, a, sat, mode, second, parts)
            ) -> int:
                d, a, sat, mode, second, (to, from_a, from_b) = form
                value, count = selected(x, from_a, a), selected(y, from_b, "u32")
                count = min(count, 32) if mode == "clamp" else count & 31
                tmp = value << count if opcode == "vshl" else value >> count
                return finished(tmp, z, d, bool(sat), second, to)

            check(reference, f"{opcode}.{names} {parts}", operation, expected, seed)


def test_vset(reference: Any) -> None:
    for seed, (a, b, compare) in enumerate(product(("u32", "s32"), ("u32", "s32"), COMPARE)):
        for second, parts in (("", SELECTORS[1]), ("", SELECTORS[3]), ("max", SELECTORS[0])):
            names = f"{a}.{b}.{compare}.{second}"
            operation = build("vset", names, [*parts, ""])

            def expected(x: int, y: int, z: int, form: Any = (a, b, compare, second, parts)) -> int:
                a, b, compare, second, (to, from_a, from_b) = form
                tmp = COMPARE[compare](selected(x, from_a, a), selected(y, from_b, b))
                return finished(int(tmp), z, "u32", False, second, to)

            check(reference, f"vset.{names} {parts}", operation, expected, seed)


def test_vmad(reference: Any) -> None:
    seed = 0
    signs = [(False,) * 3, (True, False, False), (False, True, False), (True, True, False)]
    signs += [(False, False, True), (True, True, True)]
    for a, b, sat, scale, po in product(
        ("u32", "s32"), ("u32", "s32"), ("", "sat"), ("", "shr7", "shr15"), ("", "po")
    ):
        for negated in signs[:1] if po else signs:
            seed += 1
            parts = ["", *(("", ""), ("h0", "b3"), ("", "h1"))[seed % 3], ""]
            names = f"s32.{a}.{b}.{po}.{sat}.{scale}"
            operation = build("vmad", names, parts, negated=negated)

            def expected(
                x: int, y: int, c: int, form: Any = (a, b, sat, scale, po, negated, parts)
            ) -> int:
                a, b, sat, scale, po, negated, parts = form
                flip = negated[0] != negated[1]
                signed = "s32" in (a, b) or flip or negated[2]
                tmp, lsb = selected(x, parts[1], a) * selected(y, parts[2], b), 0
                if po:
                    lsb = 1
                elif flip:
                    tmp, lsb = ~tmp, 1
                elif negated[2]:
                    c, lsb = ~c & MASK, 1
                tmp += number(c, 32, "s32" if signed else "u32") + lsb
                tmp >>= int(scale[3:] or 0)
                return (clamp(tmp, 32, "s32" if signed else "u32") if sat else tmp) & MASK

            check(reference, f"vmad.{names} {negated}", operation, expected, seed)


SIMD_SELECTORS = {
    2: [("", "", ""), ("h0", "h31", "h02"), ("h1", "h00", "h23"), ("h10", "h12", "h30")],
    4: [("", "", ""), ("b310", "b7654", "b0123"), ("b2", "b0000", "b7175"), ("b20", "", "b3210")],
}


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("opcode", [*ARITHMETIC, "vset"])
def test_simd(reference: Any, opcode: str, lanes: int) -> None:
    bits, seed = 32 // lanes, 0
    firsts = COMPARE if opcode == "vset" else ("u32", "s32")
    for first, a, b in product(firsts, ("u32", "s32"), ("u32", "s32")):
        for last, parts in product(
            ("", "add") if opcode == "vset" else ("", "sat", "add"), SIMD_SELECTORS[lanes]
        ):
            seed += 1
            names = f"{a}.{b}.{first}.{last}" if opcode == "vset" else f"{first}.{a}.{b}.{last}"
            operation = build(f"{opcode}{lanes}", names, parts)

            def expected(x: int, y: int, c: int, form: Any = (first, a, b, last, parts)) -> int:
                first, a, b, last, (mask, from_a, from_b) = form
                chosen = [int(i) for i in mask[:0:-1]] or list(range(lanes))
                left = [int(i) for i in from_a[:0:-1]] or list(range(lanes))
                right = [int(i) for i in from_b[:0:-1]] or list(range(lanes, 2 * lanes))
                both, d = y << 32 | x, c
                for lane in chosen:
                    p = number(both >> bits * left[lane], bits, a)
                    q = number(both >> bits * right[lane], bits, b)
                    t = int((COMPARE[first] if opcode == "vset" else ARITHMETIC[opcode])(p, q))
                    if last == "add":
                        d += t
                        continue
                    t = clamp(t, bits, first) if last == "sat" else t
                    field = ((1 << bits) - 1) << bits * lane
                    d = (d & ~field) | (t << bits * lane & field)
                return d & MASK

            if seed % 3 == 0 or lanes == 2:
                check(reference, f"{opcode}{lanes}.{names} {parts}", operation, expected, seed)


@pytest.mark.parametrize(
    ("opcode", "names", "parts"),
    [
        ("vadd", "u32.u32.u32.add", ["h0", "", "", ""]),
        ("vadd", "u32.u32.u32", ["h2", "", "", ""]),
        ("vadd", "u32.u32.u32", ["", "b4", "", ""]),
        ("vadd2", "u32.u32.u32.sat.add", ["", "", "", ""]),
        ("vadd2", "u32.u32.u32", ["h01", "", "", ""]),
        ("vadd2", "u32.u32.u32", ["", "h4", "", ""]),
        ("vadd4", "u32.u32.u32", ["", "b3218", "", ""]),
    ],
)
def test_what_is_refused(opcode: str, names: str, parts: list[str]) -> None:
    with pytest.raises(UnknownForm):
        build(opcode, names, parts)


def test_in_a_kernel(run: Any) -> None:
    body = """
    mov.u32 r3, 0x81FF02F0;
    mov.u32 r4, 7;
    vadd.s32.s32.s32.sat r5.h1, r3.b3, r4.b0, r3;
    st.global.u32 [d1], r5;
    vmad.s32.s32.u32 r5, -r3.h1, r4, r4;
    st.global.u32 [d1+4], r5;
    vadd4.u32.u32.u32.sat r5.b20, r3.b3333, 5.b0, r4;
    """
    with pytest.raises(PtxlabError):
        run(body, words=3)
    good = body.replace("5.b0", "r4.b4444") + "st.global.u32 [d1+8], r5;"
    words = run(good, words=3)[0].tolist()
    assert words == [0xFF8802F0, (-(0x81FF - 0x10000) * 7 + 7) & MASK, 0x00880088]


@in_one_test(
    ("text", "expected"),
    [
        ("vadd.u32.u32.u32 r4, r0, r2;", lambda x: x + 300),
        ("vadd.s32.s32.s32.sat r4, -r0, r2;", None),
        ("vsub.u32.u32.u32.sat r4, r0, r2;", lambda x: 0),
        ("vmax.s32.u32.s32 r4, r0.b0, r2.b0;", lambda x: max(x, 44)),
        ("vshl.u32.u32.u32.wrap r4, r0, r3;", lambda x: x << 1),
        ("vset.u32.u32.lt r4, r0, r3;", lambda x: int(x < 33)),
        ("vadd.u32.u32.u32 r4, r0, r2, r3;", lambda x: x + 300),
        ("vadd.u32.u32.u32 r4.b1, r0, r2, r3;", lambda x: (x + 300) % 256 << 8 | 33),
        ("vadd.u32.u32.u32.max r4, r0, r2, r3;", lambda x: x + 300),
        ("vadd.u32.u32.u32.min r4, r0, r2, r3;", lambda x: 33),
        ("vadd.u32.u32.u32 r4.b1, r0, r2;", None),
        ("vadd.u32.u32.u32.max r4, r0, r2;", None),
    ],
)
def test_the_third_operand_is_there_for_what_needs_it(
    emulate: Any, text: str, expected: Callable[[int], int] | None
) -> None:
    """As ptxas has it: to be joined with, or to keep what a part of the destination leaves."""
    body = f"mov.u32 r2, 300; mov.u32 r3, 33; {text} st.global.u32 [d1], r4;"
    if expected is None:
        with pytest.raises(PtxlabError):
            emulate(body)
        return
    assert emulate(body)[:, 0].tolist() == [expected(thread) for thread in range(32)]
