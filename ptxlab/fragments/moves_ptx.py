"""The moves of ``ptxlab.fragments.moves`` written as PTX."""

from __future__ import annotations

from collections.abc import Iterator

from ptxlab.emulator.prepare.forms import find
from ptxlab.errors import Unsupported
from ptxlab.fragments.code import ptx_assignment
from ptxlab.fragments.moves import CONVERSIONS, Moves, Packed, Word
from ptxlab.isa.targets import WARP, target_named
from ptxlab.matrix.bit_fields import IndexVariable, derive
from ptxlab.matrix.fragment import FragmentLayout


def ptx(moves: Moves) -> str:
    """Return the moves as a block of PTX to put into a kernel, whose registers it takes by name.

    ``d0_1`` is register 1 of tile 0 of D and ``a0`` a register of A.
    """
    d, a = moves.d, moves.a
    kind = d.dtype if d.dtype in ("f32", "s32") else "b32"
    lines = [
        f"// D of {moves.first.name}",
        f"// to A of {moves.following.name}{_needs(CONVERSIONS[d.dtype, a.dtype])}",
        f"// takes .{kind} {', '.join(map(_word, moves.words))}",
        f"// gives .b32 {', '.join(f'a{i}' for i in range(a.registers_per_lane))}",
        "{",
        *(f"    {line}" for line in _body(moves)),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _needs(conversion: str) -> str:
    """Write the least target of a conversion, and the first version in which that has it."""
    if not conversion:
        return ""
    opcode, *modifiers = conversion.split(".")
    needs = find(opcode, tuple(modifiers)).needs
    least = target_named(needs.targets[0][0])
    return "; needs {}, PTX {}.{}".format(least.name, *needs.version(least))


def _word(word: Word) -> str:
    return f"d{word[0]}_{word[1]}"


def _body(moves: Moves) -> Iterator[str]:
    """Yield the statements: packing, source lanes and selectors, then shuffles and permutations."""
    shuffled = any(move.shuffles for move in moves.moves)
    conversion = CONVERSIONS[moves.d.dtype, moves.a.dtype]
    if moves.a.bits == 8 and moves.d.dtype != "s32":
        yield ".reg .b16 low, high;"
    if not shuffled:
        for move in moves.moves:
            yield from _pack(move.packed[0], f"a{move.register}", conversion, moves.a)
        return
    names: dict[Packed, str] = {}
    for packed in dict.fromkeys(packed for move in moves.moves for packed in move.packed):
        names[packed] = f"packed{len(names)}"
    by_lane: dict[tuple[int, ...], str] = {}
    for move in moves.moves:
        for _, lanes in move.shuffles:
            by_lane.setdefault(lanes, f"from{len(by_lane)}")
    selectors = {s: f"select{i}" for i, s in enumerate({m.selectors: 0 for m in moves.moves})}
    yield f".reg .b32 lane, bits, first, second, {', '.join(names.values())};"
    yield f".reg .b32 {', '.join((*by_lane.values(), *selectors.values()))};"
    yield ".reg .pred odd;"
    yield "mov.u32 lane, %laneid;"
    for table, name in by_lane.items():
        yield from _lane_function(table, name)
    for table, name in selectors.items():
        yield from _choice(table, name)
    for packed, name in names.items():
        yield from _pack(packed, name, conversion, moves.a)
    for move in moves.moves:
        for (number, lanes), name in zip(move.shuffles, ("first", "second"), strict=True):
            source = names[move.packed[number]]
            yield f"shfl.sync.idx.b32 {name}, {source}, {by_lane[lanes]}, 31, 0xffffffff;"
        yield f"prmt.b32 a{move.register}, first, second, {selectors[move.selectors]};"


def _pack(packed: Packed, name: str, conversion: str, a: FragmentLayout) -> Iterator[str]:
    """Yield what packs the words; the first operand of a conversion of two goes to the high half."""
    words = [_word(word) for word in packed.words]
    if packed.whole:
        yield f"mov.b32 {name}, {words[0]};"
    elif len(packed.items) == 1:
        yield f"{conversion} {name}, {words[0]};"
    elif len(words) == 2 and len(packed.items) == 2:
        yield f"{conversion} {name}, {words[1]}, {words[0]};"
    elif len(words) == 2:
        yield f"{conversion} low, {words[0]};"
        yield f"{conversion} high, {words[1]};"
        yield f"mov.b32 {name}, {{low, high}};"
    elif conversion.startswith("cvt.pack"):
        yield f"{conversion} {name}, {words[3]}, {words[2]}, 0;"
        yield f"{conversion} {name}, {words[1]}, {words[0]}, {name};"
    else:
        yield f"{conversion} low, {words[1]}, {words[0]};"
        yield f"{conversion} high, {words[3]}, {words[2]};"
        yield f"mov.b32 {name}, {{low, high}};"


def _lane_function(table: tuple[int, ...], name: str) -> Iterator[str]:
    lane, result = IndexVariable("lane", 5), IndexVariable(name, 5)
    constant = table[0]
    fields = derive((lane,), (result,), lambda at: {name: table[at["lane"]] ^ constant})
    yield from ptx_assignment(fields.outputs[0], str(constant))


def _choice(table: tuple[int, ...], name: str) -> Iterator[str]:
    """Yield what chooses between two selectors by one bit of the lane."""
    for bit in range(5):
        low, high = table[0], table[1 << bit]
        if table == tuple(high if lane >> bit & 1 else low for lane in range(WARP)):
            yield f"and.b32 bits, lane, {1 << bit};"
            yield "setp.ne.u32 odd, bits, 0;"
            yield f"selp.b32 {name}, {high:#06x}, {low:#06x}, odd;"
            return
    raise Unsupported("the selector depends on more than one bit of the lane")
