"""atom and red against a model that lets one thread after the other go, on random bit patterns.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red".
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported
from tests.together import in_one_test, one_of_each

REGISTER = {16: "h", 32: "r", 64: "d", 128: "q"}
PLACES = 24

# ---- the model: bits of a place and of the operands in, bits out -------------------------------


def signed(value: int, bits: int) -> int:
    return value - (value >> (bits - 1) << bits)


def by_sign(pick: Callable[..., int], bits: int) -> Callable[[int, int], int]:
    return lambda old, b: pick(old, b, key=lambda value: signed(value, bits))


FORMATS: dict[str, tuple[Any, int]] = {
    "f16": (np.float16, 0x7FFF),
    "bf16": (ml_dtypes.bfloat16, 0x7FFF),
    "f32": (np.float32, 0x7FFFFFFF),
    "f64": (np.float64, 0x7FF8000000000000),
}


def number(bits: int, name: str, flush: bool) -> float:
    dtype = np.dtype(FORMATS[name][0])
    value = float(np.array(bits, f"u{dtype.itemsize}").view(dtype)[()])
    return value * 0.0 if flush and abs(value) < 2.0**-126 else value


def encoded(value: float, name: str, flush: bool) -> int:
    dtype = np.dtype(FORMATS[name][0])
    if value != value:
        return FORMATS[name][1]
    with np.errstate(over="ignore"):
        rounded = np.array(value).astype(dtype)
    if flush and abs(float(rounded)) < 2.0**-126:
        rounded = np.array(float(rounded) * 0.0, dtype)
    return int(rounded.view(f"u{dtype.itemsize}"))


def floating(operation: str, name: str, flush: bool) -> Callable[[int, int], int]:
    def result(old: int, b: int) -> int:
        x, y = number(old, name, flush), number(b, name, flush)
        if operation == "add":
            # Exact in double precision, or the sum is one of the two: rounded once either way.
            return encoded(x + y, name, flush)
        if x != x or y != y:
            return encoded(y if x != x else x, name, flush)
        if x == y == 0:
            return min(old, b) if operation == "max" else max(old, b)
        return encoded(max(x, y) if operation == "max" else min(x, y), name, flush)

    return result


def model(operation: str, kind: str, bits: int, space: str) -> Callable[..., int]:
    """Return the new bits of one element from the old ones and the operands."""
    if kind.endswith("x2"):
        half = model(operation, kind[:-2], 16, space)
        return lambda old, b: half(old & 0xFFFF, b & 0xFFFF) | half(old >> 16, b >> 16) << 16
    if kind in FORMATS:
        return floating(operation, kind, kind == "f32" and space != "shared")
    modulus = 1 << bits
    known: dict[str, Callable[..., int]] = {
        "and": lambda old, b: old & b,
        "or": lambda old, b: old | b,
        "xor": lambda old, b: old ^ b,
        "exch": lambda old, b: b,
        "cas": lambda old, b, c: c if old == b else old,
        "add": lambda old, b: (old + b) % modulus,
        "inc": lambda old, b: 0 if old >= b else old + 1,
        "dec": lambda old, b: b if old == 0 or old > b else old - 1,
        "min": by_sign(min, bits) if kind[0] == "s" else min,
        "max": by_sign(max, bits) if kind[0] == "s" else max,
    }
    return known[operation]


# ---- the program ----------------------------------------------------------------------------


def program(
    opcode: str, operation: str, kind: str, bits: int, count: int, space: str, more: str
) -> str:
    """Return a kernel in which thread i does one operation on place ``where[i]``."""
    letter, size = REGISTER[bits], bits // 8
    names = [[f"{letter}{8 * row + i}" for i in range(count)] for row in range(1, 4)]
    vector = [f"{{{', '.join(row)}}}" if count > 1 else row[0] for row in names]
    arguments = [*([vector[0]] if opcode == "atom" else []), "[d20]", vector[1]]
    if operation == "cas":
        arguments.append(vector[2])
    state = "" if space == "generic" else f".{space}"
    width = f".v{count}" if count > 1 else ""
    loads = "".join(
        f"ld.global.b{bits} {name}, [d{21 + row}+{i * size}];\n"
        for row, operand in enumerate(names[1:])
        for i, name in enumerate(operand)
    )
    stores = "".join(
        f"st.global.b{bits} [d23+{i * size}], {name};\n" for i, name in enumerate(names[0])
    )
    total = size * count
    # Of shared memory each of the first threads copies a word: in at the beginning, out at the end.
    word = "mov.u64 d6, cells; mad.wide.u32 d6, r2, 8, d6; mad.wide.u32 d7, r2, 8, d0;"
    enter = f"{word} @p ld.global.b64 d5, [d7]; @p st.shared.b64 [d6], d5; bar.sync 0;"
    leave = f"bar.sync 0; {word} @p ld.shared.b64 d5, [d6]; @p st.global.b64 [d7], d5;"
    shared = space == "shared"
    return f"""
