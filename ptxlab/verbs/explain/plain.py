"""An instruction that is none of matrices, explained by its rows: what it does, takes, needs and becomes.

What it does is said in a line, and of one form of it shown: the emulator's own function computes the examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.emulator.prepare.forms import forms as forms_of
from ptxlab.emulator.prepare.forms import misfit
from ptxlab.emulator.prepare.row import CARRY, ROWS, OperandClass, Row, RowForm
from ptxlab.errors import PtxlabError, ToolchainError, nearest
from ptxlab.machine.sass import sass
from ptxlab.numbers.types import TYPES
from ptxlab.toolchain import link_ptx
from ptxlab.verbs.explain.truth import expression, truth
from ptxlab.view.json import members
from ptxlab.view.text import fields, hexadecimal, number

SCHEMA = "ptxlab.explain.instruction/1"
MEANINGS = {
    "abs": "d = |a|", "add": "d = a + b", "addc": "d = a + b + carry", "and": "d = a & b",
    "bfe": "d = c bits of a from bit b up", "bfi": "d = b, with d bits of a put in from bit c up",
    "bfind": "d = the place of the leading bit of a that is no sign", "bmsk": "d = b ones from bit a up",
    "brev": "d = the bits of a in the opposite order", "clmad": "d = carry-less a * b, exclusive or c",
    "clz": "d = how many zeros a begins with", "cnot": "d = 1 where a is 0, else 0",
    "copysign": "d = b with the sign of a", "cos": "d = cos(a)", "createpolicy": "d = a policy of caches",
    "cvt": "d = a as another type", "div": "d = a / b", "dp2a": "d = a dot product of two pairs, added to c",
    "dp4a": "d = a dot product of four bytes, added to c", "ex2": "d = 2 ** a", "fma": "d = a * b + c, rounded once",
    "fns": "d = the place of the c-th one of a from bit b on", "lg2": "d = log2(a)",
    "lop3": "d = any function of the bits of a, b and c: a table of eight bits says which", "mad": "d = a * b + c",
    "mapa": "d = the address of the same byte in another CTA",
    "mad24": "d = a * b of 24 bits, + c", "madc": "d = a * b + c + carry", "max": "d = the larger of a and b",
    "min": "d = the smaller of a and b", "mov": "d = a", "mul": "d = a * b", "mul24": "d = a * b of 24 bits",
    "neg": "d = -a", "not": "d = ~a", "or": "d = a | b", "popc": "d = how many bits of a are one",
    "prmt": "d = four of the eight bytes of b and a, which c picks by its nibbles", "rcp": "d = 1 / a",
    "rem": "d = what a / b leaves", "rsqrt": "d = 1 / sqrt(a)", "sad": "d = |a - b| + c",
    "selp": "d = a where c holds, else b", "set": "d = 1.0, or all ones, where a compares with b, else 0",
    "setp": "p = how a compares with b, q the opposite", "shf": "d = 32 bits of b:a, shifted", "shl": "d = a << b",
    "shr": "d = a >> b", "sin": "d = sin(a)", "slct": "d = a where c >= 0, else b", "sqrt": "d = sqrt(a)",
    "sub": "d = a - b", "subc": "d = a - b - borrow", "szext": "d = a as a number of b bits, extended",
    "tanh": "d = tanh(a)", "testp": "p = whether a is of a kind", "xor": "d = a ^ b",
    "isspacep": "p = whether a generic address is in a state space", "getctarank": "d = the rank of the CTA with a",
    "vadd": "d = a + b of parts", "vsub": "d = a - b of parts", "vabsdiff": "d = |a - b| of parts",
    "vmin": "d = the smaller of parts", "vmax": "d = the larger of parts", "vshl": "d = a << b of parts",
    "vshr": "d = a >> b of parts", "vset": "d = how parts compare", "vavrg": "d = the mean of a and b of parts", "vmad": "d = a * b + c of parts",
}  # fmt: skip
"""What the instructions from registers to registers do, by opcode; ``vadd2`` does so twice, ``vadd4`` four times."""

TARGETS = ("sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a")
EXAMPLES = 3
_NAMES = "abcefgh"
_MOST_FORMS = 12


@dataclass(frozen=True, slots=True)
class PlainExplanation:
    """Rows of an opcode that have the modifiers asked for, the ``form`` if they say one, its table if it is lop3."""

    opcode: str
    rows: tuple[Row, ...]
    form: RowForm | None
    table: int | None
    examples: tuple[tuple[tuple[Any, ...], Any], ...]
    compiled: tuple[tuple[str, str], ...]


def opcode_of(words: str) -> tuple[str, tuple[str, ...]]:
    """Return opcode and modifiers of an instruction, of a line of PTX too: ``@p add.s32 d, a, b;``."""
    name = re.sub(r"^\s*@!?\S+\s+", "", words).strip().rstrip(";").split(None, 1)
    opcode, *modifiers = name[0].split(".") if name else [""]
    return opcode, tuple(modifiers)


def explain(words: str, targets: Sequence[str] = ()) -> PlainExplanation:
    """Explain an instruction of registers, memory or control. Raises PtxlabError for modifiers that none has."""
    opcode, modifiers = opcode_of(words)
    rows = [row for row in ROWS[opcode] if not row.lifted and not row.tabled]
    having = [row for row in rows if not misfit(row, modifiers)[0]]
    having.sort(key=lambda row: row.match(modifiers) is None)
    if not having:
        known = dict.fromkeys(c for row in rows for slot in row.slots for c in slot.choices if c)
        wrong = next((name for name in modifiers if name not in known), modifiers[-1])
        near = nearest(wrong, known, 3)
        raise PtxlabError(
            f"no {opcode} has .{'.'.join(modifiers)}",
            hint=f"there is {opcode} with .{', .'.join(near or list(known)[:8])}",
        )
    form = _form(opcode, having, modifiers)
    values = re.findall(r"(?<![\w%.])(0[xX][0-9a-fA-F]+|\d+)(?![\w.])", words.partition(" ")[2])
    table = int(values[-1], 0) if opcode == "lop3" and values else None
    if table is not None and table > 0xFF:
        raise PtxlabError(f"a table of lop3 has eight bits, {values[-1]} has more")
    return PlainExplanation(
        opcode,
        tuple(having),
        form,
        table,
        tuple(_examples(form)) if form and opcode != "lop3" else (),
        tuple(_compiled(form, targets or TARGETS)) if form else (),
    )


def _form(opcode: str, rows: Sequence[Row], modifiers: tuple[str, ...]) -> RowForm | None:
    """Return the form that the modifiers say, else the first of registers that has them."""
    for row in rows:
        filled = row.match(modifiers)
        if filled is not None and (row.compute or row.make):
            return RowForm(row, filled)
    if not any(row.compute or row.make for row in rows):
        return None
    return next(
        (f for f in forms_of(opcode) if f.row in rows and set(modifiers) <= set(f.slots)), None
    )


def _examples(form: RowForm) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield operands and results of a form that only has numbers, computed by the emulator's own function."""
    if not _numbers(form.row) or len(form.results) != 1:
        return
    random = np.random.default_rng(1)
    arguments = [_values(TYPES[name], random, at) for at, name in enumerate(form.operands)]
    try:
        with np.errstate(all="ignore"):
            made = np.broadcast_to(form.compute(*arguments), EXAMPLES)
    except (TypeError, ValueError, IndexError):
        return
    result = made.view(TYPES[form.results[0]].dtype)
    for at in range(EXAMPLES):
        yield tuple(argument[at] for argument in arguments), result[at]


