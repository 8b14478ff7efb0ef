"""What the atlas is searched by beside names: opcodes of machine code, and what has no fragments to show.

Machine code is named as ptxas and nvdisasm name it: HMMA.16816 is ``mma.m16n8k16`` of f16, bf16 or tf32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ptxlab.matrix.form import AsyncInstruction, Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tcgen05 import TCGEN05
from ptxlab.matrix.wgmma import WGMMA_ORDER

_MOVES = {
    "ldmatrix": "LDSM",
    "stmatrix": "STSM",
    "movmatrix": "MOVM",
    "tcgen05.ld": "LDTM",
    "tcgen05.st": "STTM",
}
_KINDS = {
    "f16": "UTCHMMA",
    "tf32": "UTCHMMA",
    "i8": "UTCIMMA",
    "f8f6f4": "UTCQMMA",
    "mxf8f6f4": "UTCQMMA",
    "mxf4": "UTCOMMA",
    "mxf4nvf4": "UTCOMMA",
}
_FLOATS = ("f16", "bf16", "tf32")


def machine_name(form: Form) -> str:
    """Return the opcode that ``form`` has in SASS where the hardware has it, "" for what has none of its own."""
    if not isinstance(form, MatrixInstruction):
        return _MOVES.get(form.family, "")
    if form.family.startswith("wgmma"):
        sparse = ".SP" * bool(form.metadata)
        return f"{_unit(form)[0]}GMMA{sparse}.{form.m}x{form.n}x{form.k}"
    if form.layout_open:  # wmma is made of several
        return f"{_unit(form)}MMA"
    more = ".SP" * bool(form.metadata) + ".SF" * bool(form.scales)
    return f"{_unit(form)}MMA{more}.{form.m}{form.n}{form.k}"


def _unit(form: MatrixInstruction) -> str:
    """Return the letter of what multiplies: by the type of A, and of block scaling by the kind."""
    if form.a_type in _FLOATS:
        return "H"
    if form.a_type == "f64":
        return "D"
    if form.bit_operation:
        return "B"
    if form.a_type.startswith(("s", "u")):
        return "I"
    return "O" if "kind::mxf4" in form.name else "Q"


def elsewhere() -> Iterator[dict[str, Any]]:
    """Yield the families of which no thread holds an operand: a name, what finds it, and why."""
    families: dict[str, list[AsyncInstruction]] = {}
    for form in (*WGMMA_ORDER, *TCGEN05):
        families.setdefault(form.family, []).append(form)
    for name, members in families.items():
        why = f"{members[0].meaning}. It has no fragments: no operand is a matrix in registers"
        parts = [part for form in members for part in form.name.split(".")]
        opcodes = [sass for kind, sass in _KINDS.items() if f"kind::{kind}" in parts]
        if members[0].shapes:
            why = (
                f"{members[0].meaning}. No thread holds an element: A and B lie in shared memory, or A in "
                "Tensor Memory, and D in Tensor Memory, from where tcgen05.ld brings it to registers"
            )
        words = " ".join(dict.fromkeys((*parts, *opcodes)))
        yield {"name": name, "words": f"{name} {words}".lower(), "why": why}
