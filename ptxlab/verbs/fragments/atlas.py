"""The atlas: one HTML page with every matrix instruction, to hover, search and link to.

The page needs no network. It holds the layouts as what each bit of lane, register and element adds
to row and column, and its scripts (``atlas_page/``) draw from these. Different instructions share
most layouts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

import ptxlab
from ptxlab.fragments import receipts
from ptxlab.isa.targets import WARP
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX, LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.scale import Scale
from ptxlab.matrix.sparse import Metadata
from ptxlab.matrix.wmma import WMMA_MOVES, WmmaMove
from ptxlab.verbs.fragments.atlas_groups import Tables, groups
from ptxlab.verbs.fragments.runs import vertical
from ptxlab.view.palette import lane_colour

SCRIPTS = (
    "layouts.js",
    "choice.js",
    "figure.js",
    "warpgroup.js",
    "inspector.js",
    "shared_memory.js",
    "events.js",
)
DARK = (
    "--ink: #f0f6fc; --quiet: #9198a1; --faint: #818b98; --line: #3d444d; --paper: #0d1117; "
    "--ground: #0d1117; --raised: #151b23; --accent: #79c0ff; --accent-soft: #12315a; "
    "--good: #7ee787; --good-soft: #12361f; --open: #e3b341; --open-soft: #3a2d0d; "
    "--bad: #ff9a92; --bad-soft: #4a1519;"
)
EVERY_NAME = {"mma", "wmma", "sp", "sync", "aligned", "row", "col"}
NO_LAYOUT_OF_ITS_OWN = "wmma"
"""The family whose fragments PTX leaves open."""
Move = LdMatrix | StMatrix | MovMatrix | WmmaMove
MOVES: tuple[Move, ...] = (*LDMATRIX, *STMATRIX, MOVMATRIX, *WMMA_MOVES)
"""The instructions that move matrices between memory and registers, or within registers."""


class _Index:
    """Numbers different things in the order they come."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._numbers: dict[str, int] = {}

    def number(self, item: Any) -> int:
        key = json.dumps(item)
        if key not in self._numbers:
            self._numbers[key] = len(self.items)
            self.items.append(item)
        return self._numbers[key]


def page(instructions: Sequence[MatrixInstruction], chosen: Form) -> str:
    """Return the page with all ``instructions`` and all moves, opened at ``chosen``."""
    folder = files("ptxlab.verbs.fragments") / "atlas_page"
    # "</" would end the script element; in JSON the slash may be escaped.
    text = json.dumps(data(instructions, chosen), ensure_ascii=False, separators=(",", ":"))
    parts = {
        "@version@": ptxlab.__version__,
        "@style@": (folder / "style.css").read_text("utf-8").replace("@dark@", _schemes()),
        "@data@": text.replace("</", r"<\/"),
        "@script@": "\n".join((folder / name).read_text("utf-8") for name in SCRIPTS),
    }
    html = (folder / "page.html").read_text("utf-8")
    for mark, part in parts.items():
        html = html.replace(mark, part)
    return html


def data(instructions: Sequence[MatrixInstruction], chosen: Form) -> dict[str, Any]:
    """Return what the page's script draws from, as JSON data."""
    layouts, sections, sparse, scales = (_Index() for _ in range(4))
    tables = Tables(
        lambda layout: layouts.number(compact(layout)),
        sections.number,
        lambda metadata: sparse.number(_sparse(metadata)),
    )
    proven = receipts.proven()
    listed = []
    for instruction in instructions:
        entry = _instruction(instruction, proven.get(instruction.name))
        entry["section"] = sections.number(instruction.section)
        entry["operands"] = {o.operand: layouts.number(compact(o)) for o in instruction.operands}
        if instruction.metadata:
            entry["sparse"] = sparse.number(_sparse(instruction.metadata))
        if instruction.scales:
            entry["scales"] = {s.operand: scales.number(_scale(s)) for s in instruction.scales}
        listed.append(entry)
    moves = []
    for move in MOVES:
        entry = _move(move, proven.get(move.name))
        entry["section"] = sections.number(_section(move))
        match move:
            case LdMatrix() | StMatrix():
                entry["load"]["fragment"] = layouts.number(compact(move.fragment))
            case MovMatrix():
                pair = {"A": move.source, "D": move.destination}
                entry["operands"] = {k: layouts.number(compact(o)) for k, o in pair.items()}
                entry["titles"] = {"A": "source", "D": "destination"}
            case WmmaMove():
                name = move.layout.operand
                entry["operands"] = {name: layouts.number(compact(move.layout))}
                entry["titles"] = {name: name}
        moves.append(entry)
    return {
        "first": chosen.key,
        "instructions": listed,
        "moves": moves,
        "groups": list(groups(tables, proven)),
        "layouts": layouts.items,
        "sections": sections.items,
        "sparse": sparse.items,
        "scales": scales.items,
    }


def compact(layout: FragmentLayout) -> dict[str, Any]:
    """Return a layout as JSON data: what each bit of its places adds to row and column.

    ``steps`` has for lane, register and element one (row, col) a bit, low bits first. A layout that
    is no such sum has ``cells`` in its place: the number row * cols + col of every place.
    """
    entry: dict[str, Any] = {
        "rows": layout.rows,
        "cols": layout.cols,
        "bits": layout.bits,
        "registers": layout.registers_per_lane,
        "elements": layout.elements_per_register,
        "matrices": layout.matrices,
        "vertical": vertical(layout),
    }
    if layout.threads != WARP:
        entry["threads"] = layout.threads
    table = layout.table()
    steps = [_steps(table, axis) for axis in range(3)]
    if np.array_equal(_sum(steps, table.shape), table):
        entry["steps"] = dict(zip(("lane", "register", "element"), steps, strict=True))
    else:
        entry["cells"] = (table[..., 0] * layout.cols + table[..., 1]).ravel().tolist()
    return entry


