"""What each instruction of a kernel costs on a chip, looked up once before the clock runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ptxlab.errors import Unsupported
from ptxlab.prediction import wgmma
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.code import DecodedInstruction, NotFollowed
from ptxlab.prediction.operands import UNIFORM, ZERO_REGISTER, Immediate, SassName, SassRegister
from ptxlab.prediction.pipes import BULK, OPCODES

FIXED, MEMORY, VARIABLE, BARRIER, ARRIVE, EXIT, GROUP, PENDING = range(8)
"""How an instruction is dealt with: the last two close a group of copies, and wait for some."""

SYNC, TMA, PRODUCT, PRODUCTS, CLUSTER_ARRIVE, CLUSTER_WAIT, SLEEP = range(8, 15)
"""An mbarrier's, a bulk copy, a warpgroup's product, one that waits for some, a cluster's barrier, a pause."""

_NEEDS = {
    "UTMALDG": "tma", "UTMASTG": "tma", BULK: "tma", "SYNCS": "cluster", "UCGABAR_ARV": "cluster", "UCGABAR_WAIT": "cluster",
}  # fmt: skip
"""The latency that a chip must have for an instruction, which some have not."""

_ONE_SOURCE = ("MOV", "IABS", "POPC", "FLO", "BREV", "I2F", "F2I", "MUFU", "F2F", "I2FP")
"""Whose only source lies in the second slot."""

_SHAPES = {
    "884": (8, 8, 4), "1684": (16, 8, 4), "1688": (16, 8, 8), "16816": (16, 8, 16),
    "16832": (16, 8, 32), "16864": (16, 8, 64), "8816": (8, 8, 16), "8832": (8, 8, 32),
}  # fmt: skip


