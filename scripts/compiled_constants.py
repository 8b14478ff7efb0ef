"""Read the latencies of each chip off what ptxas makes for it, and write ``benchmarks/constants.toml``.

    scripts/bench constants

ptxas knows how long each instruction of fixed latency takes, and writes it into its control bits: the
cycles of stall between an instruction and the first that reads its result are never fewer. Between two
of a kind that do not need each other they say how often the pipe takes one. Each operation is compiled
twice, as a chain and side by side. What waits for a scoreboard instead has no fixed latency, and no row.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxlab.device.loading import load_assembled
from ptxlab.isa.targets import TARGETS, Target
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.decode import decode
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import SassRegister
from ptxlab.prediction.chip import find, names

FILE = Path(__file__).resolve().parents[1] / "benchmarks" / "constants.toml"
HEAD = """\
# Cycles that ptxas leaves between instructions, by target: scripts/compiled_constants.py makes this file.
# latency: until the first that needs the result; issue: until the next of the kind that does not.
"""
CHAIN, BESIDE = "chain", "beside"
LENGTH = 12
"""Operations of a chain, and of those side by side."""


@dataclass(frozen=True, slots=True)
class Operation:
    """PTX that changes ``%0``, of C++ type ``ctype`` and constraint ``letter``, with ``%1`` and ``%2``.

    The ``first`` capability has it. ``paced`` is what waits for a scoreboard and still is told no faster
    than its pipe takes it.
    """

    opcode: str
    ctype: str
    letter: str
    ptx: str
    first: int = 75
    paced: bool = False


OPERATIONS = (
    Operation("FFMA", "float", "f", "fma.rn.f32 %0, %0, %1, %2;"),
    Operation("FADD", "float", "f", "add.rn.f32 %0, %0, %1;"),
    Operation("FMUL", "float", "f", "mul.rn.f32 %0, %0, %1;"),
    Operation("IMAD", "int", "r", "mad.lo.s32 %0, %0, %1, %2;"),
    Operation("IMAD.HI", "int", "r", "mul.hi.s32 %0, %0, %1;"),
    Operation("IMAD.WIDE", "long long", "l", "{.reg .s32 t, u; cvt.u32.u64 t, %0; cvt.u32.u64 u, %1; mad.wide.s32 %0, t, u, %2;}"),
    Operation("LOP3", "int", "r", "lop3.b32 %0, %0, %1, %2, 0xe8;"),
    Operation("SHF", "int", "r", "shf.l.wrap.b32 %0, %0, %1, %2;"),
    Operation("PRMT", "int", "r", "prmt.b32 %0, %0, %1, %2;"),
    Operation("HFMA2", "int", "r", "fma.rn.f16x2 %0, %0, %1, %2;"),
    Operation("DFMA", "double", "d", "fma.rn.f64 %0, %0, %1, %2;"),
    Operation("MUFU", "float", "f", "ex2.approx.ftz.f32 %0, %0;", paced=True),
    Operation("REDUX", "int", "r", "redux.sync.add.s32 %0, %0, -1;", first=80, paced=True),
    Operation("IDP", "int", "r", "dp4a.s32.s32 %0, %1, %2, %0;"),
    Operation("VABSDIFF", "int", "r", "sad.s32 %0, %0, %1, %2;"),
    Operation("VIMNMX3", "int", "r", "{.reg .s32 t; max.s32 t, %0, %1; max.s32 %0, t, %2;}", first=90),
    Operation("FMNMX3", "float", "f", "max.f32 %0, %0, %1, %2;", first=100),
    Operation("FFMA2", "unsigned long long", "l", "fma.rn.f32x2 %0, %0, %1, %2;", first=100),
    Operation("ISETP", "int", "r", "{.reg .pred p; setp.lt.s32 p, %0, %1; @p mul.lo.s32 %0, %0, %2;}"),
)  # fmt: skip

PRODUCTS = {75: ("m16n8k8", 2, 1), 80: ("m16n8k16", 4, 2)}
"""The widest product of f16 to f32 by the first capability that has it: shape, registers of A and of B."""


def source(target: Target) -> str:
    """Return CUDA C with two kernels an operation: ``FFMA_chain``, ``FFMA_beside``."""
    kernels = [
        _kernel(operation, how) for operation in _operations(target) for how in (CHAIN, BESIDE)
    ]
    return "\n".join([*kernels, *(_product(target, how) for how in (CHAIN, BESIDE))])


def _operations(target: Target) -> list[Operation]:
    return [operation for operation in OPERATIONS if operation.first <= target.capability]


def _kernel(operation: Operation, how: str) -> str:
    values = 1 if how == CHAIN else LENGTH
    steps = "\n".join(
        f'    asm volatile("{operation.ptx}" : "+{operation.letter}"(x[{n % values}]) : "{operation.letter}"(a), "{operation.letter}"(b));'
        for n in range(LENGTH)
    )
    return f"""\
