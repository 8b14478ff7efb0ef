"""An instruction of the machine is a row: how it is written, what it computes, and what it does beside.

    rows("IADD3", "alu", lifted=True, uniform=True)
    rows("LDG LD", "lsu", space="global", loads=True, scoreboard="global")

The first text has opcodes that differ in nothing here, with ``uniform`` there is each with a U before it
too, which the uniform datapath runs. What a ``lifted`` one computes is told by the rule that makes PTX of it,
and by nothing else; others are not computed where a program is followed to predict its time. Everything else is a
column, so that nobody who follows, times or runs machine code asks for an opcode by name.

Which pipe: the tables of instruction throughput in the CUDA Programming Guide, Nsight Compute's
"Pipelines", and arXiv 2503.20481. What the operands are is read off what nvdisasm prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

Modifiers = tuple[str, ...]

Operands = Literal[
    "results first",
    "a predicate first",
    "predicates first",
    "one predicate out",
    "a condition",
    "nothing out",
]
"""How results stand among the operands.

``results first``: the register, then predicates that are written; those that are read stand last.
``a predicate first``: one may be written that is named before the register, and no other.
``predicates first``: the first two are predicates, not all of which are written.
``one predicate out``: of predicates behind the register only the first is written.
``a condition``: predicates stand first and are read.
``nothing out``: the first register is read.
"""

Space = Literal[
    "", "shared", "global", "generic", "local", "copy", "mbarrier", "tensor map", "tensor memory"
]
"""The memory that is accessed; ``copy`` is global memory, and shared memory that it is copied to."""

Does = Literal[
    "",
    "branch",
    "call",
    "return",
    "exit",
    "meet",
    "barrier",
    "phase",
    "cluster arrive",
    "cluster wait",
    "bulk copy",
    "close group",
    "await group",
    "product",
    "await products",
    "tensor product",
    "tensor copy",
    "tensor commit",
    "tensor allocation",
    "next cluster",
    "sleep",
]
"""What it does to threads, or has done beside them.