.version 8.6
.target sm_90
.address_size 64
.shared .align 16 .b8 cells[{PLACES * total}];
.visible .entry k(.param .u64 memory, .param .u64 where, .param .u64 b, .param .u64 c, .param .u64 out)
{{
    .reg .pred p;
    .reg .b16 h<40>;
    .reg .b32 r<40>;
    .reg .b64 d<40>;
    .reg .b128 q<40>;
    ld.param.u64 d0, [memory];
    ld.param.u64 d1, [where];
    ld.param.u64 d2, [b];
    ld.param.u64 d3, [c];
    ld.param.u64 d4, [out];
    mov.u32 r0, %ctaid.x;
    mov.u32 r1, %ntid.x;
    mov.u32 r2, %tid.x;
    setp.lt.u32 p, r2, {PLACES * total // 8};
    mad.lo.u32 r0, r0, r1, r2;
    mad.wide.u32 d1, r0, 4, d1;
    ld.global.u32 r3, [d1];
    mad.wide.u32 d21, r0, {total}, d2;
    mad.wide.u32 d22, r0, {total}, d3;
    mad.wide.u32 d23, r0, {total}, d4;
    {f"{enter} mov.u64 d0, cells;" if shared else ""}
    mad.wide.u32 d20, r3, {total}, d0;
    {loads}
    {opcode}{more}{state}.{operation}{".noftz" if "f16" in kind else ""}{width}.{kind} {", ".join(arguments)};
    {stores if opcode == "atom" else ""}
    {f"ld.param.u64 d0, [memory]; {leave}" if shared else ""}
}}
"""


def pattern(random: Any, count: int, bits: int, kind: str) -> list[int]:
    """Return bit patterns that meet: few distinct ones, special values among them."""
    words = [int.from_bytes(random.bytes(bits // 8), "little") for _ in range(count // 3)]
    words += random.integers(0, 5, count // 6).tolist()
    base = kind.removesuffix("x2")
    if base in FORMATS:
        dtype = np.dtype(FORMATS[base][0])
        info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
        special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, float(info.max), float(info.tiny),
                   -float(info.smallest_subnormal), 3 * float(info.smallest_subnormal)]  # fmt: skip
        raw = np.array(special).astype(dtype).view(f"u{dtype.itemsize}").tolist()
        words += [value * (0x10001 if kind.endswith("x2") else 1) for value in raw]
    picked = random.integers(0, len(words), count)
    return [words[i] for i in picked]


def packed(words: list[int], bits: int) -> Any:
    return np.frombuffer(b"".join(w.to_bytes(bits // 8, "little") for w in words), np.uint8)


def unpacked(data: Any, bits: int, kind: str) -> list[int]:
    """Return the words; a double's NaN is any NaN, as PTX has it."""
    if kind == "f64":
        data = np.where(np.isnan(data.view(np.float64)), np.nan, data.view(np.float64)).view(
            np.uint8
        )
    return [int.from_bytes(row.tobytes(), "little") for row in data.reshape(-1, bits // 8)]


def compare(
    device: Device,
    opcode: str,
    operation: str,
    kind: str,
    space: str,
    spread: int,
    count: int = 1,
    more: str = "",
) -> None:
    """Run an operation by 160 threads at ``spread`` places and compare all that it leaves."""
    bits = 32 if kind.endswith("x2") else int(kind.lstrip("bfus"))
    random = np.random.default_rng([bits, spread, count, *map(ord, operation + kind)])
    grid, block = (1, 160) if space == "shared" else (2, 80)
    where = random.integers(0, spread, 160).astype(np.uint32)
    memory, b, c = (pattern(random, n * count, bits, kind) for n in (PLACES, 160, 160))
    text = program(opcode, operation, kind, bits, count, space, more)
    arrays = [packed(memory, bits), where, packed(b, bits), packed(c, bits), packed(b, bits) * 0]
    buffers = [device.upload(array) for array in arrays]
    device.load(text).kernel("k").launch(grid, block, buffers)
    after, olds = (unpacked(buffers[i].numpy(), bits, kind) for i in (0, 4))
    for buffer in buffers:
        buffer.close()
    update = model(operation, kind, bits, space)
    memory = unpacked(packed(memory, bits), bits, kind)
    for thread, index in enumerate(where.tolist()):
        for element in range(count):
            at, mine = index * count + element, thread * count + element
            if opcode == "atom":
                assert olds[mine] == memory[at], (thread, element)
            operands = (b[mine], c[mine]) if operation == "cas" else (b[mine],)
            memory[at] = update(memory[at], *operands)
    assert after == memory


SCALARS = [
    *((op, t) for op in ("and", "or", "xor") for t in ("b32", "b64")),
    *(("exch", t) for t in ("b32", "b64", "b128")),
    *(("cas", t) for t in ("b16", "b32", "b64", "b128")),
    *(("add", t) for t in ("u32", "s32", "u64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2")),
    ("inc", "u32"),
    ("dec", "u32"),
    *((op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")),
]


# Every operation on every type always runs, and each of them in every space; not all three at a time.
@pytest.mark.parametrize(
    ("operation", "kind", "space"),
    one_of_each(
        [(*scalar, space) for space in ("global", "shared", "generic") for scalar in SCALARS],
        itemgetter(0, 1),
        itemgetter(0, 2),
        itemgetter(1, 2),
    ),
)
def test_scalar(emulator: Device, operation: str, kind: str, space: str) -> None:
    for spread in (1, 5, PLACES):
        compare(emulator, "atom", operation, kind, space, spread)


@in_one_test(("operation", "kind"), [s for s in SCALARS if s[0] not in ("exch", "cas")])
def test_red(emulator: Device, operation: str, kind: str) -> None:
    compare(emulator, "red", operation, kind, "global", 5)
    compare(emulator, "red", operation, kind, "shared", 1)


VECTORS = [
    *(("add", "f32", n) for n in (2, 4)),
    *((op, t, n) for op in ("add", "min", "max") for t in ("f16", "bf16") for n in (2, 4, 8)),
    *((op, t, n) for op in ("add", "min", "max") for t in ("f16x2", "bf16x2") for n in (2, 4)),
]


# Every operation on every type always runs, and every type with every count.
@pytest.mark.parametrize(
    ("operation", "kind", "count"), one_of_each(VECTORS, itemgetter(0, 1), itemgetter(1, 2))
)
def test_vector(emulator: Device, operation: str, kind: str, count: int) -> None:
    compare(emulator, "atom", operation, kind, "global", 4, count)
    compare(emulator, "red", operation, kind, "generic", 1, count)


@in_one_test("scope", ["", ".cta", ".cluster", ".gpu", ".sys"])
@in_one_test("ordering", ["", ".relaxed", ".acquire", ".release", ".acq_rel"])
def test_every_ordering_and_scope_is_kept(emulator: Device, ordering: str, scope: str) -> None:
    compare(emulator, "atom", "add", "u32", "global", 5, more=ordering + scope)


@pytest.mark.parametrize(("noftz", "in_global"), [("", 0), (".noftz", 3 * 32)])
def test_generic_addresses_of_both_spaces_in_one_instruction(
    emulator: Device, noftz: str, in_global: int
) -> None:
    # Odd threads add to shared memory, where subnormals count, even ones to global memory.
    text = f"""
.version 9.4
.target sm_90
.address_size 64
.shared .align 8 .b64 cell;
.visible .entry k(.param .u64 out)
{{
    .reg .pred p;
    .reg .b32 r<8>;
    .reg .b64 d<4>;
    ld.param.u64 d0, [out];
    mov.u32 r0, %tid.x;
    st.shared.u64 [cell], 0;
    bar.sync 0;
    and.b32 r1, r0, 1;
    setp.eq.u32 p, r1, 1;
    mov.u64 d1, cell;
    cvta.shared.u64 d1, d1;
    selp.b64 d2, d1, d0, p;
    atom.add{noftz}.f32 r2, [d2], 0f00000003;
    bar.sync 0;
    ld.shared.u32 r3, [cell];
    st.global.u32 [d0+4], r3;
}}
"""
    with emulator.zeros(2, "u32") as out:
        emulator.load(text).kernel("k").launch(1, 64, [out])
        assert out.numpy().tolist() == [in_global, 3 * 32]


def line(text: str, target: str = "sm_80") -> str:
    return f"""
.version 8.6
.target {target}
.address_size 64
.visible .entry k() {{
    .reg .b16 h<9>; .reg .b32 r<9>; .reg .b64 d<9>; .reg .f32 f<9>; .local .b32 mine;
    {text}
}}
"""


@in_one_test(
    "text",
    [
        "atom.global.add.s64 d0, [d1], d2;",
        "atom.global.add.f16 h0, [d1], h2;",
        "atom.global.min.noftz.f16 h0, [d1], h2;",
        "atom.shared.add.v2.f32 {f0, f1}, [d1], {f2, f3};",
        "atom.global.add.noftz.v8.f16x2 {r0, r0, r0, r0, r0, r0, r0, r0}, [d1], {r1, r1, r1, r1, r1, r1, r1, r1};",
        "red.global.exch.b32 [d1], r2;",
        "red.acquire.gpu.global.add.u32 [d1], r2;",
        "atom.volatile.global.add.u32 r0, [d1], r2;",
        "atom.local.add.u32 r0, [d1], r2;",
        "atom.global.inc.s32 r0, [d1], r2;",
    ],
)
def test_forms_that_ptx_does_not_have(text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        open_device("emulator", arch="sm_90").load(line(text)).kernel()
    assert caught.value.location is not None


def test_newer_forms_need_their_target() -> None:
    old = open_device("emulator", arch="sm_80")
    for text in (
        "atom.global.add.noftz.bf16 h0, [d1], h2;",
        "atom.global.add.v2.f32 {f0, f1}, [d1], {f2, f3};",
    ):
        with pytest.raises(Unsupported, match="sm_90"):
            old.load(line(text)).kernel()
        new = open_device("emulator", arch="sm_90")
        with pytest.raises(PtxSyntaxError, match=r"is not in the module's \.target sm_80"):
            new.load(line(text)).kernel()
        new.load(line(text, "sm_90")).kernel()


def test_operands_are_counted() -> None:
    device = open_device("emulator", arch="sm_90")
    for text in (
        "atom.global.add.u32 r0, [d1], r2, r3;",
        "atom.global.cas.b32 r0, [d1], r2;",
        "atom.global.add.L2::cache_hint.u32 r0, [d1], r2;",
    ):
        with pytest.raises(PtxSyntaxError):
            device.load(line(text)).kernel()
    device.load(line("atom.global.add.L2::cache_hint.u32 r0, [d1], r2, d3;")).kernel()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("mov.u64 d1, mine; cvta.local.u64 d1, d1; atom.add.u32 r0, [d1], 1;", "local memory"),
        ("mov.u64 d1, 64; atom.shared.add.u32 r0, [d1], 1;", "outside shared memory"),
        ("mov.u64 d1, 64; atom.global.add.u32 r0, [d1], 1;", "atomic of 4 bytes at 0x40"),
    ],
)
def test_faults(text: str, what: str) -> None:
    module = open_device("emulator", arch="sm_90").load(line(text))
    with pytest.raises(LaunchError, match=what):
        module.kernel("k").launch(1, 32)