def _steps(table: np.ndarray[Any, Any], axis: int) -> list[list[int]]:
    """Return what each bit of one index adds, the other two being zero."""
    along = np.moveaxis(table, axis, 0)[:, 0, 0]
    return [along[1 << bit].tolist() for bit in range((len(along) - 1).bit_length())]


def _sum(steps: list[list[list[int]]], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the table that the steps add up to."""
    found = np.zeros(shape, np.int64)
    for axis, bits in enumerate(steps):
        index = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(4)])
        for bit, step in enumerate(bits):
            found += (index >> bit & 1) * np.array(step)
    return found


def _instruction(instruction: MatrixInstruction, hardware: str | None) -> dict[str, Any]:
    i = instruction
    inputs = i.a_type if i.a_type == i.b_type else f"{i.a_type} × {i.b_type}"
    result = i.d_type if i.d_type == i.c_type else f"{i.d_type}, C {i.c_type}"
    entry: dict[str, Any] = {
        "name": i.name,
        "family": i.family,
        "shape": i.shape,
        "mnk": [i.m, i.n, i.k],
        "types": f"{inputs} → {result}",
        "dtypes": dict(zip("ABCD", (i.a_type, i.b_type, i.c_type, i.d_type), strict=True)),
        "more": _more(i),
        "needs": i.minimum_target,
        "ptx": "{}.{}".format(*i.minimum_ptx),
        "hardware": hardware,
    }
    if i.family == NO_LAYOUT_OF_ITS_OWN:
        entry["open"] = True
    if i.bit_operation:
        entry["operation"] = i.bit_operation
    return entry


def _more(instruction: MatrixInstruction) -> str:
    """Return what the name says beyond family, shape and types."""
    i = instruction
    known = EVERY_NAME | {i.shape, i.a_type, i.b_type, i.c_type, i.d_type}
    words = [word for word in i.name.split(".") if word not in known]
    words = [word.removeprefix("sp::").removeprefix("kind::") for word in words]
    if ".row.col" not in i.name:
        order = [word for word in i.name.split(".") if word in ("row", "col")]
        words.insert(0, ".".join(order))
    return " ".join(words)


def _sparse(metadata: Metadata) -> dict[str, Any]:
    """Return the metadata of A: how much is kept, and the (lane, low bit) of each row's chunks."""
    kept, of = metadata.granularity
    places = [
        [metadata.place(row, chunk) for chunk in range(metadata.chunks)]
        for row in range(metadata.rows)
    ]
    return {"kept": kept, "of": of, "places": places}


def _scale(scale: Scale) -> dict[str, Any]:
    """Return the scales of A or B: the (lane, byte) of each line's blocks."""
    places = [
        [scale.place(line, block) for block in range(scale.blocks)] for line in range(scale.lines)
    ]
    return {"blocks": scale.blocks, "dtype": scale.dtype, "places": places}


def _move(move: Move, hardware: str | None) -> dict[str, Any]:
    """Return what loads, stores and transpositions have in common with each other."""
    entry: dict[str, Any] = {
        "name": move.name,
        "family": move.name.partition(".")[0],
        "needs": move.minimum_target,
        "ptx": "{}.{}".format(*move.minimum_ptx),
        "hardware": hardware,
    }
    match move:
        case LdMatrix() | StMatrix():
            entry |= {
                "shape": move.shape,
                "types": f"x{move.matrices} {move.dtype}",
                "more": "trans" if move.trans else "",
                "load": {
                    "matrices": move.matrices,
                    "rows": move.rows,
                    "store": isinstance(move, StMatrix),
                },
            }
        case MovMatrix():
            entry |= {"shape": "m8n8", "types": "b16", "more": "trans"}
        case WmmaMove():
            types = f"{move.layout.operand} {move.layout.dtype}"
            verb = move.opcode.split(".")[1]
            entry |= {"shape": move.shape, "types": f"{verb} {types}", "more": move.order}
            entry |= {"family": "wmma.load and wmma.store", "open": True}
    return entry


def _section(move: Move) -> str:
    """Return the PTX ISA section by title."""
    match move:
        case MovMatrix():
            return "Warp-level matrix transpose instruction: movmatrix"
        case WmmaMove():
            return "Warp-level Matrix Fragment"
    verb = "store" if isinstance(move, StMatrix) else "load"
    return f"Warp-level matrix {verb} instruction: {move.name.partition('.')[0]}"


def _schemes() -> str:
    """Return the lanes' colours, and all colours of the dark scheme: asked for, or the system's."""
    names = [f"--l{lane}: {lane_colour(lane, dark=False)};" for lane in range(WARP)]
    dark_names = [f"--l{lane}: {lane_colour(lane, dark=True)};" for lane in range(WARP)]
    uses = "".join(f".l{lane}{{fill:var(--l{lane})}}" for lane in range(WARP))
    dark = f"{DARK} {' '.join(dark_names)}"
    return "\n".join(
        [
            f":root {{ {' '.join(names)} }}",
            f':root[data-scheme="dark"] {{ color-scheme: dark; {dark} }}',
            ':root[data-scheme="light"] { color-scheme: light; }',
            "@media (prefers-color-scheme: dark) {",
            f'  :root:not([data-scheme="light"]) {{ {dark} }}',
            "}",
            uses,
        ]
    )
