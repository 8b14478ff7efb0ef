"""How many cycles an instruction must be issued after another whose result it reads, or overwrites.

Mesa's compiler NAK has these from NVIDIA, for Ampere and Ada (``sm80_instr_latencies.rs``) and for
Blackwell (``latencies/sm100``); where both speak they agree, and what ptxas makes for sm_80 to sm_120 never
has fewer and mostly has just as many. Products are told apart by target: read off ptxas. What takes a time that is
not known before, and is waited for by a scoreboard, a chip's file in ``prediction/chips`` has.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptxlab.machine import uses
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.operands import RPC, UNIFORM, UNIFORM_PREDICATE, SassRegister

LONGEST = 30
"""No latency is longer."""

_Table = Mapping[str, Mapping[str, int]]


def _table(text: str) -> _Table:
    """Read a table whose first line names writers, and every other a reader and its cycles."""
    head, *lines = (line.split() for line in text.strip().splitlines())
    return {reader: dict(zip(head, map(int, cycles), strict=True)) for reader, *cycles in lines}


_REGISTERS = _table("""
              alu fma half half_f32 half_alu wide_low wide_high pair half_mma fp64
    alu         4   5    5        5        5        3         5    6       10   10
    fma         5   4    5        5        5        2         4    6       10   10
    factor      5   4    5        5        5        4         6    6       10   10
    high_sum    3   2    3        3        3        2         2    4        8    8
    half        5   5    4        5        5        3         5    6       10   10
    half_f32    5   5    5        5        5        3         5    6       10   10
    half_alu    5   5    5        5        4        3         5    6       10   10
    half_mma    6   6    6        6        6        6         6    6        6   10
    fp64        6   6    6        6        6        6         6    6        6    8
    product     7   7    7        7        7        7         7    7       11   11
    decoupled   4   4    4        4        4        4         4    4        6    6
    agu         5   5    5        5        5        5         5    5        7    7
""")
"""Registers. ``factor`` and ``high_sum`` are sources of IMAD.WIDE and IMAD.HI: the first two, and the upper half of the third."""
_HOPPER_DOUBLES_OF_HALVES = 8
"""Cycles from HFMA2.MMA to what reads it as f64 that ptxas leaves on sm_90, where it leaves 6 on sm_80."""
_HALVES = ("half", "half_f32")
_TURING_HALVES, _TURING_OF_HALVES = 6, 8
"""Cycles from them to others of them, and to what reads them else, that ptxas leaves on sm_75."""

_PREDICATES = _table("""
              alu fma r2p fp64 r2ur
    alu         4   5   5    6    8
    fma         5   4   5    6   13
    half       13  13  13   14   13
    fp64       13  13  13    6   13
    vote       13  13  13   14   13
    decoupled  13  13  13   14   13
    guard      13  13  13   14   13
""")

_SOONER_ON_TURING = ("guard", "decoupled", "half")
"""Readers of predicates to which ptxas leaves one cycle less on sm_75."""

_UNIFORM = _table("""
              uniform move r2ur
    coupled         6    2   13
    decoupled       9    2   13
    branch         10    3   13
    constant       12    5   15
    uniform         4    2   13
    move            7    2   13
""")
"""Uniform registers; ``move`` is also what loads constants and votes."""

_UNIFORM_PREDICATES = _table("""
              uniform move
    coupled         6    1
    uniform         4    1
    branch          9    2
    decoupled      11    5
    guard          11    5
