"""What operations on registers are in LLVM's assembly: the ``native`` column of their rows.

Each function is given the code that it adds to, a value a source, and by keyword what fills the slots
of the form. It returns the result, or None where there is no native form with these modifiers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ptxlab.native.code import Code, Value, number
from ptxlab.numbers.formats import F32, F64
from ptxlab.numbers.rounding import DEFAULT_NAN_F64, QUIET_BIT

Native = Callable[..., Any]

SIGN = {form.bits: 1 << form.sign_bit for form in (F32, F64)}
EXPONENT = {form.bits: form.infinity for form in (F32, F64) if form.infinity is not None}


def op(opcode: str) -> Native:
    """Return the form that is one instruction of LLVM's."""
    return lambda code, *values, **_: code.op(opcode, *values)


def called(function: str, flags: str = "") -> Native:
    """Return the form that is one of LLVM's own functions."""
    return lambda code, *values, **_: code.call(function, *values, flags=flags)


def signed(T: str) -> bool:
    return T.startswith("s")


# ---- integers -------------------------------------------------------------------------------


def by_sign(function: str) -> Native:
    """Return the form that is a function of LLVM's for signed, and one for unsigned integers."""
    return lambda code, *values, T, **_: code.call(("s" if signed(T) else "u") + function, *values)


def negated(code: Code, a: Value, **_: str) -> Value:
    return code.op("sub", number(0, a.type), a)


def product(half: str, code: Code, a: Value, b: Value, T: str) -> Value:
    """Return a half of the double-width product, or all of it."""
    if half == "lo":
        return code.op("mul", a, b)
    bits, extend = a.bits, signed(T)
    if half == "hi" and bits == 64:
        return _high(code, a, b) if not extend else _high_signed(code, a, b)
    whole = code.op("mul", *(code.extended(x, 2 * bits, signed=extend) for x in (a, b)))
    if half == "wide":
        return whole
    return code.extended(code.op("lshr", whole, number(bits, whole.type)), bits, signed=False)


def _high(code: Code, a: Value, b: Value) -> Value:
    """Return the high half of an unsigned product of 64 bits from products of 32."""
    low, shift = number(0xFFFFFFFF, "i64"), number(32, "i64")
    a0, b0 = code.op("and", a, low), code.op("and", b, low)
    a1, b1 = code.op("lshr", a, shift), code.op("lshr", b, shift)
    carried = code.op("lshr", code.op("mul", a0, b0), shift)
    cross = code.op("add", code.op("mul", a1, b0), carried)
    middle = code.op("add", code.op("and", cross, low), code.op("mul", a0, b1))
    parts = code.op("lshr", cross, shift), code.op("lshr", middle, shift)
    return code.op("add", code.op("mul", a1, b1), code.op("add", *parts))


def _high_signed(code: Code, a: Value, b: Value) -> Value:
    high, top = _high(code, a, b), number(63, "i64")
    for sign, other in ((a, b), (b, a)):
        high = code.op("sub", high, code.op("and", code.op("ashr", sign, top), other))
    return high


def product_plus(half: str, code: Code, a: Value, b: Value, c: Value, T: str) -> Value:
    return code.op("add", product(half, code, a, b, T), c)


def quotient(opcode: str, code: Code, a: Value, b: Value, T: str) -> Value:
    """Divide; all ones for a zero divisor, and the smallest number by -1 wraps."""
    zero = code.compare("eq", b, number(0, b.type))
    undefined = zero
    if signed(T):
        least = code.compare("eq", a, number(1 << b.bits - 1, b.type))
        minus = code.compare("eq", b, number(-1, b.type))
        undefined = code.op("or", zero, code.op("and", least, minus))
    divided = code.op(
        ("s" if signed(T) else "u") + opcode, a, code.select(undefined, number(1, b.type), b)
    )
    return code.select(zero, number(-1, b.type), divided)


