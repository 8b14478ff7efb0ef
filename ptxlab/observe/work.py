"""What an instruction is and how much it computes, read off its name.

FLOPs are counted as Nsight Compute counts them: an addition or multiplication is one, an fma two, of
each element of a packed type. What a GPU computes by several instructions (division, square
roots, ...) is none. Nor is what memory computes for an atomic.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.emulator.operations.matrix import canonical
from ptxlab.isa.types import TYPES
from ptxlab.matrix.catalog import MULTIPLICATIONS
from ptxlab.syntax.tree import Instruction

_SPACES = ("global", "shared", "local", "const", "param")

_OPCODES = {
    "floating point": "fma mad mul add sub min max abs neg div copysign testp",
    "special function": "rcp sqrt rsqrt sin cos lg2 ex2 tanh",
    "integer": "mul24 mad24 sad rem addc subc madc dp4a dp2a "
    "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset "
    "vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4",
    "logic and bits": "and or xor not cnot lop3 shl shr shf prmt bfe bfi bfind brev clz popc fns bmsk szext",
    "comparison": "setp set selp slct",
    "conversion": "cvt cvta isspacep",
    "move": "mov",
    "matrix multiply": "mma wmma",
    "matrix move": "ldmatrix stmatrix movmatrix",
    "warp": "shfl vote match redux activemask",
    "control": "bra brx call ret exit trap brkpt pmevent",
    "synchronization": "bar barrier membar fence",
    "atomic": "atom red",
    "asynchronous copy": "cp",
    "cache": "prefetch prefetchu",
}
_CLASS = {opcode: name for name, opcodes in _OPCODES.items() for opcode in opcodes.split()}

_OPERATIONS = {"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2}
"""Operations an element of what may be a floating-point instruction."""

_INTEGER_OPERATIONS = {
    "addc": 1,
    "subc": 1,
    "mul24": 1,
    "mad24": 2,
    "madc": 2,
    "dp4a": 8,
    "dp2a": 4,
}

_PACKED_FLOATS = ("f16x2", "bf16x2", "f32x2")

_FORMS = {form.name: form for form in MULTIPLICATIONS}


@dataclass(frozen=True, slots=True)
class Work:
    """The class of an instruction in the instruction mix, and what it computes.

    ``flops`` and ``integer_ops`` are those of a thread, or of the whole warp where it is ``by_warp``.
    """

    kind: str
    flops: int = 0
    integer_ops: int = 0
    by_warp: bool = False


def work(instruction: Instruction) -> Work:
    """Return what ``instruction`` is and computes."""
    opcode = instruction.opcode
    if opcode in ("mma", "wmma"):
        return _matrix(instruction)
    if opcode in ("ld", "ldu", "st"):
        verb = "store" if opcode == "st" else "load"
        spaces = [name.split("::")[0] for name in instruction.modifiers]
        space = next((space for space in _SPACES if space in spaces), "generic")
        return Work(f"{space} {verb}")
    kind = _CLASS.get(opcode, "other")
    if opcode in _INTEGER_OPERATIONS:
        return Work(kind, integer_ops=_INTEGER_OPERATIONS[opcode])
    if kind != "floating point":
        return Work(kind)
    name = next((name for name in instruction.modifiers if name in TYPES), "f32")
    elements = 2 if name.endswith("x2") else 1
    operations = elements * _OPERATIONS.get(opcode, 0)
    if TYPES[name].kind == "float" or name in _PACKED_FLOATS:
        return Work(kind, flops=operations)
    return Work("integer", integer_ops=operations)


def _matrix(instruction: Instruction) -> Work:
    form = _FORMS.get(canonical(instruction))
    if form is None:
        return Work("matrix move")
    if form.d_type == "s32":
        return Work("matrix multiply", integer_ops=form.flops, by_warp=True)
    return Work("matrix multiply", flops=form.flops, by_warp=True)
