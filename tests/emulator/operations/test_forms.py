"""Every instruction form the operations accept is one the assembler accepts; the rest is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from ptxlab.emulator.operation import ALU, Alu, UnknownForm
from ptxlab.isa.types import TYPES
from ptxlab.toolchain import link_ptx

ROUND = ("", "rn", "rz", "rm", "rp")
ROUND_INTEGER = ("rni", "rzi", "rmi", "rpi")
INTEGERS = tuple(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64))
WORDS = ("b16", "b32", "b64")
HALVES = ("f16", "f16x2", "bf16", "bf16x2")
NUMBERS = (*INTEGERS, *WORDS, *HALVES, "f32", "f64")
TINY = ("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2")
INTEGER_COMPARE = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs")
COMPARE = (*INTEGER_COMPARE, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
FTZ, SAT, CC, NONE = ("", "ftz"), ("", "sat"), ("", "cc"), ("",)
MODE = ("", "lo", "hi", "wide")
APPROX = ("", "approx", "full", *ROUND[1:])
ANY = (*NUMBERS, "pred")
BOOLEAN = ("", "and", "or", "xor")

# The modifiers an opcode might take, slot by slot in the order of the PTX ISA.
GRAMMAR: dict[str, tuple[tuple[str, ...], ...]] = {
    "abs": (FTZ, NUMBERS),
    "add": (ROUND, FTZ, SAT, CC, NUMBERS),
    "addc": (CC, NUMBERS),
    "and": (ANY,),
    "bfe": (NUMBERS,),
    "bfi": (NUMBERS,),
    "bfind": (("", "shiftamt"), NUMBERS),
    "bmsk": (("", "clamp", "wrap"), NUMBERS),
    "brev": (NUMBERS,),
    "clz": (NUMBERS,),
    "cnot": (NUMBERS,),
    "copysign": (NUMBERS,),
    "cos": (APPROX, FTZ, NUMBERS),
    "cvt": (
        (*ROUND, *ROUND_INTEGER, "rna"),
        FTZ,
        SAT,
        ("", "satfinite"),
        ("", "relu"),
        (*NUMBERS, "tf32", *TINY),
        (*NUMBERS, *TINY),
    ),
    "div": (APPROX, FTZ, SAT, NUMBERS),
    "dp2a": (("", "lo", "hi"), INTEGERS, INTEGERS),
    "dp4a": (INTEGERS, INTEGERS),
    "ex2": (APPROX, FTZ, NUMBERS),
    "fma": (ROUND, FTZ, SAT, ("", "relu"), NUMBERS),
    "lg2": (APPROX, FTZ, NUMBERS),
    "lop3": (BOOLEAN, NUMBERS),
    "mad": (MODE, ROUND, FTZ, SAT, CC, NUMBERS),
    "mad24": (MODE, SAT, NUMBERS),
    "madc": (MODE, CC, NUMBERS),
    "max": (FTZ, ("", "relu"), ("", "NaN"), ("", "xorsign"), ("", "abs"), NUMBERS),
    "min": (FTZ, ("", "relu"), ("", "NaN"), ("", "xorsign"), ("", "abs"), NUMBERS),
    "mov": (ANY,),
    "mul": (MODE, ROUND, FTZ, SAT, NUMBERS),
    "mul24": (MODE, NUMBERS),
    "neg": (FTZ, NUMBERS),
    "not": (ANY,),
    "or": (ANY,),
    "popc": (NUMBERS,),
    "prmt": (("b32",), ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")),
    "rcp": (APPROX, FTZ, SAT, NUMBERS),
    "rem": (NUMBERS,),
    "rsqrt": (APPROX, FTZ, NUMBERS),
    "sad": (NUMBERS,),
    "selp": (ANY,),
    "set": (COMPARE, BOOLEAN, FTZ, NUMBERS, NUMBERS),
    "setp": (COMPARE, BOOLEAN, FTZ, NUMBERS),
    "shf": (("", "l", "r"), ("", "clamp", "wrap"), NUMBERS),
    "shl": (NUMBERS,),
    "shr": (NUMBERS,),
    "sin": (APPROX, FTZ, NUMBERS),
    "slct": (FTZ, NUMBERS, NUMBERS),
    "sqrt": (APPROX, FTZ, NUMBERS),
    "sub": (ROUND, FTZ, SAT, CC, NUMBERS),
    "subc": (CC, NUMBERS),
    "szext": (("", "clamp", "wrap"), NUMBERS),
    "tanh": (APPROX, FTZ, NUMBERS),
    "testp": (
        ("finite", "infinite", "number", "notanumber", "normal", "subnormal"),
        ("f16", "f32", "f64"),
    ),
    "xor": (ANY,),
}

# Forms that need a target after sm_90a.
LATER = (
    "e2m3x2",
    "e3m2x2",
    "e2m1x2",
    "rn.satfinite.tf32",
    "rz.satfinite.tf32",
    "rn.satfinite.relu.tf32",
    "rz.satfinite.relu.tf32",
)


def _accepted(reference: Any, opcode: str) -> dict[str, Alu]:
    found = {}
    for choice in product(*GRAMMAR[opcode]):
        name = ".".join((opcode, *(part for part in choice if part)))
        try:
            found[name] = reference.build(name)
        except UnknownForm:
            continue
    return found


def _register(name: str, index: int) -> str:
    if name == "pred":
        return f"%p{index}"
    if name == "b8":
        return f"%c{index}"
    return f"%{ {1: 'b', 2: 'h', 4: 'r', 8: 'd'}[max(TYPES[name].bytes, 2)] }{index}"


def _line(name: str, operation: Alu) -> str:
    results = [_register(kind, i) for i, kind in enumerate(operation.results) if kind != "cc"]
    sources = [_register(kind, 4 + i) for i, kind in enumerate(operation.operands) if kind != "cc"]
    if name.startswith("lop3"):
        sources[3] = "0x96"
    return f"{name} {', '.join(['|'.join(results), *sources])};"


def _module(lines: list[str], target: str, version: str) -> str:
    body = "\n".join(lines)
    return (
        f".version {version}\n.target {target}\n.address_size 64\n.visible .entry k()\n{{\n"
        ".reg .pred %p<9>; .reg .b8 %c<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>;\n"
        f"{body}\nret;\n}}\n"
    )


def test_every_operation_has_its_grammar_here() -> None:
    mine = {opcode for opcode, builder in ALU.items() if _is_here(builder)}
    assert mine == set(GRAMMAR)


def _is_here(builder: Any) -> bool:
    modules = [
        "approximate",
        "arithmetic",
        "bits",
        "compare",
        "convert",
        "integer",
        "logic",
        "floating",
    ]
    return str(builder.__module__).rpartition(".")[2] in modules


@pytest.mark.parametrize("opcode", GRAMMAR)
def test_accepted_forms_assemble(reference: Any, opcode: str) -> None:
    accepted = _accepted(reference, opcode)
    assert accepted
    now = [_line(n, a) for n, a in accepted.items() if not any(part in n for part in LATER)]
    later = [_line(n, a) for n, a in accepted.items() if any(part in n for part in LATER)]
    link_ptx(_module(now, "sm_90a", "8.4"), arch="sm_90a")
    if later:
        link_ptx(_module(later, "sm_100a", "9.1"), arch="sm_100a")


@pytest.mark.parametrize(
    "name",
    [
        "add.ftz.f64",
        "add.sat.u32",
        "add.rz.f16",
        "add.sat.bf16",
        "add.foo.f32",
        "fma.f32",
        "fma.rn.u32",
        "mul.u32",
        "mul.wide.u64",
        "mad.lo.sat.s32",
        "div.f32",
        "div.full.f64",
        "neg.u32",
        "min.NaN.f64",
        "min.xorsign.f32",
        "setp.lo.s32",
        "setp.lt.b32",
        "setp.lt.ftz.f64",
        "selp.pred",
        "shr.f32",
        "cvt.s32.f32",
        "cvt.rn.f64.f32",
        "cvt.f16.f32",
        "cvt.rz.s32.f32",
        "cvt.rs.f16x2.f32",
        "cvt.rn.e4m3x2.f32",
        "cvt.rna.relu.tf32.f32",
        "sin.f32",
        "ex2.approx.bf16",
        "lop3.xor.b32",
        "prmt.b32.xyz",
    ],
)
def test_what_is_not_an_instruction_is_refused(reference: Any, name: str) -> None:
    with pytest.raises(UnknownForm):
        reference.build(name)
