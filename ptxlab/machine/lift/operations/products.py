"""Products of a warp's tensor cores: which instruction of PTX one is, its name and the tables of ``matrix`` say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from ptxlab.machine.lift.rule import Rule, rules
from ptxlab.machine.lift.writer import Writer, is_zero
from ptxlab.machine.operands import Immediate, Operand
from ptxlab.matrix.form import Form, SignatureOperand
from ptxlab.matrix.naming import named

_SHAPE = re.compile(r"(?P<m>16|8)x?8x?(?P<k>\d+)$")
_TYPES = {
    name.upper(): name
    for name in (
        "f16", "bf16", "tf32", "f32", "s8", "u8", "s4", "u4", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1",
    )
}  # fmt: skip
_SCALES = {"E8": "ue8m0", "UE4M3": "ue4m3"}
_VECTORS = {"1X": ".scale_vec::1X", "2X": ".scale_vec::2X", "4X": ".scale_vec::4X"}
_SPARSE = ("mma.sp::ordered_metadata", "mma.sp")
_KINDS = ("", ".kind::f8f6f4")
_CHOSEN = ((0, 1, 2), (3, 5, 3))
"""Of the scales of A and of B: where the byte is chosen, and the lane of four, with the bits of a lane that are: A's
lanes are pairs, so that the bit stands one below."""
_SCALED_KINDS = (".kind::mxf8f6f4", ".kind::mxf4", ".kind::mxf4nvf4")


def factors_and_sums(w: Writer, factors: str) -> tuple[str, str, str]:
    """Return the types of the sums and of both factors."""
    m = w.modifiers
    named_types = [_TYPES[name] for name in m.names if name in _TYPES]
    m.ignore(*_TYPES)
    if factors == "s32":
        if len(named_types) != 2:
            raise w.refused("the types of its factors are not told")
        return "s32", named_types[0], named_types[1]
    sums, *rest = named_types or ["f16"]
    rest = rest or [factors]
    return sums, rest[0], rest[-1]


def _shape(w: Writer) -> str:
    for name in w.modifiers.names:
        if match := _SHAPE.match(name):
            w.modifiers.ignore(name)
            return f"m{match['m']}n8k{match['k']}"
    raise w.refused("its shape is not told")


def _names(w: Writer, factors: str) -> Iterator[str]:
    """Yield what the instruction may be called in PTX."""
    m = w.modifiers
    sparse, scaled = m.has("SP"), m.has("SF")
    shape = _shape(w)
    sums, a, b = factors_and_sums(w, factors)
    saturated = ".satfinite" if m.has("SAT") else ""
    scale, vector = m.choose(_SCALES, ""), m.choose(_VECTORS, "")
    for opcode in _SPARSE if sparse else ("mma",):
        for kind in _SCALED_KINDS if scaled else _KINDS:
            start = f"{opcode}.sync.aligned.{shape}.row.col{kind}"
            if scaled:
                for size in (vector,) if vector else ("", ".scale_vec::2X"):
                    yield f"{start}.block_scale{size}.{sums}.{a}.{b}.{sums}.{scale}"
            else:
                yield f"{start}{saturated}.{sums}.{a}.{b}.{sums}"


def _form(w: Writer, names: Iterator[str]) -> Form:
    for name in names:
        form = named(name)
        if form is not None and form.runs_on(w.target):
            return form
    raise w.refused("no instruction of PTX is this product")


def _product(factors: str) -> Rule:
    return partial(_lift, factors)


def _lift(factors: str, w: Writer) -> None:
    form = _form(w, _names(w, factors))
    d, a, b, c, *rest = w.i.operands
    scales = _scales(w, rest) if w.modifiers.has("SF") else []
    if scales:
        metadata, selector = rest[0], rest[-1]
        rest = [metadata, selector] if w.modifiers.has("SP") else []
    _emit(w, form, (d, a, b, c), rest, scales)


def _scales(w: Writer, behind: Sequence[Operand]) -> list[str]:
    """Return the scales of A and B and who has them: always the first lanes of four, in the lowest bytes.

    Which lanes and bytes have them a uniform register says, and they are moved there. Behind the metadata of a sparse
    product, in the next register, are those of A.
    """
    first, second, chosen = behind[:3]
    of_a = w.words(first, 2)[-1] if w.modifiers.has("SP") else w.bare(first)
    where = w.bare(chosen)
    parts = []
    for word, (byte, lane, flips) in zip((of_a, w.bare(second)), _CHOSEN, strict=True):
        [data] = w.stored([word])
        if where != "0":
            other = w.made("and.b32", w.made("shr.u32", where, str(lane)), str(flips))
            data = w.made("shfl.sync.bfly.b32", data, other, "31", "-1")
            bits = w.made(
                "and.b32", w.made("shl.b32", w.made("shr.u32", where, str(byte)), "3"), "24"
            )
            data = w.made("shr.u32", data, bits)
        parts += [data, "{0, 0}"]
    return parts


def _emit(
    w: Writer,
    form: Form,
    matrices: Sequence[Operand],
    rest: Sequence[Operand],
    scales: Sequence[str] = (),
) -> None:
    """Emit the instruction with its matrices, and what stands behind them: metadata and which lanes have it, scales."""
    held = form.signature[: len(matrices)]
    parts = [_matrix(w, o, m, n == 0) for n, (o, m) in enumerate(zip(held, matrices, strict=True))]
    for operand in rest:
        if isinstance(operand, Immediate):
            parts.append(str(operand.value))
        else:
            parts += w.stored([w.bare(operand)])
    w.emit(f"{form.name} {', '.join([*parts, *scales])}")


def _matrix(w: Writer, operand: SignatureOperand, source: Operand, written: bool) -> str:
    """Return the registers of a matrix."""
    count = len(operand.registers)
    if written:
        return f"{{{', '.join(w.row(source, count))}}}"
    words = ["0"] * count if is_zero(source) else w.words(source, count)
    return f"{{{', '.join(w.stored(words))}}}"


def _of_doubles(w: Writer) -> None:
    """DMMA: pairs of registers are numbers."""
    m = w.modifiers
    shape = _shape(w)
    rounding = m.choose({"RZ": ".rz", "RM": ".rm", "RP": ".rp"}, "")
    form = _form(w, iter([f"mma.sync.aligned.{shape}.row.col{rounding}.f64.f64.f64.f64"]))
    d, *sources = w.i.operands
    held = [operand for operand in form.signature if operand.braces]
    texts = []
    for operand, source in zip(held[1:], sources, strict=True):
        words = w.words(source, 2 * len(operand.registers))
        pairs = zip(words[::2], words[1::2], strict=True)
        made = [w.made("mov.b64", f"{{{low}, {high}}}", kind="d") for low, high in pairs]
        texts.append(f"{{{', '.join(made)}}}")
    results = [w.temporary("d") for _ in held[0].registers]
    w.emit(f"{form.name} {{{', '.join(results)}}}, {', '.join(texts)}")
    words = w.row(d, 2 * len(results))
    for value, low, high in zip(results, words[::2], words[1::2], strict=True):
        w.emit(f"mov.b64 {{{low}, {high}}}, {value}")


def _of_bits(w: Writer) -> None:
    """BMMA."""
    m = w.modifiers
    shape = _shape(w)
    operation = m.choose({"XOR": "xor", "AND": "and"}, "")
    m.ignore("POPC")
    name = f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc"
    _emit(w, _form(w, iter([name])), w.i.operands[:4], ())


RULES = {
    **rules("HMMA", _product("f16")),
    **rules("IMMA", _product("s32")),
    **rules("QMMA", _product("e4m3")),
    **rules("OMMA", _product("e2m1")),
    **rules("DMMA", _of_doubles),
    **rules("BMMA", _of_bits),
}
