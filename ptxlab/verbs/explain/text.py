"""One instruction explained, as text and as JSON (schema ``ptxlab.explain/1``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ptxlab.fragments.probe_kernel import statement
from ptxlab.fragments.support import Compiled, FormExplanation
from ptxlab.matrix.bit_fields import of_fragment
from ptxlab.matrix.form import WHERE_A_LIES, AsyncInstruction, Form, SignatureOperand
from ptxlab.matrix.ldmatrix import RowMove
from ptxlab.matrix.matrix_plan import moved
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tcgen05 import TensorCoreProduct
from ptxlab.matrix.tensor_memory import TensorMemoryMove
from ptxlab.matrix.tensor_memory_operand import DataPath
from ptxlab.verbs.explain.rates import Rate
from ptxlab.view.json import members
from ptxlab.view.text import aligned, fields

SCHEMA = "ptxlab.explain/1"
_NAMED = 4


def text(explained: FormExplanation, *, full: bool = False, rates: Sequence[Rate] = ()) -> str:
    """Return what the instruction does, takes and becomes; in ``full`` also what else is known of it."""
    form = explained.form
    variant = form.variant and f"{WHERE_A_LIES[form.variant]} ({form.variant})"
    pairs = [
        *([("PTX ISA", form.section)] if full else []),
        *([("A lies in", variant)] if variant else []),
        ("computes", meaning(form)),
        ("needs", f"{form.minimum_target}, PTX {form.version}"),
        *([("runs on", ", ".join(form.targets) or "no target that ptxlab knows")] if full else []),
        ("emulated", _emulated(explained)),
        *([("hardware", _hardware(explained))] if full else []),
    ]
    holder = next((o.layout.holder for o in form.signature if o.layout), "lane")
    operands = [in_words(operand, holder) for operand in form.signature]
    blocks = [[form.name, *fields(pairs)]]
    if operands:
        blocks.append(["operands", *_indented(operands)])
    if isinstance(form, RowMove):
        blocks += [["moves", *_indented(_rows_moved(form))], *_fed(form)]
    if isinstance(form, TensorCoreProduct):
        blocks.append(["D in Tensor Memory", *_indented(_accumulators(form))])
    if full and explained.arithmetic:
        notes = [(", ".join(names), note) for names, note in explained.arithmetic]
        blocks.append(["arithmetic", *_indented(notes)])
    blocks.append(["compiles to", *_compiled(explained)])
    if rates:
        blocks.append(["cycles until the next on the same tensor core", *_rates(form, rates)])
    if full:
        blocks.append(["as PTX", f"  {statement(form)}"])
        blocks += [[_others(explained)]] if explained.others else []
    else:
        also = f"; the same words describe {len(explained.others)} more" * bool(explained.others)
        blocks.append([f"targets, arithmetic and PTX: --full{also}"])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def as_json(explained: FormExplanation, rates: Sequence[Rate] = ()) -> dict[str, Any]:
    form = explained.form
    shape = members(form, "m", "n", "k") if isinstance(form, MatrixInstruction) else None
    return {
        "schema": SCHEMA,
        "instruction": form.name,
        "variant": form.variant or None,
        **members(form, "family", "section"),
        "shape": shape,
        "shapes": _shapes_json(form) if isinstance(form, AsyncInstruction) else None,
        "flops": form.flops,
        "targets": list(form.minimum_targets),
        "runs_on": list(form.targets),
        "min_ptx": form.version,
        **members(explained, "emulated", "hardware"),
        "fidelity": explained.fidelity if explained.emulated else None,
        "statement": statement(form),
        "operands": [_operand_json(operand) for operand in form.signature],
        "moved": [
            {
                **members(each.operand, "operand", "dtype"),
                **members(each, "shape", "times", "corners", "turned"),
            }
            for each in moved(form)
        ]
        if isinstance(form, RowMove)
        else [],
        "arithmetic": [
            {"targets": list(names), "note": note} for names, note in explained.arithmetic
        ],
        "compiled": [
            {"targets": list(code.targets), "sass": [[name, count] for name, count in code.opcodes]}
            for code in explained.compiled
        ],
        "not_compiled": explained.not_compiled,
        "rates": [
            {"gpu": r.gpu.name, "cycles": r.cycles, "per_clock": r.per_clock, "tera": r.tera}
            for r in rates
        ],
        "others": [other.key for other in explained.others],
    }


def _rates(form: Form, rates: Sequence[Rate]) -> list[str]:
    """Return a row a GPU: how soon the next may begin, and what that is by all SMs."""
    kind = "OP" if isinstance(form, MatrixInstruction) and form.d_type == "s32" else "FLOP"
    heads = ("", "cycles", f"{kind} a clock and SM", f"T{kind}/s")
    rows = [(r.gpu.name, f"{r.cycles:.3g}", f"{r.per_clock:,.0f}", f"{r.tera:,.0f}") for r in rates]
    return [f"  {line}" for line in aligned([heads, *rows], "<")]


def _emulated(form: FormExplanation) -> str:
    if not form.emulated:
        return "no"
    return "yes" if form.fidelity != "unverified" else "yes; nobody has measured its bits"


def _hardware(form: FormExplanation) -> str:
    if form.hardware is None:
        return "unverified"
    if form.form.family == "wmma":  # PTX leaves the layouts open
        return f"verified on {form.hardware}, from memory to memory"
    return f"layouts verified on {form.hardware}"


def meaning(form: Form) -> str:
    if isinstance(form, AsyncInstruction):
        shapes = f"; 2 m n k FLOPs: {', or '.join(map(str, form.shapes))}" if form.shapes else ""
        return form.meaning + shapes
    if isinstance(form, TensorMemoryMove):
        where = "registers to Tensor Memory" if form.verb == "st" else "Tensor Memory to registers"
        return where + (f", and the {form.reduction[:3]} of it" if form.reduction else "")
    if not isinstance(form, MatrixInstruction):
        return {
            "ldmatrix": "rows of shared memory to registers",
            "stmatrix": "registers to rows of shared memory",
            "movmatrix": "the transpose of a matrix in registers",
            "wmma": "a matrix between memory and registers; PTX leaves its layout open",
        }[form.family]
    several = form.operands[-1].matrices
    times = f", {several} times" if several > 1 else ""
    factor = f"{several} * 2 m n k" if several > 1 else "2 m n k"
    kind = "FLOPs" if form.d_type != "s32" else "operations"
    sparse = " counting the zeros of A" if form.metadata else ""
    added = "D" if form.shared else "C"
    return (
        f"D = A * B + {added}, {form.m} x {form.n} x {form.k} (m x n x k){times}: "
        f"{form.flops:,} {kind} ({factor}){sparse}"
    )


def _rows_moved(form: RowMove) -> list[tuple[str, str]]:
    """Return whose address is which row, and whose register has which elements."""
    row, col = (output.expression for output in of_fragment(form.fragment).outputs)
    which = "" if form.matrices == 1 else f" of matrix lane / {form.rows}"
    each = form.registers // form.matrices
    named = (
        "r" if each * form.matrices == 1 else f"r[{each} * i + register]" if each > 1 else "r[i]"
    )
    return [
        ("p", f"{form.row_bytes} bytes: row lane % {form.rows}{which}"),
        (named, f"of matrix {'0' if form.matrices == 1 else 'i'} row {row}, column {col}"),
    ]


def _fed(form: RowMove) -> Iterator[list[str]]:
    """Yield which operands of mma the registers are, those together whose matrices lie alike in memory."""
    alike: dict[tuple[Any, ...], dict[str, list[str]]] = {}
    for shape, operand, times, corners, turned in moved(form):
        shapes = alike.setdefault((operand.operand, times, corners, turned), {})
        shapes.setdefault(shape, []).append(operand.dtype)
    lines = []
    for (letter, times, corners, turned), shapes in alike.items():
        several = f"{letter} of {times} products" if times > 1 else letter
        names = "; ".join(f"{name} of {', '.join(types)}" for name, types in shapes.items())
        row = "column" if turned else "row"
        begin = " ".join(f"({first},{byte})" for first, byte in corners)
        rest = ", and those of the next" if times > 1 else ""
        how = f"a row in memory is a {row} of {letter}; matrices at ({row},byte) {begin}{rest}"
        lines += [(several, names), ("", how)]
    if lines:
        yield ["as operands of mma", *_indented(lines)]


def _accumulators(form: TensorCoreProduct) -> list[tuple[str, str]]:
    """Return for each m how the rows of D lie, with the ISA's letter of the layout, by one row."""
    [shapes] = form.shapes
    pairs = []
    for m in shapes.m:
        path = DataPath.of(
            m, shapes.n[-1], form.group, stationary=form.stationary, sparse=form.sparse
        )
        row = path.rows * 9 // 16
        where = " and ".join(str(int(part[row])) for part in path.lanes())
        lane = "lane" if path.parts == 1 else "lanes"
        columns = "n" if path.parts == 1 else f"n mod N/{path.parts}, a part of N in each lane"
        pair = f" of CTA r / {path.rows} of the pair" if form.group > 1 else ""
        what = (
            f"layout {path.letter(form.group)}: row {row}{pair} in {lane} {where}, column {columns}"
        )
        pairs.append((f"m {m}", what))
    return pairs


