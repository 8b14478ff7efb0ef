"""The moves from D to A, as text and as JSON (schema ``ptxlab.fragments.moves/1``)."""

from __future__ import annotations

from typing import Any

from ptxlab.errors import PtxlabError
from ptxlab.fragments.moves import Move, Moves, moves, permuted
from ptxlab.fragments.moves_ptx import ptx
from ptxlab.matrix.catalog import matching
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.verbs.fragments.runs import Answer
from ptxlab.view.json import members
from ptxlab.view.text import aligned

SCHEMA = "ptxlab.fragments.moves/1"


def answer(instruction: MatrixInstruction, name: str) -> Answer:
    """Say how D of the instruction becomes A of the one that has the ``name``, or the parts of one.

    Without a name it is the same instruction that follows.
    """
    following = instruction
    if name:
        forms = matching(name)
        multiplying = [form for form in forms if isinstance(form, MatrixInstruction)]
        if not multiplying:
            raise PtxlabError(
                f"{forms[0].name} multiplies nothing", hint="the next instruction must take an A"
            )
        following = multiplying[0]
    if any(shared.operand == "A" for shared in following.shared):
        raise PtxlabError(
            f"A of {following.name} lies in shared memory",
            hint="take its form with A in registers: add .rs to its name",
        )
    between = moves(instruction, following)
    return lambda: text(between), lambda: as_json(between)


def text(between: Moves) -> str:
    """Return, for each register of A, where it comes from and what that takes, then the PTX."""
    tiles = "1 tile" if between.tiles == 1 else f"{between.tiles} tiles side by side"
    whole = between.first.operand("D")
    if whole.cols > between.d.cols:
        registers = between.d.registers_per_lane
        tiles = f"columns 0 to {between.d.cols - 1}; the next A is {registers} registers further on"
    title = f"D ({between.d.dtype}, {tiles}) to A ({between.a.dtype})"
    holder = between.first.operand("D").holder
    rows = [[f"a{m.register}", " + ".join(m.kinds), _origin(m, holder)] for m in between.moves]
    lines = [title, *aligned(rows, "<"), "", ptx(between)]
    if any(move.shuffles for move in between.moves):
        other = permuted(between)
        lines += [
            "Without shuffles, if B is loaded so that its row k is row p of before, with",
            f"p = {other.formula}:",
            "",
            ptx(other.moves),
        ]
    return "\n".join(lines)


def _origin(move: Move, holder: str) -> str:
    packed = [", ".join(f"d{tile}_{register}" for tile, register in p.words) for p in move.packed]
    if not move.shuffles:
        return f"of {packed[0]} of the same {holder}"
    return f"of {' and '.join(packed)} of other lanes of the quad"


def as_json(between: Moves) -> dict[str, Any]:
    """Return the same as JSON data; of every shuffle the source lane of each lane.

    ``permuted`` is the way without shuffles, null where there are none anyway.
    """
    shuffled = any(move.shuffles for move in between.moves)
    other = permuted(between) if shuffled else None
    return {
        "schema": SCHEMA,
        "from": between.first.name,
        "to": between.following.name,
        "tiles": between.tiles,
        "registers": [
            {
                **members(move, "register", "kinds"),
                "packed": [
                    [{"tile": tile, "register": register} for tile, register in packed.words]
                    for packed in move.packed
                ],
                "shuffles": [
                    {"packed": number, "source_lanes": list(lanes)}
                    for number, lanes in move.shuffles
                ],
                "selectors": [f"{selector:#06x}" for selector in move.selectors],
            }
            for move in between.moves
        ],
        "ptx": ptx(between),
        "permuted": other
        and {"columns": list(other.columns), "formula": other.formula, "ptx": ptx(other.moves)},
    }
