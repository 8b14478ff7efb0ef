"""What each instruction of a kernel costs on a chip, looked up once before the clock runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.latencies import DEPTH_OF_PRODUCT
from ptxlab.machine.operands import (
    UNIFORM,
    ZERO_REGISTER,
    Immediate,
    SassAddress,
    SassName,
    SassRegister,
)
from ptxlab.machine.products import BITS, other_factors, product, sums_of_warpgroup
from ptxlab.machine.row import Row
from ptxlab.prediction.chip import Chip
from ptxlab.prediction.refusal import NotFollowed
from ptxlab.prediction.sm.ports import Read, Reads
from ptxlab.prediction.sm.run import PARTITIONS

FIXED, VARIABLE, MEMORY, BARRIER, ARRIVE, EXIT, GROUP = range(7)
"""How an instruction is dealt with: the first two meet nobody and ask for nothing, the last closes a group of copies."""

SYNC, TMA, PRODUCT, CLUSTER_ARRIVE, CLUSTER_WAIT, SLEEP, TENSOR = range(7, 14)
"""An mbarrier's, a bulk copy, a warpgroup's product, a cluster's barrier, a pause, and
what is for the tensor core that one thread tells."""

PENDING, PRODUCTS = range(14, 16)
"""Those that wait for some groups of copies, and for some products of a warpgroup."""

_NEEDS = {
    "bulk copy": "tma", "next cluster": "tma", "tensor product": "commit", "phase": "cluster", "cluster arrive": "cluster", "cluster wait": "cluster",
}  # fmt: skip
"""The latency that a chip must have for what an instruction does, which some have not."""

_KINDS = {
    "exit": EXIT, "close group": GROUP, "cluster arrive": CLUSTER_ARRIVE, "cluster wait": CLUSTER_WAIT,
    "phase": SYNC, "bulk copy": TMA, "next cluster": TMA, "product": PRODUCT, "tensor product": TENSOR,
    "tensor copy": TENSOR, "tensor commit": TENSOR, "tensor allocation": TENSOR,
}  # fmt: skip


_WARPGROUP_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)$")
_SHARED_BYTES = 128
_FUSED = {"fma": 2, "fma2": 4, "fp64": 2}
"""FLOP of a lane by what a pipe has most of: a product and a sum, of two halves at once."""
_OF_64_BITS = ("F64", "S64", "U64")
"""Conversions from and to these are as many a clock as f64 has results, where those are few: CUDA Programming Guide."""
_AS_F16 = {"e4m3": 2, "s8": 2}
"""So many times the rate of f16: NVIDIA H100 data sheet."""


LOOKUP = 1.0, 0.27
"""Cycles for the first line of a request to be looked up in L1 and for each further one: RRZE-HPC/gpu-benches, gpu-strides, 9.2 cycles
for 32 lines and 5.1 for 17, on A100 and A40 alike."""

READ_ONLY_LOOKUP = 2.0, 0.6
"""The same of ld.global.nc: convolutions on an RTX A4000 (AutoTuningAssociation/benchmark_hub) take 2.5 cycles for a request of words in
two lines, 3.1 for one of 2.9 lines, and with ld.global 2.05."""


@dataclass(frozen=True, slots=True)
class InstructionTiming:
    """One instruction: ``pipes`` it may take, each held for ``hold`` cycles.

    ``latency`` is until its scoreboard is released, of a request when it is served at once. ``reads``
    are the registers it reads as (bank, slot, register, kept for reuse). ``group`` is the scoreboard
    and how many groups may be open for PENDING, the barrier and its threads for BARRIER and ARRIVE.
    ``lookup`` are the cycles for the first line of a request and for each further one.
    ``hits`` is the part of its lines that the L2 cache has. ``through_ports`` is the same as ``reads``. ``sums`` are the registers
    that a product of a warpgroup adds to, for each cycle of it. ``merges`` says whether what it stores goes with what waits to
    leave for the same sector, as stores do and atomics do not.
    """

    kind: int
    pipes: tuple[str, ...]
    hold: float
    latency: int
    stall: int
    waits: tuple[int, ...]
    writes: int | None
    frees: int | None
    reads: tuple[Read, ...]
    loads: bool = False
    cached: bool = False
    lookup: tuple[float, float] = LOOKUP
    copies: bool = False
    group: tuple[int, int] = (0, 0)
    hits: float = 1.0
    sums: float = 0.0
    merges: bool = False
    through_ports: Reads = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "through_ports", Reads.of(self.reads))


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
    row = i.row
    if row is None or not row.timed:
        raise Unsupported(f"no timing is known of '{i.sass.text}'")
    if _NEEDS.get(row.does, "l2") not in chip.latency:
        raise Unsupported(f"no timing is known of '{i.sass.text}' on {chip.gpu.name}")
    kind, group = _kind(i, row)
    pipes, hold = _pipes(i, row.pipe, chip) if kind != PRODUCT else ((), _warpgroup(i, chip))
    latency = chip.latency.get(row.scoreboard or row.pipe, 0)
    latency += 2 if i.has("128") and row.space else 0
    if kind == PRODUCT:
        latency = DEPTH_OF_PRODUCT
    if kind == SLEEP:
        latency = _slept(i, chip)
    if row.pipe == "tmem":
        latency += round(hold)
    c = i.control
    return InstructionTiming(
        kind, pipes, hold, latency, c.stall, c.waits, c.writes, c.reads,
        _reads(i) if kind == FIXED else (),
        row.loads,
        _stays_in_l1(i, row), READ_ONLY_LOOKUP if i.has("CONSTANT") else LOOKUP,
        row.space == "copy" or (kind == PRODUCT and any(operand == SassName("gsb0") for operand in i.operands)),
        group, sums=sums_of_warpgroup(i.sass.modifiers) / hold if kind == PRODUCT else 0.0,
        merges=row.stores and not row.atomic,
    )  # fmt: skip


def _kind(i: DecodedInstruction, row: Row) -> tuple[int, tuple[int, int]]:
    """Return how an instruction is dealt with, and its group as ``InstructionTiming`` has it."""
    if row.does == "barrier":
        number, threads = (*(_number(source) for source in i.sources), 0, 0)[:2]
        return (ARRIVE if i.has("ARV") else BARRIER), (number, threads)
    if row.does == "await group":
        scoreboard = i.operands[0]
        assert isinstance(scoreboard, SassName)
        return PENDING, (int(scoreboard.text.removeprefix("SB")), _number(i.operands[1]))
    if row.does == "await products" and i.has("DEPBAR"):
        return PRODUCTS, (0, _number(i.operands[1]))
    if row.does == "sleep" and not i.has("SYNCS"):  # which an mbarrier ends
        return SLEEP, (0, 0)
    if row.does in _KINDS:
        return _KINDS[row.does], (0, 0)
    # Lanes tell each other what they have through the address units and the banks of shared memory.
    through_memory = bool(row.space) or row.latency == "agu"
    return (MEMORY if through_memory else VARIABLE if row.scoreboard else FIXED), (0, 0)


def _stays_in_l1(i: DecodedInstruction, row: Row) -> bool:
    """Say whether L1 has what an instruction asked for: loads, and what is stored to local memory (CUDA Programming Guide)."""
    if row.atomic or any(map(i.has, ("BYPASS", "STRONG"))):
        return False
    return row.loads or row.space == "local"


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
    if pipe == "xu" and any(map(i.has, _OF_64_BITS)) and holds["fp64"] > holds["xu"]:
        pipe = "fp64"
    if pipe == "fma":
        both = tuple(half for half in ("fmalite", "fmaheavy") if half in holds)
        return both, holds["fmaheavy"] * _numbers(i)
    if pipe == "fmaheavy":  # ptxas leaves twice as long behind products of 64 bits
        return (pipe,), holds[pipe] * (2 if i.sums_pairs else 1)
    if pipe == "fma2":
        return ("fmaheavy",), holds["fma2"]
    if pipe == "tmem":
        return (pipe,), holds["tmem" if i.dest else "tmem_store"] * i.written
    return ((pipe,), holds[pipe]) if pipe in holds else ((), 0)


def _numbers(i: DecodedInstruction) -> int:
    """Return how many results of 32 bits a lane has of an FMA pipe: FFMA2 two, for which it takes twice as long."""
    return i.written if i.known.pipe == "fma" else 1


def peak(i: DecodedInstruction, chip: Chip) -> float | None:
    """Return the most FLOP a clock and SM where an instruction is computed, None where nobody says."""
    if i.does == "product":
        return chip.gpu.tensor.get(_warpgroup_types(i))
    if i.known.pipe == "tensor":
        return chip.gpu.tensor.get(_product(i)[1:])
    pipes, hold = _pipes(i, i.known.pipe, chip)
    return PARTITIONS * len(pipes) * WARP * _FUSED[i.known.pipe] * _numbers(i) / hold


def multiplying(i: DecodedInstruction, chip: Chip) -> float:
    """Return which part of what the tensor core has multiplies while a product holds it: bits of factors in a clock.

    Sums of f32 take GeForce's twice as long as those of f16, and no more is multiplied; mma.sync does not reach all on some chips.
    """
    if i.does in ("product", "tensor product"):
        return 1.0
    _, dtype, acc = _product(i)
    most = max(rate * BITS[of] for (of, _), rate in chip.gpu.tensor.items() if of in BITS)
    return chip.tensor_flop(dtype, acc) * PARTITIONS * BITS[dtype] / most


def product_shape(i: DecodedInstruction) -> tuple[int, int, int]:
    """Return m, n and k of a warp's product, or of a warpgroup's."""
    return _warpgroup_shape(i) if i.does == "product" else _product(i)[0]


def _tensor(i: DecodedInstruction, chip: Chip) -> float:
    """Return how long a product holds the tensor core."""
    (m, n, k), dtype, acc = _product(i)
    return 2 * m * n * k / chip.tensor_flop(dtype, acc)


def _product(i: DecodedInstruction) -> tuple[tuple[int, int, int], str, str]:
    """Return the shape of a product, and the types of its factors and of its sums, as rates are told of them."""
    told = product(i.sass.modifiers, i.known.factors)
    # Up to 8 bits are at the rate of FP8, or two of 4 bits with scales: PTX ISA, .kind of mma.
    scaled = told is not None and told[1] in ("e4m3", "e2m1") and i.has("SF") != (told[1] == "e2m1")
    if told is None or scaled:
        raise Unsupported(f"no timing is known of '{i.sass.text}'")
    return told


def _reads(i: DecodedInstruction) -> tuple[Read, ...]:
    """Return the registers read through the ports, by slot; those of a uniform file have others."""
    ports = []
    wide = i.known.reads if i.known.pipe in ("tensor", "fma") else None
    for slot, source in enumerate(i.sources[:3], i.known.slot):
        if not isinstance(source, SassRegister) or source.number >= UNIFORM:
            continue
        if source.number == ZERO_REGISTER:
            continue
        for extra in range(wide(i.sass.modifiers, slot) if wide else 1):
            number = source.number + extra
            ports.append((number & 1, slot, number, slot in i.control.reuse))
    return tuple(ports)


def _warpgroup(i: DecodedInstruction, chip: Chip) -> float:
    """Return how many cycles a warpgroup's product holds the tensor core of each sub-partition.

    One of m64nNk16 takes N / 2 cycles of an SM that multiplies 4096 FLOP a clock. What is in shared memory
    comes at 128 bytes a clock, A too where it lies there: with N below 64 that is slower, 16 + N / 4 cycles.
    NVIDIA H100 Tensor Core GPU Architecture: the rate, and the width of shared memory.
    """
    m, n, k = _warpgroup_shape(i)
    dtype, acc = _warpgroup_types(i)
    of_f16 = chip.gpu.tensor.get(("f16", "f32"))
    rate = (
        _AS_F16[dtype] * of_f16
        if of_f16 and dtype in _AS_F16
        else chip.gpu.tensor.get((dtype, acc))
    )
    if rate is None or i.has("SP"):
        raise Unsupported(f"no timing is known of '{i.sass.text}'")
    first = next(iter(i.sources), None)
    rows = n + (m if isinstance(first, SassAddress) else 0)
    return max(2 * m * n * k / rate, rows * k * BITS[dtype] / 8 / _SHARED_BYTES)


def _warpgroup_shape(i: DecodedInstruction) -> tuple[int, int, int]:
    """Return m, n and k of a product."""
    match = _WARPGROUP_SHAPE.match(i.sass.modifiers[0])
    if match is None:
        raise Unsupported(f"no timing is known of '{i.sass.text}'")
    m, n, k = map(int, match.groups())
    return m, n, k


def _warpgroup_types(i: DecodedInstruction) -> tuple[str, str]:
    modifiers, factors = i.sass.modifiers, i.known.factors
    dtype = other_factors(modifiers, factors)
    acc = "s32" if factors == "s8" else "f16" if modifiers[1] == "F16" else "f32"
    return dtype, acc