def _shapes_json(form: AsyncInstruction) -> list[dict[str, Any]]:
    return [{"m": list(s.m), "n": list(s.n), "k": s.k} for s in form.shapes]


def in_words(operand: SignatureOperand, holder: str) -> tuple[str, str]:
    if not operand.registers:
        return operand.name, operand.meaning
    registers = "register" if operand.count == 1 else "registers"
    size = f"{operand.count} {registers} of .{operand.type} a {holder}"
    packed = operand.layout.elements_per_register if operand.layout else 1
    each = f", {packed} elements in each" if packed > 1 else ""
    return operand.name, f"{operand.meaning}: {size}{each}"


def _operand_json(operand: SignatureOperand) -> dict[str, Any]:
    layout = operand.layout
    matrix = members(layout, "rows", "cols", "dtype") if layout else None
    bits = {"bits": layout.bits} if layout else {}
    return {
        **members(operand, "name", "role", "meaning"),
        "registers": len(operand.registers),
        "register_type": operand.type if operand.registers else None,
        "matrix": matrix and matrix | bits,
    }


def _compiled(form: FormExplanation) -> list[str]:
    if form.not_compiled:
        return [f"  unknown: {form.not_compiled}"]
    return _indented([(", ".join(code.targets), _sass(code)) for code in form.compiled])


def _sass(code: Compiled) -> str:
    names = [f"{count} x {name}" if count > 1 else name for name, count in code.opcodes]
    return ", ".join(names) or "what nvdisasm does not print"


def _indented(pairs: Any) -> list[str]:
    return [f"  {line}" for line in fields(list(pairs))]


def _others(form: FormExplanation) -> str:
    names = ", ".join(other.key for other in form.others[:_NAMED])
    more = len(form.others) - _NAMED
    rest = f" and {more} more" if more > 0 else ""
    return f"The same words describe {names}{rest}."