def distance_plus(code: Code, a: Value, b: Value, c: Value, T: str) -> Value:
    """Return c + |a - b|."""
    larger, smaller = (by_sign(name)(code, a, b, T=T) for name in ("max", "min"))
    return code.op("add", code.op("sub", larger, smaller), c)


# ---- bits -----------------------------------------------------------------------------------


def complement(code: Code, a: Value, **_: str) -> Value:
    return code.op("xor", a, number(-1, a.type))


def shifted(opcode: str, code: Code, a: Value, count: Value, T: str) -> Value:
    """Shift; from the width on nothing is left, or the sign."""
    most = number(a.bits - 1, "i32")
    limited = code.extended(code.call("umin", count, most), a.bits, signed=False)
    if opcode == "shr" and signed(T):
        return code.op("ashr", a, limited)
    moved = code.op("shl" if opcode == "shl" else "lshr", a, limited)
    return code.select(code.compare("ugt", count, most), number(0, a.type), moved)


def funnel(code: Code, a: Value, b: Value, c: Value, way: str, mode: str) -> Value:
    """Return 32 bits out of b:a, shifted left or right."""
    if mode == "clamp":
        c = code.call("umin", c, number(32, "i32"))
    moved = code.call("fshl" if way == "l" else "fshr", b, a, c)  # it takes counts modulo 32
    if mode == "wrap":
        return moved
    return code.select(code.compare("eq", c, number(32, "i32")), a if way == "l" else b, moved)


def lookup3(code: Code, a: Value, b: Value, c: Value, table: Value, **_: str) -> Value | None:
    """Return the bitwise function of three words with a truth table, as a sum of its products."""
    if not table.literal:
        return None
    result: Value | None = None
    inverses = [complement(code, x) for x in (a, b, c)]
    for index in range(8):
        if int(table.text) >> index & 1:
            chosen = [x if index >> 2 - i & 1 else inverses[i] for i, x in enumerate((a, b, c))]
            term = code.op("and", code.op("and", chosen[0], chosen[1]), chosen[2])
            result = term if result is None else code.op("or", result, term)
    return number(0, "i32") if result is None else result


def counted(function: str, flags: str = "") -> Native:
    """Return the form that counts bits of words: the result has 32."""

    def form(code: Code, a: Value, **_: str) -> Value:
        return code.extended(code.call(function, a, flags=flags), 32, signed=False)

    return form


def moved(code: Code, a: Value, **_: str) -> Value:
    return a


def moved_by(distance: int, code: Code, a: Value) -> Value:
    """Return an address so many bytes on."""
    return code.op("add", a, number(distance, a.type)) if distance else a


def parts(count: int, code: Code, whole: Value) -> list[Value]:
    """Return the parts of a word, the first is the low bits."""
    bits = whole.bits // count
    shifted = (code.op("lshr", whole, number(i * bits, whole.type)) for i in range(count))
    return [code.extended(one, bits, signed=False) for one in shifted]


def joined(code: Code, *given: Value) -> Value | None:
    bits = sum(part.bits for part in given)
    if bits > 64:
        return None
    whole, at = number(0, f"i{bits}"), 0
    for part in given:
        wider = code.extended(part, bits, signed=False)
        whole = code.op("or", whole, code.op("shl", wider, number(at, whole.type)))
        at += part.bits
    return whole


# ---- floating point -------------------------------------------------------------------------


def flushed(code: Code, x: Value) -> Value:
    """Return a number with zero of its sign for a subnormal one (``.ftz``)."""
    bits = code.bits(x)
    exponent = code.op("and", bits, number(EXPONENT[x.bits], bits.type))
    small = code.compare("eq", exponent, number(0, bits.type))
    zero = code.op("and", bits, number(SIGN[x.bits], bits.type))
    found = code.convert("bitcast", code.select(small, zero, bits), x.type)
    return replace(found, settled=x.settled)


