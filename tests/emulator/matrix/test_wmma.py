"""wmma programs, load to store, against plain matrices; and every form of wmma.mma."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wmma import WMMA, WMMA_MOVES
from ptxlab.numbers.tensor_core import multiply_add
from tests.together import one_of_each

NUMPY: dict[str, Any] = {
    "f16": np.float16,
    "f32": np.float32,
    "tf32": np.float32,
    "f64": np.float64,
}
NUMPY |= {"s32": np.int32, "s8": np.int8, "u8": np.uint8}
BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "f64": 64,
    "s32": 32,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}
# PTX ISA, "Warp-level Matrix Fragment": registers of A, B and of C or D, by types and shape.
REGISTERS = {
    ("f16", "m16n16k16"): (8, 8), ("f16", "m8n32k16"): (8, 8), ("f16", "m32n8k16"): (8, 8),
    ("bf16", "m16n16k16"): (4, 4), ("bf16", "m8n32k16"): (2, 8), ("bf16", "m32n8k16"): (8, 2),
    ("s8", "m16n16k16"): (2, 2), ("s8", "m8n32k16"): (1, 4), ("s8", "m32n8k16"): (4, 1),
    ("tf32", "m16n16k8"): (4, 4), ("f64", "m8n8k4"): (1, 1),
    ("s4", "m8n8k32"): (1, 1), ("b1", "m8n8k128"): (1, 1),
}  # fmt: skip


def orders(form: MatrixInstruction) -> tuple[str, str]:
    names = form.name.split(".")
    at = names.index("aligned") + 1
    return names[at], names[at + 1]


def encode(values: Array, dtype: str) -> Array:
    """Return bit patterns of small integers."""
    if dtype == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype in ("s4", "u4"):
        return (values & 15).astype(np.uint8)
    if dtype == "b1":
        return (values & 1).astype(np.uint8)
    kind = np.dtype(NUMPY[dtype])
    return values.astype(kind).view(f"u{kind.itemsize}")


def lay_out(words: Array, order: str, stride: int, bits: int, size: int) -> Array:
    """Return ``size`` bytes of memory with the matrix in it, ``stride`` elements a line."""
    lines = words if order == "row" else words.T
    memory = np.zeros(8 * size, np.uint8)
    along, bit = np.arange(lines.shape[1])[:, None], np.arange(bits)
    for i, line in enumerate(lines.astype(np.uint64)):
        memory[(i * stride + along) * bits + bit] = line[:, None] >> bit.astype(np.uint64) & 1
    return np.packbits(memory, bitorder="little")


def read_back(memory: Array, order: str, stride: int, dtype: str, m: int, n: int) -> Array:
    kind = np.dtype(NUMPY[dtype])
    flat = memory.view(kind)
    lines, along = (m, n) if order == "row" else (n, m)
    table = np.array([flat[i * stride : i * stride + along] for i in range(lines)])
    return table if order == "row" else table.T


SIZE = 8192


def text(form: MatrixInstruction, space: str, strides: tuple[int, ...], cd: tuple[str, str]) -> str:
    """Write a kernel of two warps that loads A, B and C, multiplies, and stores D."""
    counts = {o: form.operand(o).registers_per_lane for o in "ABCD"}
    names = {
        o: "{" + ", ".join(f"{o.lower()}{i}" for i in range(count)) + "}"
        for o, count in counts.items()
    }
    kinds = {"f32": "f32", "f64": "f64", "s32": "s32"}
    types = {"A": form.a_type, "B": form.b_type, "C": form.c_type, "D": form.d_type}
    declare = "\n".join(
        f".reg .{kinds.get(types[o], 'b32')} {o.lower()}<{count}>;" for o, count in counts.items()
    )
    a_order, b_order = orders(form)
    layouts = {"A": a_order, "B": b_order, "C": cd[0], "D": cd[1]}
    moves = []
    for i, o in enumerate("ABCD"):
        verb = "store" if o == "D" else "load"
        name = f"wmma.{verb}.{o.lower()}.sync.aligned.{layouts[o]}.{form.shape}{space}.{types[o]}"
        address = f"[q{i}]"
        stride = f", {strides[i]}" if strides[i] else ""
        pair = f"{address}, {names[o]}" if o == "D" else f"{names[o]}, {address}"
        moves.append(f"{name} {pair}{stride};")
    multiply = f"{form.name} {names['D']}, {names['A']}, {names['B']}, {names['C']};"
    in_shared = space.startswith(".shared")
    copy_in = copy_out = ""
    base = "mov.u64 x5, x4;"
    if in_shared:
        base = "mov.u64 x5, s; mad.wide.u32 x5, r1, 32768, x5;"
        copy_in = COPY.format(label="in", load="global", store="shared", source="x4", to="x5")
        copy_out = COPY.format(label="out", load="shared", store="global", source="x5", to="x4")
    return f"""
