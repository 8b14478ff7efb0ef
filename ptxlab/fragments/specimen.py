"""A PTX program for any one matrix instruction, generated from its operands.

Each thread reads its sources from a record, 8 bytes a register, and writes its results to another
one; rows of matrices lie in shared memory. It is made to be looked at, assembled and prepared.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxlab.isa.entry import Entry
from ptxlab.isa.signature import Operand, signature

KERNEL = "specimen"
OLDEST_PTX = (9, 0)
"""A ``.version`` that knows every target; an instruction may need a later one."""
WORD_BYTES = 8
_TILE_BYTES = 4096


def statement(entry: Entry) -> str:
    """Return the instruction with its operands, ``mma... {d0, d1}, {a0}, {b0}, {c0, c1};``."""
    return f"{entry.name} {', '.join(_text(operand) for operand in signature(entry.form))};"


def program(entry: Entry, target: str) -> str:
    """Return the PTX of a kernel ``specimen`` (in, out: addresses of the records) for ``target``."""
    return "\n".join([*_header(target, [entry]), *_kernel(entry, KERNEL)]) + "\n"


def collection(entries: Sequence[Entry], target: str) -> str:
    """Return the PTX of one kernel each, ``specimen0`` and so on, that hold nothing else."""
    lines = _header(target, entries)
    for number, entry in enumerate(entries):
        lines += [f".visible .entry {KERNEL}{number}()", "{", *_declarations(entry)]
        lines += [f"    {statement(entry)}", "}"]
    return "\n".join(lines) + "\n"


def line_of_statement(ptx: str, entry: Entry) -> int:
    """Return the line, from 1, of the instruction in what ``program`` returned."""
    return next(n for n, line in enumerate(ptx.splitlines(), 1) if entry.name in line)


def _header(target: str, entries: Sequence[Entry]) -> list[str]:
    major, minor = max([OLDEST_PTX, *(entry.minimum_ptx for entry in entries)])
    return [f".version {major}.{minor}", f".target {target}", ".address_size 64"]


def _declarations(entry: Entry) -> list[str]:
    operands = signature(entry.form)
    lines = [f"    .reg .{o.type} {', '.join(o.registers)};" for o in operands if o.registers]
    if any(operand.role == "address" for operand in operands):
        lines += [
            f"    .shared .align 128 .b8 tile[{_TILE_BYTES}];",
            "    .reg .b32 p;",
            "    mov.u32 p, tile;",
        ]
    return lines


def _kernel(entry: Entry, name: str) -> list[str]:
    operands = signature(entry.form)
    sources = [(r, o.type) for o in operands if o.role == "source" for r in o.registers]
    results = [(r, o.type) for o in operands if o.role == "result" for r in o.registers]
    lines = [
        f".visible .entry {name}(.param .u64 in, .param .u64 out)",
        "{",
        *_declarations(entry),
        "    .reg .b32 lane;",
        "    .reg .b64 from, to;",
        "    mov.u32 lane, %tid.x;",
        "    ld.param.u64 from, [in];",
        "    ld.param.u64 to, [out];",
        f"    mad.wide.u32 from, lane, {WORD_BYTES * max(1, len(sources))}, from;",
        f"    mad.wide.u32 to, lane, {WORD_BYTES * max(1, len(results))}, to;",
    ]
    lines += [
        f"    ld.global.{kind} {register}, [from+{WORD_BYTES * i}];"
        for i, (register, kind) in enumerate(sources)
    ]
    lines.append(f"    {statement(entry)}")
    lines += [
        f"    st.global.{kind} [to+{WORD_BYTES * i}], {register};"
        for i, (register, kind) in enumerate(results)
    ]
    return [*lines, "    ret;", "}"]


def _text(operand: Operand) -> str:
    if operand.role == "address":
        return f"[{operand.name}]"
    parts = operand.registers or ("0",) * operand.count
    return f"{{{', '.join(parts)}}}" if operand.braces else parts[0]