def saturated(code: Code, x: Value) -> Value:
    """Return a number clamped to [+0, 1], NaN to +0 (``.sat``)."""
    one, zero = Value("1.0", x.type, literal=True), Value("0.0", x.type, literal=True)
    limited = code.select(code.compare("olt", x, one), x, one)
    return replace(code.select(code.compare("ogt", x, zero), limited, zero), settled=True)


def settled_f64(code: Code, r: Value, *operands: Value) -> Value:
    """Return a result with the payload of the first NaN operand in its NaN, or the default one."""
    nan = number(int(DEFAULT_NAN_F64), "i64")
    for operand in reversed(operands):
        quiet = code.op("or", code.bits(operand), number(int(QUIET_BIT), "i64"))
        nan = code.select(code.compare("uno", operand, operand), quiet, nan)
    bits = code.select(code.compare("uno", r, r), nan, code.bits(r))
    return code.convert("bitcast", bits, "double")


def finished(
    code: Code, r: Value, operands: tuple[Value, ...], ftz: str = "", sat: str = ""
) -> Value:
    """Return a result with the NaN that PTX gives, and what its modifiers ask for."""
    r = settled_f64(code, r, *operands) if r.type == "double" else replace(r, settled=False)
    if ftz:
        r = flushed(code, r)
    return saturated(code, r) if sat else r


def rounded(compute: Native) -> Native:
    """Return the form of what LLVM rounds to nearest, or not at all."""

    def form(
        code: Code,
        *values: Value,
        T: str,
        rnd: str = "",
        ftz: str = "",
        sat: str = "",
        relu: str = "",
    ) -> Value | None:
        if relu or T not in ("f32", "f64") or rnd not in ("", "rn"):
            return None
        if ftz:
            values = tuple(flushed(code, value) for value in values)
        return finished(code, compute(code, *values), values, ftz, sat)

    return form


def reciprocal(code: Code, x: Value, **_: str) -> Value:
    return code.op("fdiv", Value("1.0", x.type, literal=True), x)


def root(code: Code, x: Value, **_: str) -> Value:
    """Return the square root. LLVM knows when it is a NaN, and that to it all NaNs are one: so none is made."""
    if x.type == "double":
        return code.call("sqrt", x)
    negative = code.compare("ult", x, Value("0.0", x.type, literal=True))
    positive = code.select(negative, Value("0.0", x.type, literal=True), x)
    bits = code.bits(code.call("sqrt", positive))
    return code.seen_as(code.select(negative, number(F32.nan_word, "i32"), bits), x.type)


def on_sign(opcode: str, mask: int, code: Code, x: Value, T: str, ftz: str = "") -> Value | None:
    """Change the sign bit alone, of NaN too."""
    if T not in ("f32", "f64"):
        return None
    x = code.settled(flushed(code, x) if ftz else x)
    bits = code.bits(x)
    word = SIGN[x.bits] ^ mask
    return code.convert("bitcast", code.op(opcode, bits, number(word, bits.type)), x.type)


def extremum(largest: bool, code: Code, a: Value, b: Value, *, propagate: bool) -> Value:
    """Return min or max: -0 is below +0; NaN loses, or wins if ``propagate``."""
    first = code.select(code.compare("ogt" if largest else "olt", a, b), a, b)
    bits = code.op("and" if largest else "or", code.bits(a), code.bits(b))
    same = code.convert("bitcast", bits, a.type)  # of equal numbers these are theirs, or a zero's
    r = code.select(code.compare("oeq", a, b), same, first)
    a_nan, b_nan = code.compare("uno", a, a), code.compare("uno", b, b)
    if propagate:
        return code.select(a_nan, a, code.select(b_nan, b, r))
    return code.select(a_nan, b, code.select(b_nan, a, r))


def of_two(
    largest: bool,
    code: Code,
    a: Value,
    b: Value,
    T: str,
    ftz: str = "",
    NaN: str = "",
    xorsign: str = "",
) -> Value | None:
    if T not in ("f32", "f64") or xorsign:
        return None
    if ftz:
        a, b = flushed(code, a), flushed(code, b)
    r = extremum(largest, code, a, b, propagate=bool(NaN))
    return finished(code, r, (a, b), ftz)