.version 9.1
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 data)
{{
.shared .align 128 .b8 s[65536];
.reg .b32 r<10>; .reg .b64 x<10>; .reg .b64 q<4>; .reg .pred p<2>;
{declare}
mov.u32 r0, %tid.x;
shr.u32 r1, r0, 5;
and.b32 r2, r0, 31;
ld.param.u64 x3, [data];
mad.wide.u32 x4, r1, 32768, x3;
{base}
{copy_in}
add.u64 q0, x5, 0;
add.u64 q1, x5, 8192;
add.u64 q2, x5, 16384;
add.u64 q3, x5, 24576;
{moves[0]}
{moves[1]}
{moves[2]}
{multiply}
{moves[3]}
{copy_out}
}}
"""


COPY = """
mov.u32 r3, r2;
{label}:
mad.wide.u32 x6, r3, 16, {source};
mad.wide.u32 x7, r3, 16, {to};
ld.{load}.v4.u32 {{r4, r5, r6, r7}}, [x6];
st.{store}.v4.u32 [x7], {{r4, r5, r6, r7}};
add.u32 r3, r3, 32;
setp.lt.u32 p0, r3, 2048;
@p0 bra {label};
bar.sync 0;
"""


def run(devices: Any, form: MatrixInstruction, space: str, extra: int, cd: tuple[str, str]) -> None:
    """Run small integers through the form, with ``extra`` elements (0: no stride) between lines."""
    random = np.random.default_rng(len(form.name))
    m, n, k = form.m, form.n, form.k
    low, high = {"u8": (0, 9), "u4": (0, 9), "b1": (0, 2)}.get(form.a_type, (-4, 5))
    order = dict(zip("ABCD", (*orders(form), *cd), strict=True))
    sizes = {"A": (m, k), "B": (k, n), "C": (m, n), "D": (m, n)}
    types = {"A": form.a_type, "B": form.b_type, "C": form.c_type, "D": form.d_type}
    compact = {o: sizes[o][1] if order[o] == "row" else sizes[o][0] for o in "ABCD"}
    stride = {o: compact[o] + extra * 128 // BITS.get(types[o], 8) for o in "ABCD"}
    memory, products = [], []
    for _ in range(2):
        a, b = (random.integers(low, high, sizes[o]) for o in "AB")
        c = random.integers(-9, 9, (m, n))
        for o, values in zip("ABC", (a, b, c), strict=True):
            bits = BITS.get(types[o], 8)
            memory.append(lay_out(encode(values, types[o]), order[o], stride[o], bits, SIZE))
        memory.append(np.full(SIZE, 0xEE, np.uint8))
        joined = a[:, :, None] ^ b[None] if form.bit_operation == "xor" else a[:, :, None] * b[None]
        products.append(joined.sum(axis=1) + c)
    device = devices("sm_90a")
    strides = tuple(stride[o] if extra else 0 for o in "ABCD")
    kernel = device.load(text(form, space, strides, cd)).kernel("k")
    with device.upload(np.concatenate(memory)) as data:
        kernel.launch(1, 64, [data])
        after = data.numpy().reshape(2, 4, SIZE)
    for warp in range(2):
        actual = read_back(after[warp, 3], order["D"], stride["D"], form.d_type, m, n)
        assert (actual == products[warp]).all()
        untouched = SIZE - m * n * BITS[form.d_type] // 8
        assert (after[warp, 3] == 0xEE).sum() >= untouched * 0.9


# Those of each layout of each type always run, of each type of C and D, and what is clamped and rounded.
@pytest.mark.parametrize(
    "form",
    one_of_each(
        WMMA,
        lambda form: (form.a_type, form.shape, orders(form)),
        lambda form: (form.a_type, form.c_type, form.d_type, form.satfinite, form.rounding),
    ),
)
def test_every_form_from_memory_to_memory(devices: Any, form: MatrixInstruction) -> None:
    run(devices, form, ".global", 0, ("row", "row"))


REPRESENTATIVES = [
    form for form in WMMA
    if not form.satfinite and form.rounding == "rn" and (form.a_type != "f16" or form.shape == "m8n32k16")
][::3]  # fmt: skip


WAYS = [
    (space, cd)
    for space in (".shared", ".shared::cta", ".global", "")
    for cd in (("row", "col"), ("col", "row"))
]


# One form always runs in every way, and every form in one of them.
@pytest.mark.parametrize(
    ("form", "space", "cd"),
    one_of_each(
        [
            (form, *WAYS[(number + turn) % len(WAYS)])
            for turn in range(len(WAYS))
            for number, form in enumerate(REPRESENTATIVES)
        ],
        itemgetter(0),
        itemgetter(1, 2),
    ),
)
def test_spaces_strides_and_orders(
    devices: Any, form: MatrixInstruction, space: str, cd: tuple[str, str]
) -> None:
    run(devices, form, space, 1, cd)


def test_registers_are_as_many_as_the_isa_says() -> None:
    for form in WMMA:
        dtype = {"u8": "s8", "u4": "s4"}.get(form.a_type, form.a_type)
        counts = tuple(form.operand(o).registers_per_lane for o in "AB")
        assert counts == REGISTERS[dtype, form.shape], form.name
        for operand, dtype in (("C", form.c_type), ("D", form.d_type)):
            wanted = 8 if form.m * form.n == 256 else 2
            wanted //= 2 if dtype == "f16" else 1
            assert form.operand(operand).registers_per_lane == wanted


@pytest.mark.parametrize("form", [f for f in WMMA if f.a_type in ("f16", "tf32")][::5])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_random_bits_have_the_targets_arithmetic(
    execute: Any, form: MatrixInstruction, arch: str
) -> None:
    """Registers packed by the layouts, since PTX names none; k in steps as the chip's."""
    random = np.random.default_rng(4)
    layouts = [form.operand(o) for o in "ABC"]
    a, b, c = (
        random.integers(0, 1 << o.bits, (2, o.rows, o.cols), dtype=np.uint64).astype(f"u{o.bits // 8}")
        for o in layouts
    )  # fmt: skip
    packed = [layout.pack(x) for layout, x in zip(layouts, (a, b, c), strict=True)]
    actual = form.operand("D").unpack(execute(form, *packed, arch=arch))
    x, y, z = (np.ascontiguousarray(np.moveaxis(v, 0, -1)) for v in (a, b, c))
    rules = TARGETS[arch].dot16
    with np.errstate(all="ignore"):
        if form.a_type == "tf32":  # two steps of four products, on Hopper too
            z = multiply_add(x[:, :4], y[:4], z, dtype="tf32", acc="f32", rules=rules)
            d = multiply_add(x[:, 4:], y[4:], z, dtype="tf32", acc="f32", rules=rules)
        else:
            inner = form.c_type if form.c_type == form.d_type else "f32"
            if form.c_type == "f16" and inner == "f32":
                z = z.view(np.float16).astype(np.float32).view(np.uint32)
            d = multiply_add(x, y, z, dtype="f16", acc=inner, rules=rules)
            if form.d_type == "f16" and inner == "f32":
                d = d.view(np.float32).astype(np.float16).view(np.uint16)
    d = np.moveaxis(d, -1, 0)
    nan = {16: 0x7C00, 32: 0x7F800000}[form.operand("D").bits]
    finite = (d & nan) != nan
    assert (actual[finite] == d[finite]).all()
    assert ((actual[~finite] & nan) == nan).all()


