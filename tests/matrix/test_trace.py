"""The dot product in registers: evaluated on random registers, it is what the emulator computes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.fragments.probe_kernel import programs
from ptxlab.isa.targets import WARP
from ptxlab.matrix.catalog import matching, multiplication
from ptxlab.matrix.fragment import FragmentLayout, Place, slots
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.trace import Whereabouts, trace
from tests.together import in_one_test

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def instruction(name: str) -> MatrixInstruction:
    form = matching(name)[0]
    assert isinstance(form, MatrixInstruction)
    return form


FORMS = [
    multiplication("m16n8k16", "bf16"),
    multiplication("m8n8k4", "f16", "f32"),
    multiplication("m16n8k64", "s4"),
    multiplication("m16n8k4", "tf32"),
    multiplication("m16n8k8", "f64"),
    multiplication("m16n16k16", "f16", "f32"),
    instruction("mma.sp.m16n8k32.f32.f16"),
    instruction("mma.sp.m16n8k16.tf32"),
    instruction("mma.sp.m16n8k64.s4"),
    instruction("mma.sp.m16n8k64.s8"),
    instruction("mma.m16n8k32.mxf8f6f4.scale_vec::1X.e4m3.e4m3"),
    instruction("mma.m16n8k64.mxf4nvf4.scale_vec::4X.ue8m0"),
    instruction("mma.sp::ordered_metadata.m16n8k128.mxf4nvf4.scale_vec::4X.ue8m0"),
]


def value(layout: FragmentLayout, word: int, element: int) -> float:
    """Read the element's slot of a register."""
    slot = slots(layout)[element]
    bits = word >> slot.data_low & ((1 << slot.data_bits) - 1)
    match layout.dtype:
        case "s32" | "s8" | "s4":
            return float(bits - (1 << slot.bits) * (bits >> (slot.bits - 1)))
        case "e2m1":
            return E2M1[bits & 7] * (-1.0 if bits >> 3 else 1.0)
        case "tf32":
            return float(np.uint32(bits << 13).view(np.float32))
        case "e4m3":
            return float(np.uint8(bits).view(ml_dtypes.float8_e4m3fn))
        case "bf16":
            return float(np.uint16(bits).view(ml_dtypes.bfloat16))
        case "f16" | "f32" | "f64":
            size = layout.bits // 8
            return float(np.array([bits], f"u{size}").view(f"f{size}")[0])
    raise KeyError(layout.dtype)


def small(layout: FragmentLayout, rng: np.random.Generator) -> Array:
    """Return registers [32, registers] of numbers whose products and sums are exact."""
    several = (layout.matrices,) if layout.matrices > 1 else ()
    size = (*several, layout.rows, layout.cols)
    numbers = rng.integers(-4, 5, size)
    match layout.dtype:
        case "s32" | "s8" | "s4":
            bits = numbers & ((1 << layout.bits) - 1)
        case "e2m1":
            bits = rng.integers(0, 16, size)
        case "e4m3":
            bits = numbers.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        case "bf16":
            bits = numbers.astype(ml_dtypes.bfloat16).view(np.uint16)
        case "f16" | "f32" | "tf32" | "f64":
            bits = numbers.astype(f"f{layout.bits // 8}").view(f"u{layout.bits // 8}")
    return layout.pack(bits.astype(np.uint64))


def metadata(form: MatrixInstruction, rng: np.random.Generator) -> Array:
    """Return random metadata that is allowed, in every lane."""
    assert form.metadata is not None
    choices = np.array(form.metadata.allowed, np.uint64)
    nibbles = choices[rng.integers(0, len(choices), (WARP, 8))]
    shifts = 4 * np.arange(8, dtype=np.uint64)
    return np.asarray(np.bitwise_or.reduce(nibbles << shifts, axis=1))


def run(form: MatrixInstruction, arch: str, held: dict[str, Array]) -> Array:
    """Return D's registers."""
    (entry, *_) = matching(form.name)
    sources = [operand for operand in form.signature if operand.role == "source"]
    record = np.concatenate(
        [held[operand.name].reshape(WARP, -1).astype(np.uint64) for operand in sources], axis=1
    )
    layout = form.operand("D")
    with open_device("emulator", arch=arch) as device:
        kernel = device.load(programs([entry], arch)).kernel()
        shape = (WARP, layout.registers_per_lane)
        with device.upload(record) as given, device.zeros(shape, "u64") as out:
            kernel.launch(1, WARP, [given, out])
            return out.numpy()


@in_one_test("form", FORMS)
def test_the_registers_of_a_trace_make_the_element(form: MatrixInstruction) -> None:
    rng = np.random.default_rng(3)
    arch = form.targets[-1]
    held = {name.lower(): small(form.operand(name), rng) for name in "ABC"}
    if form.metadata:
        held["e"] = metadata(form, rng)
    for scale in form.scales:
        held[f"scale-{scale.operand.lower()}-data"] = rng.integers(
            0x7E7E7E7E, 0x7E7E7E80, WARP
        ) + 0x100 * rng.integers(0, 2, WARP)
    out = run(form, arch, held)

    def read(operand: str, places: tuple[Whereabouts, ...], words: Array) -> float:
        (number,) = {
            value(form.operand(operand), int(words[p.lane, p.register]), p.element)
            for p in places
            if isinstance(p, Place)
        }
        return number

    for row, col in rng.integers(0, (form.m, form.n), (12, 2)).tolist():
        for element in trace(form, row, col):
            total = read("C", element.c, held["c"])
            for term in element.terms:
                b = term.b[0]
                if term.metadata is not None:
                    lane, low, bits = term.metadata
                    chosen = int(held["e"][lane]) >> low & ((1 << bits) - 1)
                    b = term.b[chosen if bits == 2 else (0b0100, 0b1110).index(chosen)]
                product = read("A", term.a, held["a"]) * read("B", b, held["b"])
                for name, (lane, byte) in zip("ab", term.scales, strict=False):
                    exponent = int(held[f"scale-{name}-data"][lane]) >> 8 * byte & 0xFF
                    product *= 2.0 ** (exponent - 127)
                total += product
            assert read("D", element.d, out) == total


def test_the_trace_of_m16n8k16_is_the_one_of_the_isa() -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16": row 11 is in groups' second half, k 9 in a2, a3."""
    (element,) = trace(multiplication("m16n8k16"), 11, 5)
    assert element.d == element.c == (Place(4 * 3 + 2, 3, 0 + 0),)
    term = element.terms[9]
    assert (term.a_col, term.b_rows) == (9, (9,))
    assert term.a == (Place(4 * 3 + 0, 3, 1),)
    assert term.b == ((Place(4 * 5 + 0, 1, 1),),)
    with pytest.raises(IndexError, match="no element 16,0"):
        trace(multiplication("m16n8k16"), 16, 0)