# ---- comparison -----------------------------------------------------------------------------

_FLOAT = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
    "num": "ord", "nan": "uno",
}  # fmt: skip
_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


def compared(code: Code, a: Value, b: Value, cmp: str, T: str, ftz: str = "") -> Value | None:
    if T in ("f32", "f64"):
        if ftz:
            a, b = flushed(code, a), flushed(code, b)
        return code.compare(_FLOAT[cmp], a, b)
    if T[0] not in "bus" or T.endswith("x2") or T.startswith("bf"):
        return None
    order = cmp if cmp in ("eq", "ne") else ("s" if signed(T) else "u") + cmp
    return code.compare(_UNSIGNED.get(cmp, order), a, b)


def setp(
    code: Code, a: Value, b: Value, *c: Value, cmp: str, T: str, boolean: str = "", ftz: str = ""
) -> tuple[Value, Value] | None:
    """Return whether it holds, and whether not, each joined with ``c``."""
    test = compared(code, a, b, cmp, T, ftz)
    if test is None:
        return None
    both = test, complement(code, test)
    if not boolean:
        return both
    return code.op(boolean, both[0], *c), code.op(boolean, both[1], *c)


def set_to(
    code: Code,
    a: Value,
    b: Value,
    *c: Value,
    cmp: str,
    D: str,
    T: str,
    boolean: str = "",
    ftz: str = "",
) -> Value | None:
    test = compared(code, a, b, cmp, T, ftz)
    if test is None or D not in ("u32", "s32", "f32"):
        return None
    if boolean:
        test = code.op(boolean, test, *c)
    true = number(F32.bias << F32.fraction_bits if D == "f32" else -1, "i32")
    found = code.select(test, true, number(0, "i32"))
    return code.seen_as(found, "float") if D == "f32" else found


def selected(code: Code, a: Value, b: Value, c: Value, **_: str) -> Value:
    return code.select(c, a, b)


# ---- conversion -----------------------------------------------------------------------------

_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_TYPES = {"f32": "float", "f64": "double"}


def converted(
    code: Code, a: Value, D: str, S: str, rnd: str = "", ftz: str = "", sat: str = ""
) -> Value | None:
    """Return the conversion between integers, single and double precision."""
    if any(T in ("f16", "bf16", "tf32") for T in (D, S)):
        return None
    if S in _TYPES:
        if ftz:
            a = flushed(code, a) if S == "f32" else a
        return _from_float(code, a, D, S, rnd, ftz, sat)
    bits = int(D[1:])
    if D not in _TYPES:
        return None if sat else code.extended(a, bits, signed=signed(S))
    if rnd != "rn":
        return None
    r = code.convert("sitofp" if signed(S) else "uitofp", a, _TYPES[D])
    return saturated(code, r) if sat else r


def _from_float(code: Code, a: Value, D: str, S: str, rnd: str, ftz: str, sat: str) -> Value | None:
    if rnd in _WHOLE:
        a = replace(code.call(_WHOLE[rnd], a), settled=a.settled)
    elif rnd not in ("", "rn"):
        return None
    if D not in _TYPES:
        return _to_integer(code, a, D)
    if D == S:
        r = a
    else:
        r = code.convert("fpext" if D == "f64" else "fptrunc", code.settled(a), _TYPES[D])
    return finished(code, r, (r,), ftz if D == "f32" else "", sat)


def _to_integer(code: Code, a: Value, D: str) -> Value:
    """Clamp to the range; NaN is 0, or the least number as that of 64 bits is told apart."""
    bits = int(D[1:])
    function = "fptosi.sat" if signed(D) else "fptoui.sat"
    r = code.call(function, a, type=f"i{bits}")
    if 64 not in (bits, a.bits):
        return r
    return code.select(code.compare("uno", a, a), number(1 << bits - 1, r.type), r)
