"""Matrix products as machine code have the bits of the array arithmetic, for any bits that go in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.emulator.fragments import from_registers, to_registers
from ptxlab.emulator.native.heat import Heat
from ptxlab.emulator.operations import matrix_native
from ptxlab.emulator.operations.matrix import Factors, arithmetic
from ptxlab.errors import LaunchError
from ptxlab.isa.targets import TARGETS, WARP, Target
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.native.compiler import available, compile
from ptxlab.native.cores import HEADER, Function
from ptxlab.native.tensor_core.products import mma
from ptxlab.native.tensor_core.steps import steps
from ptxlab.numbers.formats import CONTAINED, FORMATS

pytestmark = pytest.mark.skipif(not available(), reason="needs llvmlite")


WARPS = 24
NVF4 = "kind::mxf4nvf4.block_scale.scale_vec::4X"
SPARSE = "mma.sp::ordered_metadata.sync.aligned"
THOROUGH = pytest.mark.thorough
# One of each way to add up, of what A is (dense, sparse, scaled, both), of C and D, and of a fragment that has
# copies always runs; the others are the same steps of other types, or of both of two ways that run alone.
CHOSEN = [
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90a"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "sm_75"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_100a"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"),
    pytest.param("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32", "sm_90a", marks=THOROUGH),
    ("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e5m2.f16", "sm_90a"),
    ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f16.e2m1.e3m2.f16", "sm_120a"),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", "sm_80"),
    ("mma.sync.aligned.m8n8k32.row.col.s32.s4.u4.s32", "sm_75"),
    ("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc", "sm_80"),
    ("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", "sm_90"),
    ("wmma.mma.sync.aligned.row.col.m32n8k16.f32.bf16.bf16.f32", "sm_80"),
    ("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", "sm_90a"),
    ("mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"),
    pytest.param(f"{SPARSE}.m16n8k64.row.col.f32.e5m2.e4m3.f32", "sm_89", marks=THOROUGH),
    ("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_90a"),
    pytest.param(
        "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.u8.s8.s32", "sm_80", marks=THOROUGH
    ),
    ("mma.sp.sync.aligned.m16n8k128.row.col.s32.s4.u4.s32", "sm_80"),
    ("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0", "sm_120a"),
    ("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0", "sm_120a"),
    pytest.param(
        f"mma.sync.aligned.m16n8k64.row.col.{NVF4}.f32.e2m1.e2m1.f32.ue4m3", "sm_120a", marks=THOROUGH
    ),
    pytest.param(
        f"{SPARSE}.m16n8k64.row.col.kind::mxf8f6f4.block_scale.f32.e5m2.e3m2.f32.ue8m0", "sm_120a",
        marks=THOROUGH,
    ),
    (f"{SPARSE}.m16n8k128.row.col.{NVF4}.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"),
]  # fmt: skip
BOTH_ENDS = {
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m1.f32.ue8m0",
}
"""Whose first selector or ids are tried as well as the last: each is a function of its own to compile."""


def word(layout: FragmentLayout) -> np.dtype[Any]:
    return np.dtype(f"u{layout.register_bits // 8}")


def any_bits(layout: FragmentLayout, random: np.random.Generator) -> Array:
    count = WARPS * WARP * word(layout).itemsize
    return np.frombuffer(random.bytes(count), word(layout)).copy()


def edges(layout: FragmentLayout, random: np.random.Generator) -> Array:
    """Return zeros, the least and the largest numbers, infinities, NaNs, and what is next to them."""
    form = CONTAINED.get(layout.dtype)
    if form is None or layout.bits < 8:
        return any_bits(layout, random) | any_bits(layout, random)
    codes = {0, 1, 2, form.nan, form.largest, form.infinity or 0, form.bias << form.fraction_bits}
    codes |= {(1 << form.fraction_bits) + step for step in (-1, 0, 1)}
    signed = [code | sign << form.sign_bit for code in sorted(codes) for sign in (0, 1)]
    return elements(
        layout, random.choice(np.array(signed, np.uint64) << form.low_bit, size(layout))
    )


def near_one(layout: FragmentLayout, random: np.random.Generator) -> Array:
    """Return numbers of few exponents, so that every bit of a sum counts, and few others."""
    form = CONTAINED.get(layout.dtype)
    if form is None or layout.bits < 8:
        return any_bits(layout, random) & any_bits(layout, random)
    spread = min(3, form.exponent_bits - 1)
    exponent = form.bias - 1 + random.integers(0, spread, size(layout))
    code = exponent << form.fraction_bits | random.integers(
        0, 1 << form.fraction_bits, size(layout)
    )
    code |= random.integers(0, 2, size(layout)) << form.sign_bit
    code[random.random(size(layout)) < 1 / 50] = 0
    return elements(layout, code.astype(np.uint64) << np.uint64(form.low_bit))


def small(layout: FragmentLayout, random: np.random.Generator) -> Array:
    """Return a few of the least numbers: sums near the middle of two; and a C of zeros to begin with."""
    form = CONTAINED.get(layout.dtype)
    if form is None or layout.bits < 8:
        return any_bits(layout, random)
    choices = np.array([1, 2, 3, 2 << form.fraction_bits, 3 << form.fraction_bits], np.uint64)
    code = random.choice(choices, size(layout))
    code[random.random(size(layout)) < 3 / 4] = 0
    if layout.operand == "C":
        code[: size(layout) // 2] = 0
    code |= random.integers(0, 2, size(layout), np.uint64) << np.uint64(form.sign_bit)
    return elements(layout, code << np.uint64(form.low_bit))


def powers(layout: FragmentLayout, random: np.random.Generator) -> Array:
    """Return zeros and few powers of two: sums in the middle of two float16, and just above it."""
    form = CONTAINED.get(layout.dtype)
    if form is None or layout.bits < 8 or layout.operand == "C":
        return small(layout, random)
    exponents = np.array([0, 0, -5, -6, -12])
    codes = np.maximum(form.bias + exponents, 1).astype(np.uint64) << np.uint64(form.fraction_bits)
    code = random.choice(codes, size(layout))
    code[random.random(size(layout)) < 1 / 2] = 0
    return elements(layout, code << np.uint64(form.low_bit))


def cancelling(layout: FragmentLayout, random: np.random.Generator) -> Array:
    """Return an A of 1 and -1 in turn, and a B of ones in half of the columns: their scales cut off a C of all sizes."""
    count = WARPS * WARP
    if layout.operand == "A":
        return np.full(count, 0xA2A2A2A2, np.uint32)
    if layout.operand == "B":
        return np.where(np.arange(count) % 8 < 4, 0x22222222, 0x20202020).astype(np.uint32)
    return any_bits(layout, random)


def size(layout: FragmentLayout) -> int:
    return WARPS * WARP * layout.elements_per_register


def elements(layout: FragmentLayout, words: Array) -> Array:
    return words.astype(f"u{layout.bits // 8}").view(word(layout))


@dataclass(frozen=True, slots=True)
class Sides:
    """What there is besides A, B and C: the registers of metadata and scales, and which part of them counts."""

    selector: int
    ids: tuple[tuple[int, int], ...]
    metadata: Array | None
    scales: tuple[Array, ...]

    @classmethod
    def of(
        cls, form: MatrixInstruction, random: np.random.Generator, *, end: int, near: bool
    ) -> Sides:
        """Return some of a form, with scales ``near`` one if numbers are, in the parts at an ``end``: 0 or -1."""
        selector, metadata = 0, None
        if form.metadata:
            selector = form.metadata.selectors[end]
            chosen = random.choice(form.metadata.allowed, (WARPS, 16, form.metadata.chunks))
            metadata = any_bits(form.operand("B"), random)[: WARPS * WARP].view(np.uint32)
            mask = form.metadata.encode(np.full_like(chosen, 15), selector)
            metadata = metadata & ~mask.ravel() | form.metadata.encode(chosen, selector).ravel()
        # B's are at the other end, so that neither is taken for the other's.
        ids = tuple(
            (scale.byte_ids[at], scale.thread_ids[at])
            for scale, at in zip(form.scales, (end, ~end), strict=False)
        )
        scales = []
        for scale in form.scales:
            codes = random.integers(0, 256, (WARPS * WARP, 4), np.uint8)
            if near:
                bias = FORMATS[scale.dtype].bias << FORMATS[scale.dtype].fraction_bits
                codes = (bias + codes % 23 - 11).astype(np.uint8)
                codes[random.random(codes.shape) < 1 / 200] = random.choice([0, 127, 255])
            scales.append(codes.view(np.uint32).ravel())
        return cls(selector, ids, metadata, tuple(scales))

    @property
    def registers(self) -> list[Array]:
        return [*([] if self.metadata is None else [self.metadata]), *self.scales]

    def places(self, form: MatrixInstruction) -> Array | None:
        if form.metadata is None or self.metadata is None:
            return None
        values = form.metadata.decode(self.metadata.reshape(WARPS, WARP), self.selector)
        return np.moveaxis(form.metadata.columns(values), 0, -1)

    def factors(self, form: MatrixInstruction) -> tuple[Array, ...]:
        factors = []
        for scale, words, ids in zip(form.scales, self.scales, self.ids, strict=True):
            codes = scale.unpack(words.reshape(WARPS, WARP), *ids)
            factors.append(codes.transpose(1, 2, 0) if scale.operand == "A" else codes.T)
        return tuple(factors)


def by_arrays(
    form: MatrixInstruction, target: Target, registers: list[Array], sides: Sides
) -> list[Array]:
    left = iter(registers)
    matrices = []
    for layout in (form.operand(name) for name in "ABC"):
        words = [next(left).reshape(WARPS, WARP) for _ in range(layout.registers_per_lane)]
        matrices.append(from_registers(layout, words))
    a, b, c = matrices
    d = arithmetic(form, target)(Factors(a, b, c, sides.places(form), sides.factors(form)))
    return [words.reshape(-1) for words in to_registers(form.operand("D"), d)]


written = cache(mma)


def by_machine_code(
    form: MatrixInstruction, target: Target, registers: list[Array], sides: Sides
) -> list[Array]:
    function = written(form, target, sides.selector, sum(sides.ids, ()))
    assert function is not None
    layout = form.operand("D")
    made = [np.empty(WARPS * WARP, word(layout)) for _ in range(layout.registers_per_lane)]
    words = [*[0] * HEADER, 0, *map(id, registers + sides.registers + made)]
    task = (ctypes.c_size_t * len(words))(*words)
    run = compile(function.text, function.name, Function)
    assert run(ctypes.addressof(task), 0, WARPS) == 0
    return made


def compare(form: MatrixInstruction, target: Target, ends: tuple[int, ...] = (0, -1)) -> None:
    random = np.random.default_rng(17)
    grouped = bool(form.scales) and form.operand("A").bits == 4
    kinds = (any_bits, edges, near_one, small, powers, *[cancelling] * grouped)
    for number, kind in enumerate(kinds):
        # The registers of a fragment and its copies hold the same.
        registers = []
        for layout in (form.operand(name) for name in "ABC"):
            distinct = layout.registers_per_lane // layout.copies
            registers += [kind(layout, random) for _ in range(distinct)] * layout.copies
        near = kind in (near_one, powers, cancelling)
        sides = Sides.of(form, random, end=ends[number % len(ends)], near=near)
        actual = by_machine_code(form, target, registers, sides)
        wanted = by_arrays(form, target, registers, sides)
        for i, (register, other) in enumerate(zip(actual, wanted, strict=True)):
            np.testing.assert_array_equal(
                register, other, f"{form.name}, {kind.__name__}, register {i}"
            )


@pytest.mark.parametrize(("name", "arch"), CHOSEN)
def test_has_the_bits_of_arrays(name: str, arch: str) -> None:
    compare(multiplication(name), TARGETS[arch], (0, -1) if name in BOTH_ENDS else (-1,))


@pytest.mark.thorough
@pytest.mark.parametrize("form", MULTIPLICATIONS)
def test_every_form_has_the_bits_of_arrays(form: MatrixInstruction) -> None:
    """On every target where its arithmetic is another."""
    targets = {steps(form, TARGETS[name]): TARGETS[name] for name in form.targets}
    for target in targets.values():
        if mma(form, target) is not None:
            compare(form, target)


# ---- in a program -----------------------------------------------------------------------------

PROGRAM = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
.reg .b32 a<4>, b<2>, t<4>; .reg .f32 d<4>; .reg .b64 rd, rq; .reg .pred p;
mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mov.u32 t2, %ntid.x;
mad.lo.u32 t0, t1, t2, t0;
ld.param.u64 rd, [in]; ld.param.u64 rq, [out];
mad.wide.u32 rd, t0, 24, rd;
mad.wide.u32 rq, t0, 16, rq;
ld.global.v2.b32 {a0, a1}, [rd]; ld.global.v2.b32 {a2, a3}, [rd+8]; ld.global.v2.b32 {b0, b1}, [rd+16];
mov.f32 d0, 0f3F800000; mov.f32 d1, 0f40000000; cvt.rn.f32.u32 d2, t0; mov.f32 d3, d2;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1},
    {d0, d1, d2, d3};
and.b32 t3, t0, 32; setp.eq.u32 p, t3, 0;
@p mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1},
    {d0, d1, d2, d3};
setp.lt.u32 p, t0, 160;
@!p bra DONE;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {_, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1},
    {0f3F800000, 0f3F800000, d2, d3};
DONE:
st.global.v4.f32 [rq], {d0, d1, d2, d3};
}
"""


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Array]:
    """Run the program with an engine."""

    def run(engine: str) -> Array:
        monkeypatch.setenv("PTXLAB_ENGINE", engine)
        monkeypatch.setattr(matrix_native, "PROCESS", Heat())  # whatever other tests made hot
        matrix_native.native_product.cache_clear()
        device = open_device("emulator", arch="sm_80")
        kernel = device.load(f"{PROGRAM}// {engine}").kernel("k")  # a text for each: none is known
        numbers = np.random.default_rng(3).standard_normal((256, 12)).astype(np.float16)
        with device.upload(numbers) as source, device.zeros((256, 4), "f32") as out:
            kernel.launch(2, 128, [source, out])
            return out.numpy()

    return run