def test_elementwise_work_on_a_fragment_reaches_every_element(devices: Any) -> None:
    """All copies of an element change alike, so a negated A gives a negated product."""
    form = multiplication("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    plain = text(form, ".global", (0, 0, 0, 0), ("row", "row"))
    negate = "\n".join(f"xor.b32 a{i}, a{i}, 0x80008000;" for i in range(8))
    negated = plain.replace("wmma.load.b", negate + "\nwmma.load.b")
    ones = lay_out(encode(np.ones((16, 16), int), "f16"), "row", 16, 16, SIZE)
    data = np.concatenate([ones, ones, np.zeros(2 * SIZE, np.uint8)] * 2)
    device = devices("sm_80")
    text_80 = negated.replace("sm_90a", "sm_80")
    with device.upload(data) as memory:
        device.load(text_80).kernel("k").launch(1, 64, [memory])
        after = memory.numpy().reshape(2, 4, SIZE)
    assert (read_back(after[1, 3], "row", 16, "f32", 16, 16) == -16).all()


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (("add.u64 q0, x5, 0;", "add.u64 q0, x5, 8;"), "row does not start at a multiple of 16"),
        (("add.u64 q0, x5, 0;", "cvt.u64.u32 q0, r2; mad.lo.u64 q0, q0, 32, x5;"), "address differs"),
        (("f16 {a0", "f16 {a0"), None),
    ],
)  # fmt: skip
def test_addresses_are_uniform_and_aligned(
    devices: Any, edit: tuple[str, str], match: str | None
) -> None:
    form = multiplication("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    program = text(form, ".global", (16, 16, 16, 16), ("row", "row"))
    assert edit[0] in program
    kernel = devices("sm_90a").load(program.replace(*edit)).kernel("k")
    with devices("sm_90a").zeros((2, 4, SIZE), "u8") as data:
        if match is None:
            kernel.launch(1, 64, [data])
            return
        with pytest.raises(LaunchError, match=match):
            kernel.launch(1, 64, [data])


def test_a_stride_that_breaks_alignment_is_an_error(devices: Any) -> None:
    form = multiplication("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    program = text(form, ".global", (20, 16, 16, 16), ("row", "row"))
    with (
        devices("sm_90a").zeros((2, 4, SIZE), "u8") as data,
        pytest.raises(LaunchError, match="multiple of 16"),
    ):
        devices("sm_90a").load(program).kernel("k").launch(1, 64, [data])


def test_nonsense_that_an_old_assembler_took_is_refused(devices: Any, program: Any) -> None:
    """wmma.mma of s4 in shape m16n16k16: accepted up to ptxas 13.0, and no such instruction."""
    form = multiplication("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32")
    body = program(form).kernel("sm_80").replace("s32.s8.s8.s32", "s32.s4.s4.s32")
    with pytest.raises(PtxSyntaxError, match=r"ptxas takes no .*s4\.s4"):
        devices("sm_80").load(body).kernel()


def test_targets_without_a_type_refuse_its_loads_too(devices: Any) -> None:
    form = multiplication("wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32")
    program = text(form, ".global", (0, 0, 0, 0), ("row", "row")).replace("sm_90a", "sm_75")
    with pytest.raises(Unsupported, match=r"wmma.load.a.*on sm_75") as caught:
        devices("sm_75").load(program).kernel()
    assert "sm_80" in (caught.value.hint or "")


def test_there_is_a_move_for_every_operand() -> None:
    names = {move.name for move in WMMA_MOVES}
    for form in WMMA:
        a_order, b_order = orders(form)
        for operand, order, dtype in (("a", a_order, form.a_type), ("b", b_order, form.b_type)):
            assert f"wmma.load.{operand}.sync.aligned.{order}.{form.shape}.shared.{dtype}" in names