extern "C" __global__ void {_named(operation.opcode, how)}({operation.ctype} *p, {operation.ctype} a, {operation.ctype} b) {{
    {operation.ctype} x[{values}];
    for (int i = 0; i < {values}; i++) x[i] = p[i * 32 + threadIdx.x];
    __syncthreads();
{steps}
    for (int i = 0; i < {values}; i++) p[i * 32 + threadIdx.x] = x[i];
}}"""


def _named(opcode: str, how: str) -> str:
    return f"{opcode.replace('.', '_')}_{how}"


def _product(target: Target, how: str) -> str:
    first = max(capability for capability in PRODUCTS if capability <= target.capability)
    shape, of_a, of_b = PRODUCTS[first]
    values = 1 if how == CHAIN else 4
    a = ", ".join(f"%{4 + n}" for n in range(of_a))
    b = ", ".join(f"%{4 + of_a + n}" for n in range(of_b))
    ptx = f"mma.sync.aligned.{shape}.row.col.f32.f16.f16.f32 {{%0, %1, %2, %3}}, {{{a}}}, {{{b}}}, {{%0, %1, %2, %3}};"
    taken = ", ".join(f'"r"(q[{n}])' for n in range(of_a + of_b))
    steps = "\n".join(
        f'    asm volatile("{ptx}" : {", ".join(f"{chr(34)}+f{chr(34)}(x[{n % values}][{i}])" for i in range(4))} : {taken});'
        for n in range(4)
    )
    return f"""\
extern "C" __global__ void HMMA_{how}(float *p, const int *given) {{
    float x[{values}][4];
    int q[{of_a + of_b}];
    for (int i = 0; i < {of_a + of_b}; i++) q[i] = given[i * 32 + threadIdx.x];
    for (int i = 0; i < {4 * values}; i++) x[i / 4][i % 4] = p[i * 32 + threadIdx.x];
    __syncthreads();
{steps}
    for (int i = 0; i < {4 * values}; i++) p[i * 32 + threadIdx.x] = x[i / 4][i % 4];
}}"""


def latency(code: Sequence[DecodedInstruction], opcode: str) -> int | None:
    """Return the fewest cycles between an instruction and the next of its kind, or guarded one, that needs it."""
    return min((n for n, needs in _between(code, opcode) if needs), default=None)


def issue(code: Sequence[DecodedInstruction], opcode: str, paced: bool = False) -> int | None:
    """Return the fewest cycles between two of a kind that do not need each other."""
    return min((n for n, needs in _between(code, opcode, paced) if not needs), default=None)


def _between(
    code: Sequence[DecodedInstruction], opcode: str, paced: bool = False
) -> Iterator[tuple[int, bool]]:
    """Yield the cycles from each instruction of an opcode to the next such, or guarded by it; whether that needs it.

    What waits for a scoreboard counts only if ``paced``.
    """
    for first in (i for i in code if _is(i, opcode) and (paced or i.control.writes is None)):
        cycles, outs = first.control.stall, [operand.number for operand in first.outs]
        for later in code[first.number + 1 :]:
            guarded = later.guard is not None and later.guard.number in outs
            if guarded or _is(later, opcode):
                yield cycles, guarded or _reads(later, first)
                break
            cycles += max(later.control.stall, 1)


def _is(i: DecodedInstruction, opcode: str) -> bool:
    name, *modifiers = opcode.split(".")
    return i.sass.opcode == name and all(map(i.has, modifiers))


def _reads(later: DecodedInstruction, first: DecodedInstruction) -> bool:
    read = {source.number for source in later.sources if isinstance(source, SassRegister)}
    return first.dest is not None and first.dest.number in read


def constants(target: Target) -> dict[str, dict[str, int]]:
    """Compile the operations for a target, and return the cycles by kind and opcode."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "operations.cu"
        file.write_text(source(target), encoding="utf-8")
        assembly = Assembly(*load_assembled(file, target))
    constants: dict[str, dict[str, int]] = {"latency": {}, "issue": {}}
    for operation in (*_operations(target), Operation("HMMA", "float", "f", "")):
        chain, beside = (
            decode(assembly.cubin, assembly.functions, _named(operation.opcode, how))
            for how in (CHAIN, BESIDE)
        )
        for kind, cycles in (
            ("latency", latency(chain, operation.opcode)),
            ("issue", issue(beside, operation.opcode, operation.paced)),
        ):
            if cycles is not None:
                constants[kind][operation.opcode] = cycles
    return constants


def _key(opcode: str) -> str:
    return f'"{opcode}"' if "." in opcode else opcode


def main() -> int:
    """Write the file."""
    targets = dict.fromkeys(find(name).gpu.target.name for name in names())
    lines = [HEAD]
    for name in targets:
        for kind, cycles in constants(TARGETS[name]).items():
            rows = (f"{_key(opcode)} = {count}" for opcode, count in cycles.items())
            lines.append("\n".join([f"[{name}.{kind}]", *rows, ""]))
    FILE.write_text("\n".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
