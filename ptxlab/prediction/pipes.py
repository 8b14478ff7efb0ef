"""What each instruction of the machine is for timing: the pipe it holds, and what it reads and writes.

Which pipe: the tables of instruction throughput in the CUDA Programming Guide, Nsight Compute's
"Pipelines", and arXiv 2503.20481. An opcode that is not here is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.prediction.code import DecodedInstruction
from ptxlab.prediction.operands import Operand

_WIDE = {"64": 2, "128": 4, "U64": 2, "S64": 2, "F64": 2}
_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
REDUCTIONS = ("RED", "REDG")
"""Atomic operations that return nothing, by the names of before Hopper and since."""

BULK = "UBLKCP"
"""Copies bytes in a row: ``S.G`` to shared memory, ``G.S`` from there."""

ASYNCHRONOUS = ("SYNCS", "UTMALDG", "UTMASTG", BULK)
"""What works on mbarriers, and ends their phases."""

WIDE_SPECIAL = ("CS2R", "CS2UR")
"""Reads a special register of 64 bits, if it does not say 32."""

ATOMICS = ("ATOM", "ATOMG", "ATOMS", *REDUCTIONS)

_OF_PAIRS = ("SHF", "USHF")
"""Whose modifiers say how wide the source is, not the result."""


@dataclass(frozen=True, slots=True)
class Opcode:
    """``pipe`` is a name of ``chips``; ``memory`` the space it accesses, "" if none.

    An instruction of variable latency holds a scoreboard, and its result is there after the chip's
    ``latency`` of that name.
    """

    pipe: str
    memory: str = ""
    latency: str = ""
    words: int = 1

    def written(self, i: DecodedInstruction) -> int:
        if self.pipe == "tensor":
            return 2 if i.has("F16") or i.sass.modifiers[0].startswith("88") else 4
        opcode = i.sass.opcode
        if opcode == "LDSM":
            return matrices(i)
        if opcode in WIDE_SPECIAL:
            return 1 if i.has("32") else 2
        if opcode in _OF_PAIRS:
            return 1
        if i.has("WIDE"):
            return 2
        for modifier in i.sass.modifiers:
            if modifier in _WIDE:
                return _WIDE[modifier]
        return self.words


def matrices(i: DecodedInstruction) -> int:
    """Return how many 8 x 8 matrices LDSM loads: ``LDSM.16.M88.4``, and one where it does not say."""
    last = i.sass.modifiers[-1]
    return int(last) if last in ("2", "4") else 1


def accessed_bytes(i: DecodedInstruction) -> int:
    """Return how many bytes a thread accesses in memory."""
    return next((_SIZES[one] for one in i.sass.modifiers if one in _SIZES), 4)


def is_bulk_store(i: DecodedInstruction) -> bool:
    """Say whether an instruction copies bytes in a row to global memory."""
    return i.sass.opcode == BULK and i.sass.modifiers[0] == "G"


def is_wide(i: DecodedInstruction, place: Operand) -> bool:
    """Say whether an address of an instruction has 64 bits."""
    space = OPCODES[i.sass.opcode].memory
    return space == "global" or (space == "copy" and place is i.operands[1])


def _rows(opcode: Opcode, names: str) -> dict[str, Opcode]:
    return dict.fromkeys(names.split(), opcode)


OPCODES: dict[str, Opcode] = {
    **_rows(Opcode("fma"), "FFMA FMUL FADD"),
    **_rows(Opcode("fmaheavy"), "IMAD"),
    **_rows(Opcode("fma2"), "HFMA2 HADD2 HMUL2"),
    **_rows(
        Opcode("alu"),
        "IADD3 IADD VIADD LOP3 LEA SHF ISETP FSETP HSETP2 SEL FSEL IMNMX FMNMX HMNMX2 VIMNMX VIADDMNMX"
        " IABS PRMT MOV PLOP3 P2R R2P F2FP BMSK SGXT CS2R VOTE VOTEU I2FP CREDUX",
    ),
    **_rows(Opcode("xu", latency="xu"), "MUFU I2F F2I F2F FLO POPC BREV FRND FCHK"),
    **_rows(Opcode("fp64", latency="fp64", words=2), "DFMA DADD DMUL DSETP"),
    **_rows(Opcode("tensor"), "HMMA IMMA QMMA OMMA"),
    **_rows(
        Opcode("uniform"),
        "UIADD3 UIMAD ULEA ULOP3 USHF USEL UISETP UVIMNMX UFSETP UFADD UFMUL UFFMA UFSEL UI2F UI2FP UF2I UPRMT UMOV UPLOP3 UFLO UPOPC UBREV UBMSK USGXT CS2UR",
    ),
    **_rows(Opcode("adu", latency="adu"), "REDUX"),
    **_rows(Opcode("uniform"), "ULDC"),
    **_rows(Opcode("lsu", latency="constant"), "LDC LDCU"),
    **_rows(Opcode("lsu", latency="special"), "S2R S2UR SHFL R2UR MOVM"),
    **_rows(Opcode("lsu", "shared", "shared"), "LDS LDSM STS ATOMS"),
    **_rows(Opcode("lsu", "global", "global"), f"LDG STG LD ST ATOMG ATOM {' '.join(REDUCTIONS)}"),
    **_rows(Opcode("lsu", "copy", "global"), "LDGSTS"),
    **_rows(Opcode("lsu", "mbarrier", "shared", words=2), "SYNCS"),
    **_rows(Opcode("lsu", "tensor map", "global"), f"UTMALDG UTMASTG {BULK}"),
    **_rows(Opcode("wgmma", words=128), "HGMMA QGMMA IGMMA"),
    **_rows(Opcode("lsu", "local", "global"), "LDL STL"),
    **_rows(Opcode("control", latency="special"), "BMOV"),
    **_rows(
        Opcode("control"),
        "BRA CALL RET EXIT BAR BSSY BSYNC BREAK WARPSYNC NOP YIELD DEPBAR LDGDEPBAR MEMBAR ERRBAR CCTL"
        " WARPGROUP UCGABAR_ARV UCGABAR_WAIT CGAERRBAR ENDCOLLECTIVE FENCE USETMAXREG UTMACMDFLUSH UTMACCTL"
        " ELECT LEPC NANOSLEEP",
    ),
}
"""By opcode, without modifiers."""