``meet``: lanes of a warp wait for those that parted from them. ``phase``: works on an mbarrier.
``bulk copy``: tells the tensor memory accelerator. ``product``: queues one before the tensor cores.
``close group`` and ``await group``: of the copies that a warp has under way; ``await products`` likewise.
``tensor product`` and ``tensor copy``: queues what ends in Tensor Memory, of which ``tensor commit`` tells an
mbarrier when it is done. ``tensor allocation``: takes columns of Tensor Memory, or gives them back.
``next cluster``: asks for one that has not begun, whose work it takes over.
"""

_QUEUES = ("tensor product", "tensor copy", "tensor commit", "tensor allocation")

_TENSOR_MEMORY = re.compile(r"(?P<lanes>\d+)dp(?P<bits>\d+)bit$")
"""How many lanes, and bits of each; what only half of a warp loads is named otherwise, and a register."""

_VECTORS = {"F32x2": 2, "F32x4": 4, "F16x4": 2, "F16x8": 4, "BF16x4": 2, "BF16x8": 4}
"""The registers of vectors that atomics take."""
_WIDTHS = {"WIDE": 2, "64": 2, "128": 4, "U64": 2, "S64": 2, "F64": 2, **_VECTORS}
_SIZES = {
    "U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "U64": 8, "S64": 8, "F64": 8, "128": 16, "256": 32,
    **{name: 4 * registers for name, registers in _VECTORS.items()},
}  # fmt: skip


def one_word(modifiers: Modifiers) -> int:
    return 1


def pairs(modifiers: Modifiers, source: int) -> int:
    """Return two registers for each source: all are of 64 bits."""
    return 2


def two_words_unless_32(modifiers: Modifiers) -> int:
    """Return two words but where it says 32."""
    return 1 if "32" in modifiers else 2


def accumulators(modifiers: Modifiers) -> int:
    """Return the registers of a product of tensor cores: of 8 x 8, or f16, half as many as of 16 x 8 words."""
    return 2 if "F16" in modifiers or modifiers[0].startswith("88") else 4


def matrices(modifiers: Modifiers) -> int:
    """Return the registers of the matrices that LDSM loads, of one where it does not say: ``LDSM.16.M88.4``.

    One of 16 x 16 bytes, ``LDSM.8.MT1616``, is two registers.
    """
    each = 2 if "MT1616" in modifiers else 1
    return each * int(modifiers[-1]) if modifiers[-1] in ("2", "4") else each


def tensor_registers(modifiers: Modifiers) -> int:
    """Return the registers of a load from Tensor Memory, or a store there: ``LDTM.16dp256bit.x4``."""
    shape = next((modifier for modifier in modifiers if modifier[0].isdigit()), "")
    match = _TENSOR_MEMORY.match(shape)
    times = next((int(modifier[1:]) for modifier in modifiers if modifier[0] == "x"), 1)
    return times * (int(match["lanes"]) * int(match["bits"]) // 1024 if match else 1)


def accessed_bytes(modifiers: Modifiers) -> int:
    """Return how many bytes a thread accesses in memory."""
    return next((_SIZES[modifier] for modifier in modifiers if modifier in _SIZES), 4)


@dataclass(frozen=True, slots=True)
class Row:
    """One opcode, in all its forms.

    ``pipe`` is what it holds, a name of a chip's, "" where nobody knows. An instruction of variable latency is waited for by a
    ``scoreboard``, and the column says by which of a chip's latencies. ``loads`` and ``stores`` say what it does
    to memory, ``atomic`` that it is both at once or, where nothing is loaded, a reduction.
    """

    opcode: str
    pipe: str
    lifted: bool = False
    """What it computes is what the PTX does that it becomes (``machine/lift``)."""
    for_all: bool = False
    """All threads of a warp get what it writes: its guard says of which of them."""
    floats: bool = False
    """It is about floating-point numbers that are results at most: no integer division is made of it."""
    operands: Operands = "results first"
    words: int = 1
    """Registers that it writes where no modifier says."""
    writes: Callable[[Modifiers], int] | None = None
    """How many registers it writes, by its modifiers, where that is not the usual rule."""
    of_pairs: Modifiers = ("64",)
    """Modifiers with which its sources have 64 bits."""
    sums_pairs: Modifiers = ("WIDE",)
    """Modifiers with which its third source has 64 bits."""
    reads: Callable[[Modifiers, int], int] | None = None
    """How many registers it reads in a source, by its modifiers and the source's number, where that is not the usual rule."""
    every_predicate: Literal["", "read", "written"] = ""
    slot: int = 0
    """The source slot that its first source lies in."""
    flops: int = 0
    """Floating-point operations of a thread; a fused multiply-add is two, as in NVIDIA's figures."""
    factors: str = ""
    """The type of a product's factors where no modifier says."""
    scoreboard: str = ""
    latency: str = ""
    """Whose latency it has, if not that of its pipe."""
    space: Space = ""
    loads: bool = False
    stores: bool = False
    atomic: bool = False
    matrix: bool = False
    """Each lane gives the address of a row of a matrix, and not of what it gets."""
    boxes: bool = False
    """It copies a box of a tensor map, and not bytes in a row."""
    does: Does = ""
    reads_late: bool = False
    """Uniform registers are read some time after it is issued, as others are."""

    @property
    def timed(self) -> bool:
        """Whether it is known what it holds; of the others only the registers are."""
        return bool(self.pipe)

    @property
    def multiplies(self) -> bool:
        """Whether it is a product of a warp by the tensor cores."""
        return bool(self.factors) and self.does != "product"

    @property
    def asks(self) -> bool:
        """Whether it is more than arithmetic and control: of memory, or of what is done beside the threads."""
        return bool(self.space) or self.asynchronous

    @property
    def asynchronous(self) -> bool:
        """Whether it works on mbarriers, or has done what ends their phases."""
        return self.does in ("phase", "bulk copy", "next cluster") or self.queues

    @property
    def queues(self) -> bool:
        """Whether it is for the tensor core that one thread tells, or for Tensor Memory."""
        return self.does in _QUEUES

    @property
    def flow(self) -> bool:
        """Whether it may move threads elsewhere, or have them wait."""
        return self.does in ("branch", "call", "return", "exit", "meet", "barrier")

    def written(self, modifiers: Modifiers) -> int:
        """Return how many registers in a row it writes."""
        if self.writes is not None:
            return self.writes(modifiers)
        registers = (
            _WIDTHS[modifier]
            for modifier in ("WIDE", *modifiers)
            if modifier in modifiers and modifier in _WIDTHS
        )
        return next(registers, self.words)


def rows(
    opcodes: str,
    pipe: str,
    *,
    uniform: bool = False,
    **columns: Any,
) -> Iterator[Row]:
    """Yield a row for each opcode, and with ``uniform`` its twin of the uniform datapath."""
    for opcode in opcodes.split():
        row = Row(opcode, pipe, **columns)
        yield row
        if uniform:
            yield replace(
                row,
                opcode=f"U{opcode}",
                pipe="uniform",
                scoreboard="",
                latency="",
                slot=0,
                flops=0,
            )
