"""A PTX program for any one matrix instruction, generated from its operands.

Each thread reads its sources from a record, 8 bytes a register, and writes its results to another
one; rows of matrices lie in shared memory. It is made to be looked at, assembled and prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptxlab.matrix.form import Form, Version
from ptxlab.matrix.operand import SignatureOperand

KERNEL = "specimen"
OLDEST_PTX = (9, 0)
"""A ``.version`` that knows every target; an instruction may need a later one."""
WORD_BYTES = 8
_TILE_BYTES = 4096

_BEFORE = {"wgmma": ("wgmma.fence.sync.aligned;",), "wgmma.sp": ("wgmma.fence.sync.aligned;",)}
_COMPLETED = ("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;")
_AFTER = {
    "wgmma": _COMPLETED,
    "wgmma.sp": _COMPLETED,
    "tcgen05.ld": ("tcgen05.wait::ld.sync.aligned;",),
    "tcgen05.ld.red": ("tcgen05.wait::ld.sync.aligned;",),
    "tcgen05.st": ("tcgen05.wait::st.sync.aligned;",),
}
"""What belongs before and after an instruction of a family so that its registers may be used."""


def statement(form: Form, constants: Sequence[int] = ()) -> str:
    """Return the instruction with its operands, ``mma... {d0, d1}, {a0}, {b0}, {c0, c1};``.

    Its constants are ``constants``, in order, and then what the operands have by default.
    """
    rest = iter(constants)
    operands = ", ".join(_text(operand, rest) for operand in form.signature)
    return f"{form.name} {operands}".rstrip() + ";"


def program(form: Form, target: str) -> str:
    """Return the PTX of a kernel ``specimen`` (in, out: addresses of the records) for ``target``."""
    return "\n".join([*header(target, [form]), *_kernel(form, KERNEL)]) + "\n"


def collection(forms: Sequence[Form], target: str, version: Version | None = None) -> str:
    """Return the PTX of one kernel each, ``specimen0`` and so on, that hold nothing else.

    ``version`` is the ``.version``; without it, one that knows them all.
    """
    lines = header(target, forms, version)
    for number, form in enumerate(forms):
        lines += [f".visible .entry {KERNEL}{number}()", "{", *_declarations(form)]
        lines += [f"    {statement(form)}", "}"]
    return "\n".join(lines) + "\n"


def line_of_statement(ptx: str, form: Form) -> int:
    """Return the line, from 1, of the instruction in what ``program`` returned."""
    return next(n for n, line in enumerate(ptx.splitlines(), 1) if form.name in line)


def header(target: str, forms: Sequence[Form], version: Version | None = None) -> list[str]:
    """Return the lines a module for ``target`` begins with that has all ``forms``."""
    major, minor = version or max([OLDEST_PTX, *(form.minimum_ptx for form in forms)])
    return [f".version {major}.{minor}", f".target {target}", ".address_size 64"]


def _declarations(form: Form) -> list[str]:
    operands = form.signature
    lines = [f"    .reg .{o.type} {', '.join(o.registers)};" for o in operands if o.registers]
    if any(operand.role == "address" for operand in operands):
        lines += [
            f"    .shared .align 128 .b8 tile[{_TILE_BYTES}];",
            "    .reg .b32 p;",
            "    mov.u32 p, tile;",
        ]
    return lines


def _kernel(form: Form, name: str) -> list[str]:
    operands = form.signature
    sources = [
        (r, o.type) for o in operands if o.role in ("source", "tensor memory") for r in o.registers
    ]
    results = [(r, o.type) for o in operands if o.role == "result" for r in o.registers]
    lines = [
        f".visible .entry {name}(.param .u64 in, .param .u64 out)",
        "{",
        *_declarations(form),
        "    .reg .b32 lane, truth;",
        "    .reg .b64 from, to;",
        "    mov.u32 lane, %tid.x;",
        "    ld.param.u64 from, [in];",
        "    ld.param.u64 to, [out];",
        f"    mad.wide.u32 from, lane, {WORD_BYTES * max(1, len(sources))}, from;",
        f"    mad.wide.u32 to, lane, {WORD_BYTES * max(1, len(results))}, to;",
    ]
    for i, (register, kind) in enumerate(sources):
        held = kind if kind != "pred" else "b32"
        into = register if kind != "pred" else "truth"
        lines.append(f"    ld.global.{held} {into}, [from+{WORD_BYTES * i}];")
        if kind == "pred":
            lines.append(f"    setp.ne.b32 {register}, truth, 0;")
    around = (*_BEFORE.get(form.family, ()), statement(form), *_AFTER.get(form.family, ()))
    lines += [f"    {line}" for line in around]
    lines += [
        f"    st.global.{kind} [to+{WORD_BYTES * i}], {register};"
        for i, (register, kind) in enumerate(results)
    ]
    return [*lines, "    ret;", "}"]


def _text(operand: SignatureOperand, constants: Iterator[int]) -> str:
    if operand.role == "address":
        return f"[{operand.name}]"
    if operand.role == "tensor memory":
        return f"[{operand.registers[0]}]"
    parts = operand.registers or tuple(
        str(next(constants, operand.value)) for _ in range(operand.count)
    )
    several = operand.registers or operand.count > 1
    return f"{{{', '.join(parts)}}}" if operand.braces and several else parts[0]