_BITS = {
    "bf16": 16, "f16": 16, "tf32": 32, "f32": 32, "s32": 32, "s8": 8, "s4": 4, "e4m3": 8, "e2m1": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InstructionTiming:
    """One instruction: ``pipes`` it may take, each held for ``hold`` cycles.

    ``latency`` is until its scoreboard is released, of a request when it is served at once. ``reads``
    are the registers it reads as (bank, slot, register, kept for reuse). ``group`` is the scoreboard
    and how many groups may be open for PENDING, the barrier and its threads for BARRIER and ARRIVE.
    ``hits`` is the part of its lines that the L2 cache has.
    """

    kind: int
    pipes: tuple[str, ...]
    hold: float
    latency: int
    stall: int
    waits: tuple[int, ...]
    writes: int | None
    frees: int | None
    reads: tuple[tuple[int, int, int, bool], ...]
    loads: bool = False
    cached: bool = False
    copies: bool = False
    group: tuple[int, int] = (0, 0)
    hits: float = 1.0


def timings(
    code: Sequence[DecodedInstruction],
    executed: Iterable[int],
    chip: Chip,
    hits: Mapping[int, float],
) -> dict[int, InstructionTiming]:
    """Return the timing of the instructions that are executed, by number; ``hits`` are less than 1."""
    return {n: replace(_told(code[n], chip), hits=hits.get(n, 1.0)) for n in executed}


def _told(i: DecodedInstruction, chip: Chip) -> InstructionTiming:
    try:
        return _timing(i, chip)
    except Unsupported as error:
        raise NotFollowed(error, i) from None


def _timing(i: DecodedInstruction, chip: Chip) -> InstructionTiming:
    row = OPCODES.get(i.sass.opcode)
    if row is None:
        raise Unsupported(f"no timing is known of '{i.sass.text}'")
    if _NEEDS.get(i.sass.opcode, "l2") not in chip.latency:
        raise Unsupported(f"no timing is known of '{i.sass.text}' on {chip.gpu.name}")
    kind, group = _kind(i, bool(row.memory), bool(row.latency))
    pipes, hold = _pipes(i, row.pipe, chip) if kind != PRODUCT else ((), wgmma.held(i, chip))
    opcode = i.sass.opcode
    loads = opcode in ("LDG", "LD", "LDL", "LDS", "LDSM", "LDGSTS", "ATOM", "ATOMG", "ATOMS")
    latency = chip.latency.get(row.latency or ("tensor" if kind == PRODUCT else row.pipe), 0) + (
        2 if i.has("128") and row.memory else 0
    )
    if kind == SLEEP:
        latency = _slept(i, chip)
    c = i.control
    return InstructionTiming(
        kind, pipes, hold, latency, c.stall, c.waits, c.writes, c.reads,
        _reads(i) if kind == FIXED else (),
        loads,
        loads and not any(map(i.has, ("BYPASS", "STRONG", "CONSTANT"))) and "ATOM" not in opcode,
        opcode == "LDGSTS" or (kind == PRODUCT and any(one == SassName("gsb0") for one in i.operands)),
        group,
    )  # fmt: skip


def _kind(i: DecodedInstruction, memory: bool, variable: bool) -> tuple[int, tuple[int, int]]:
    opcode = i.sass.opcode
    if opcode == "BAR":
        number, threads = (*(_number(one) for one in i.sources), 0, 0)[:2]
        return (ARRIVE if i.has("ARV") else BARRIER), (number, threads)
    if opcode == "DEPBAR":
        scoreboard = i.operands[0]
        assert isinstance(scoreboard, SassName)
        return PENDING, (int(scoreboard.text.removeprefix("SB")), _number(i.operands[1]))
    if opcode == "WARPGROUP" and i.has("DEPBAR"):
        return PRODUCTS, (0, _number(i.operands[1]))
    simple = {
        "EXIT": EXIT, "LDGDEPBAR": GROUP, "UTMACMDFLUSH": GROUP,
        "UCGABAR_ARV": CLUSTER_ARRIVE, "UCGABAR_WAIT": CLUSTER_WAIT, "SYNCS": SYNC, "UTMALDG": TMA, "UTMASTG": TMA, BULK: TMA,
        **dict.fromkeys(wgmma.OPCODES, PRODUCT),
    }  # fmt: skip
    if opcode == "NANOSLEEP" and not i.has("SYNCS"):  # which an mbarrier ends
        return SLEEP, (0, 0)
    if opcode in simple:
        return simple[opcode], (0, 0)
    return (MEMORY if memory else VARIABLE if variable else FIXED), (0, 0)


def _slept(i: DecodedInstruction, chip: Chip) -> int:
    """Return the cycles of a pause: as long as is asked for, of up to twice that; PTX ISA, nanosleep."""
    (asked,) = i.operands
    if i.guard is not None or not isinstance(asked, Immediate):
        raise Unsupported(f"for how long '{i.sass.text}' pauses is not in the machine code")
    return asked.value * chip.gpu.clock // 1000


def _number(operand: object) -> int:
    return operand.value if isinstance(operand, Immediate) else 0


def _pipes(i: DecodedInstruction, pipe: str, chip: Chip) -> tuple[tuple[str, ...], float]:
    """Return which pipes an instruction may take, and for how long."""
    holds = chip.holds
    if pipe == "tensor":
        return ("tensor",), _tensor(i, chip)
    if pipe == "fma":
        both = tuple(half for half in ("fmalite", "fmaheavy") if half in holds)
        return both, holds["fmaheavy"]
    if pipe == "fma2":
        return ("fmaheavy",), holds["fma2"]
    return ((pipe,), holds[pipe]) if pipe in holds else ((), 0)


def _tensor(i: DecodedInstruction, chip: Chip) -> float:
    """Return how long a product holds the tensor core."""
    (m, n, k), dtype, acc = _product(i)
    return 2 * m * n * k / chip.tensor_flop(dtype, acc)


def _product(i: DecodedInstruction) -> tuple[tuple[int, int, int], str, str]:
    """Return the shape of a product, and the types of its factors and of its sums, as rates are told of them."""
    shape, *types = (one for one in i.sass.modifiers if one != "SF")
    opcode, scaled = i.sass.opcode, i.has("SF")
    sums = {"F32": "f32", "F16": "f16"}.get(types[0], "s32") if types else "f16"
    if opcode == "HMMA":
        dtype = {"BF16": "bf16", "TF32": "tf32"}.get(types[-1] if types else "", "f16")
    elif opcode == "IMMA":
        dtype = {"S8": "s8", "U8": "s8", "S4": "s4", "U4": "s4"}[types[0]]
    else:  # up to 8 bits at the rate of FP8, or two of 4 bits with scales: PTX ISA, .kind of mma
        dtype = {("QMMA", False): "e4m3", ("OMMA", True): "e2m1"}.get((opcode, scaled), "")
    if shape not in _SHAPES or not dtype:
        raise Unsupported(f"no timing is known of '{i.sass.text}'")
    return _SHAPES[shape], dtype, sums


def _reads(i: DecodedInstruction) -> tuple[tuple[int, int, int, bool], ...]:
    """Return the registers read through the ports, by slot; those of a uniform file have others."""
    found = []
    first = 1 if i.sass.opcode in _ONE_SOURCE else 0
    wide = OPCODES[i.sass.opcode].pipe == "tensor"
    for slot, source in enumerate(i.sources[:3], first):
        if not isinstance(source, SassRegister) or source.number >= UNIFORM:
            continue
        if source.number == ZERO_REGISTER:
            continue
        for extra in range(_registers_of(i, slot) if wide else 1):
            number = source.number + extra
            found.append((number & 1, slot, number, slot in i.control.reuse))
    return tuple(found)


def _registers_of(i: DecodedInstruction, slot: int) -> int:
    """Return how many registers a product of tensor cores reads in a slot."""
    (m, n, k), dtype, acc = _product(i)
    bits = _BITS[dtype]
    words = (m * k * bits, k * n * bits, m * n * _BITS[acc])[slot]
    return max(words // 1024, 1)