def test_some_of_the_warps_and_what_all_threads_share(launched: Callable[[str], Array]) -> None:
    form = multiplication("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    outputs = {}
    for engine in ("array", "native", "auto"):
        outputs[engine] = launched(engine).view(np.uint32)
        product = matrix_native.native_product("mma", form, TARGETS["sm_80"], 0, ())
        assert product is not None
        assert (product.function is not None) == (engine == "native")
    np.testing.assert_array_equal(outputs["native"], outputs["array"])
    np.testing.assert_array_equal(outputs["auto"], outputs["array"])


SPARSE_LOOP = """
.version 7.1
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
.reg .b32 a<4>, b<4>, t<5>, e; .reg .f32 d<4>; .reg .b64 rd, rq; .reg .pred p;
mov.u32 t0, %tid.x; ld.param.u64 rd, [in]; ld.param.u64 rq, [out];
mad.wide.u32 rd, t0, 32, rd; mad.wide.u32 rq, t0, 16, rq;
ld.global.v4.b32 {a0, a1, a2, a3}, [rd]; ld.global.v4.b32 {b0, b1, b2, b3}, [rd+16];
mov.f32 d0, 0f3F800000; mov.f32 d1, d0; mov.f32 d2, d0; mov.f32 d3, d0; mov.u32 t1, 0; mov.u32 e, 0x44444444;
AGAIN:
mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1, b2, b3},
    {d0, d1, d2, d3}, e, 1;
st.global.v4.f32 [rq], {d0, d1, d2, d3};
add.u32 t1, t1, 1; LATER
setp.lt.u32 p, t1, 40;
@p bra AGAIN;
}
"""
SAME = "xor.b32 e, e, 0xCCCCCCCC;"
UNDEFINED = """
setp.eq.u32 p, t1, 30; and.b32 t2, t0, 32; setp.ne.and.u32 p, t2, 0, p; @p mov.u32 e, 0x44440444;"""


@pytest.mark.parametrize(
    ("later", "message"), [(SAME, ""), (UNDEFINED, "metadata 0b0000 of chunk")]
)
def test_metadata_in_a_loop(monkeypatch: pytest.MonkeyPatch, later: str, message: str) -> None:
    """It changes from turn to turn; where it becomes undefined that is told, and nothing has been computed."""
    numbers = np.random.default_rng(3).standard_normal((128, 16)).astype(np.float16)
    endings = []
    for engine in ("array", "native"):
        monkeypatch.setenv("PTXLAB_ENGINE", engine)
        device, told = open_device("emulator", arch="sm_80"), ""
        kernel = device.load(SPARSE_LOOP.replace("LATER", later)).kernel("k")
        with device.upload(numbers) as source, device.zeros((128, 4), "f32") as out:
            try:
                kernel.launch(1, 128, [source, out])
            except LaunchError as error:
                told = str(error)
            endings.append((told, out.numpy().tobytes()))
    assert endings[0] == endings[1]
    assert message in endings[0][0]
    assert bool(message) == bool(endings[0][0])