""")

_KEPT = 10
"""Cycles from what is kept in the register for program counters to where it is read there: ptxas leaves no fewer."""

_PIPES = {"fmaheavy": "fma", "fma2": "half"}
_COUPLED = ("alu", "fma", "half", "half_f32", "half_alu", "half_mma", "fp64")

_PRODUCTS = {1: (14, 13, 11, 12), 2: (16, 16, 14, 15), 4: (24, 24, 22, 23)}
"""By registers of A: cycles from a product to another, to coupled and decoupled instructions, to the memory pipe."""
DEPTH_OF_PRODUCT = _PRODUCTS[4][0]
"""Cycles from a product with whole matrices of A to another that adds to its sums: of a warpgroup too."""
_BLACKWELL = (20, 19, 19, 19)
_CONSUMER_BLACKWELL = (29, 28, 28, 28)
_CONSUMER_INTEGERS = (27, 26, 26, 26)


class Latencies:
    """The latencies of a target, by its compute ``capability``."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def knows(self, i: DecodedInstruction) -> bool:
        """Say whether it is known when an instruction reads and writes: of Turing's products it is not."""
        return i.row is not None and not (i.row.multiplies and self._capability == 75)

    def is_variable(self, i: DecodedInstruction) -> bool:
        """Say whether a scoreboard, and no count of cycles, tells when an instruction is done."""
        c, row = i.control, i.known
        if c.writes is not None or c.reads is not None:
            return True
        if row.scoreboard == "fp64":
            return self._capability != 90
        if row.multiplies:
            integers_of_blackwell = row.factors == "s8" and self._capability // 10 == 10
            return row.factors == "f64" or integers_of_blackwell
        return bool(row.scoreboard) and not (row.latency == "r2ur" and self._capability >= 90)

    def between(self, earlier: DecodedInstruction, later: DecodedInstruction, bits: int) -> int:
        """Return the cycles from ``earlier``, which writes ``bits``, to ``later``, which reads them."""
        return max(self._of(earlier, later, bit) for bit in uses.each(bits))

    def overtaking(self, earlier: DecodedInstruction, later: DecodedInstruction) -> int:
        """Return the cycles to ``later``, which writes the same, and must not have before ``earlier``."""
        if earlier.known.multiplies and not later.known.multiplies:
            return self._product(earlier, "coupled") - 5
        return 3 if _class(earlier) in ("half_mma", "fp64") and _class(later) in _COUPLED else 1

    def _of(self, earlier: DecodedInstruction, later: DecodedInstruction, bit: int) -> int:
        if bit >= uses.PREDICATES + UNIFORM_PREDICATE:
            return _UNIFORM_PREDICATES[_uniform_reader(later, bit)][_uniform_writer(earlier)]
        if bit >= uses.PREDICATES:
            reader = _predicate_reader(later, bit)
            sooner = self._capability == 75 and reader in _SOONER_ON_TURING
            return _PREDICATES[reader][_predicate_writer(earlier)] - sooner
        if bit in RPC.values():
            return _KEPT
        if bit >= UNIFORM:
            return _UNIFORM[_uniform_reader(later, bit)][_uniform_writer(earlier)]
        if earlier.known.multiplies:
            return self._product(earlier, _class(later))
        writer, reader = _writer(earlier, bit), _reader(later, bit)
        if (writer, reader, self._capability) == ("half_mma", "fp64", 90):
            return _HOPPER_DOUBLES_OF_HALVES
        if self._capability == 75 and writer in _HALVES:
            return _TURING_HALVES if reader.startswith("half") else _TURING_OF_HALVES
        return _REGISTERS[reader][writer]

    def _product(self, i: DecodedInstruction, reader: str) -> int:
        """Return the depth of a product, as far as it matters to a reader."""
        if self._capability >= 120:
            depths = _CONSUMER_INTEGERS if i.known.factors == "s8" else _CONSUMER_BLACKWELL
        elif self._capability >= 100:
            depths = _BLACKWELL
        else:
            assert i.known.reads is not None
            depths = _PRODUCTS[i.known.reads(i.sass.modifiers, 0)]
        return depths[{"product": 0, "decoupled": 2, "agu": 3}.get(reader, 1)]


def _class(i: DecodedInstruction) -> str:
    """Return the class of an instruction by its latency, named as that of the tables."""
    row = i.known
    if row.pipe == "fma2":
        return "half_mma" if i.has("MMA") else "half_f32" if i.has("F32") else "half"
    name = row.latency or _PIPES.get(row.pipe, row.pipe)
    if row.multiplies:
        return "product"
    return name if name in (*_COUPLED, "agu", "uniform") else "decoupled"


def _writer(i: DecodedInstruction, bit: int) -> str:
    if i.sums_pairs:
        low = i.has("WIDE") and i.dest is not None and bit == i.dest.number
        return "wide_low" if low else "wide_high"
    return "pair" if i.known.latency == "pair" and i.written == 2 else _coupled(_class(i))


def _coupled(name: str) -> str:
    """Return the class of what writes a register after a time that is known: votes are as sums are."""
    return name if name in _COUPLED else "alu"


def _reader(i: DecodedInstruction, bit: int) -> str:
    if not i.sums_pairs:
        return _class(i)
    a, b, c = (
        source.number if isinstance(source, SassRegister) else -1 for source in i.sources[:3]
    )
    if bit in (a, b):
        return "factor"
    return "high_sum" if bit == c + 1 else "fma"


def _predicate_writer(i: DecodedInstruction) -> str:
    name = i.known.latency if i.known.latency in ("r2p", "r2ur") else _class(i)
    return name if name in _PREDICATES["alu"] else "alu"


def _predicate_reader(i: DecodedInstruction, bit: int) -> str:
    if i.guard is not None and bit == uses.PREDICATES + i.guard.number:
        return "guard"
    if i.known.latency == "vote":
        return "vote"
    name = _class(i)
    return "half" if name.startswith("half") else name if name in _PREDICATES else "decoupled"


def _uniform_writer(i: DecodedInstruction) -> str:
    if i.known.latency == "r2ur":
        return "r2ur"
    return "uniform" if _class(i) == "uniform" else "move"


def _uniform_reader(i: DecodedInstruction, bit: int) -> str:
    if i.guard is not None and bit == uses.PREDICATES + i.guard.number:
        return "guard"
    name, latency = _class(i), i.known.latency
    if i.does == "branch":
        return "branch"
    if bit < uses.PREDICATES and latency in ("move", "constant"):
        return latency
    if latency in ("move", "constant", "vote", "elect") and i.known.pipe == "uniform":
        return "uniform"
    if name == "uniform":
        return "uniform"
    return "coupled" if name in _COUPLED else "decoupled"