def _numbers(row: Row) -> bool:
    plain = all(
        o.kind == "value" and not o.vector and o.type != CARRY for o in (*row.sources, *row.results)
    )
    return (plain and row.compute is not None) or (row.make is not None and plain)


def _values(kind: Any, random: np.random.Generator, at: int) -> Any:
    if kind.dtype == np.bool_:
        return np.array([True, False, True])
    if kind.kind == "float":
        return np.array([1.5, -2.25, 0.1][at % 3 :] + [1.5, -2.25, 0.1][: at % 3]).astype(
            kind.dtype
        )
    numbers = random.integers(0, 1 << 7, EXAMPLES) if at == 0 else random.integers(1, 9, EXAMPLES)
    return numbers.astype(f"u{kind.dtype.itemsize}").view(kind.dtype)


def _compiled(form: RowForm, targets: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield targets and the opcodes that ptxas makes of a form, its operands loaded and its result stored."""
    if not _numbers(form.row) or len(form.results) != 1:
        return
    made: dict[str, list[str]] = {}
    try:
        for target in targets:
            ptx = _program(form, target)
            line = next(
                n for n, text in enumerate(ptx.splitlines(), 1) if text.startswith(form.name)
            )
            [function] = sass(link_ptx(ptx, arch=target)).values()
            names = ", ".join(each.name for each in function.instructions if each.line == line)
            made.setdefault(names or "nothing of its own", []).append(target)
    except ToolchainError:
        pass  # absent, or the target has not the instruction
    yield from ((", ".join(names), opcodes) for opcodes, names in made.items())


def _program(form: RowForm, target: str) -> str:
    registers, loads, passed = [], [], []
    for at, name in enumerate(form.operands):
        bits = TYPES[name].bits
        if name == "pred":
            registers += [f".reg .pred x{at}; .reg .b32 w{at};"]
            loads += [f"ld.global.b32 w{at}, [p+{16 * at}]; setp.ne.b32 x{at}, w{at}, 0;"]
        else:
            registers.append(f".reg .b{bits} x{at};")
            loads.append(f"ld.global.b{bits} x{at}, [p+{16 * at}];")
        passed.append(f"x{at}")
    [result] = form.results
    bits = TYPES[result].bits
    stored = f"st.global.b{bits} [p], d;"
    declared = f".reg .b{bits} d;"
    if result == "pred":
        declared, stored = ".reg .pred d;", "@d st.global.b64 [p], p;"
    version = max(form.needs.ptx, (8, 7))
    return "\n".join(
        [
            f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64",
            f".visible .entry k(.param .u64 q) {{ .reg .b64 p; {declared} {' '.join(registers)}",
            f"ld.param.u64 p, [q]; {' '.join(loads)}",
            f"{form.name} d, {', '.join(passed)};",
            f"{stored} ret; }}\n",
        ]
    )


# ---- text and JSON --------------------------------------------------------------------------


def text(explained: PlainExplanation) -> str:
    form, rows = explained.form, explained.rows
    first = form.row if form else rows[0]
    needs = form.needs if form else first.needs.get("")
    least = [" or ".join(names) for names in needs.targets] if needs else []
    version = needs.ptx if needs and needs.ptx > (0, 0) else (6, 3)
    pairs = [
        ("does", meaning(explained.opcode, first)),
        ("counts as", first.mix),
        ("needs", f"{', '.join(least) or 'sm_75'}, PTX {version[0]}.{version[1]}"),
        ("bits", FIDELITY[first.fidelity]),
    ]
    blocks = [[form.name if form else explained.opcode, *fields(pairs)]]
    syntax = list(dict.fromkeys(f"{row.syntax} {operands(row)}".rstrip() for row in rows))
    more = len(syntax) - _MOST_FORMS
    blocks.append(
        ["forms", *(f"  {line}" for line in syntax[:_MOST_FORMS])]
        + [f"  and {more} more, which modifiers tell apart"] * (more > 0)
    )
    if explained.opcode == "lop3":
        blocks += truth(explained.table)
    if form and explained.examples:
        [result_type] = form.results
        shown = [
            f"  {_call(form, given)}  d = {_written(result, result_type)}"
            for given, result in explained.examples
        ]
        blocks.append([f"examples of {form.name}", *shown])
    if explained.compiled:
        blocks.append(["compiles to", *(f"  {line}" for line in fields(explained.compiled))])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


FIDELITY = {
    "exact": "exact",
    "model": "the PTX ISA bounds the error; the emulator rounds the right result",
    "ordering": "nothing is computed",
    "unverified": "nobody has measured them",
}


def meaning(opcode: str, row: Row) -> str:
    """Return what an opcode does: of registers in a formula, else as the function says that does it."""
    does = row.step or row.exit
    told = MEANINGS.get(opcode) or MEANINGS.get(opcode.rstrip("24"))
    return told or " ".join(((does and does.__doc__) or "").split("\n\n")[0].split()).replace(
        "``", ""
    )


def operands(row: Row) -> str:
    """Return what stands behind the name: the results and then the sources, each with its type."""
    results = ["d" if o.type != "pred" else "p" for o in row.results if o.type != CARRY]
    sources = [
        _source(o, name)
        for o, name in zip((o for o in row.sources if o.type != CARRY), _NAMES, strict=False)
    ]
    return ", ".join([*results[:1], *sources])


def _source(operand: OperandClass, name: str) -> str:
    if operand.kind == "address":
        return f"[{name}]"
    return {"constant": "immediate", "name": operand.type}.get(operand.kind, name)


def _call(form: RowForm, given: Sequence[Any]) -> str:
    values = map(_written, given, form.operands)
    return "  ".join(f"{name} {value}" for name, value in zip(_NAMES, values, strict=False))


def _shown(value: Any) -> str:
    return str(bool(value)) if isinstance(value, np.bool_) else number(value)


def _written(value: Any, name: str) -> str:
    """Write a value of a type: bits as they are."""
    return hexadecimal(int(value), TYPES[name].bits) if name.startswith("b") else _shown(value)


_INPUTS = ((0xF0, "a"), (0xCC, "b"), (0xAA, "c"))


def as_json(explained: PlainExplanation) -> dict[str, Any]:
    form = explained.form
    first = form.row if form else explained.rows[0]
    return {
        "schema": SCHEMA,
        "instruction": form.name if form else explained.opcode,
        "meaning": meaning(explained.opcode, first),
        **members(first, "mix", "fidelity"),
        "forms": [f"{row.syntax} {operands(row)}".rstrip() for row in explained.rows],
        "examples": [
            {"operands": list(given), "result": result} for given, result in explained.examples
        ],
        "table": explained.table,
        "expression": None if explained.table is None else expression(explained.table),
        "compiled": [
            {"targets": names.split(", "), "sass": code} for names, code in explained.compiled
        ],
    }
