"""The atlas: one HTML page with every matrix instruction, to hover, search and link to.

The page needs no network. It holds the layouts as what each bit of lane, register and element adds
to row and column, and its scripts (``atlas_page/``) draw from these. Different instructions share
most layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, TypeVar

from ptxlab.fragments import receipts
from ptxlab.matrix.form import Form
from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX, LdMatrix, MovMatrix, StMatrix
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tensor_memory import TENSOR_MEMORY_MOVES
from ptxlab.matrix.wgmma import WGMMA
from ptxlab.matrix.wmma import WMMA_MOVES
from ptxlab.matrix.wmma_move import WmmaMove
from ptxlab.numbers.synonyms import ALL_CALLED
from ptxlab.verbs.fragments.atlas_search import elsewhere, machine_name
from ptxlab.verbs.fragments.atlas_tables import Tables
from ptxlab.view.json import members
from ptxlab.view.page import assembled, embedded, lane_schemes

SCRIPTS = (
    "layouts.js",
    "copy.js",
    "choice.js",
    "search.js",
    "figure.js",
    "warpgroup.js",
    "code.js",
    "inspector.js",
    "shared_memory.js",
    "events.js",
)
EVERY_NAME = {"mma", "wmma", "sp", "sync", "aligned", "row", "col"}
NO_LAYOUT_OF_ITS_OWN = "wmma"
"""The family whose fragments PTX leaves open."""
WMMA_FRAGMENTS = "Warp-level Matrix Fragment"
"""The section about what is drawn of its loads and stores, which is not that about themselves."""
NUMBER = "{n}"
"""What stands for the number in names and shapes of a group."""
COLUMNS = {"D": 8, "R": 16}
"""How many columns of the operand that it scales are drawn at once."""
Alike = TypeVar("Alike", bound=Form)
AtlasMove = LdMatrix | StMatrix | MovMatrix | WmmaMove
MOVES: tuple[AtlasMove, ...] = (*LDMATRIX, *STMATRIX, MOVMATRIX, *WMMA_MOVES)
"""The instructions that move matrices between memory and registers, or within registers."""


def page(instructions: Sequence[MatrixInstruction], chosen: Form) -> str:
    """Return the page with all ``instructions`` and all moves, opened at ``chosen``."""
    folder = files("ptxlab.verbs.fragments") / "atlas_page"
    told = data(instructions, chosen)
    parts = {"title": "ptxlab atlas", "colours": lane_schemes(), "data": embedded(told)}
    return assembled(folder, SCRIPTS, parts)


def data(instructions: Sequence[MatrixInstruction], chosen: Form) -> dict[str, Any]:
    tables = Tables()
    proven = receipts.proven()
    return {
        "first": chosen.key,
        "instructions": [_instruction(instruction, tables, proven) for instruction in instructions],
        "moves": [_move(move, tables, proven) for move in MOVES],
        "groups": list(_groups(tables, proven)),
        "elsewhere": list(elsewhere()),
        "synonyms": ALL_CALLED,
        **tables.as_json(),
    }


def _instruction(
    instruction: MatrixInstruction, tables: Tables, hardware: Mapping[str, str]
) -> dict[str, Any]:
    i = instruction
    result = i.d_type if i.d_type == i.c_type else f"{i.d_type}, C {i.c_type}"
    entry: dict[str, Any] = {
        **members(i, "name", "family", "shape"),
        "mnk": [i.m, i.n, i.k],
        "types": f"{_inputs(i)} → {result}",
        "dtypes": dict(zip("ABCD", (i.a_type, i.b_type, i.c_type, i.d_type), strict=True)),
        "more": _more(i),
        **_needs(i, hardware),
    }
    if i.family == NO_LAYOUT_OF_ITS_OWN:
        entry["open"] = True
    if i.bit_operation:
        entry["operation"] = i.bit_operation
    entry["section"] = tables.section(i.section)
    entry["operands"] = tables.operands(i)
    if not i.layout_open:
        tables.accesses(i)
    if i.metadata:
        entry["sparse"] = tables.sparse(i.metadata)
    if i.scales:
        entry["scales"] = {scale.operand: tables.scale(scale) for scale in i.scales}
    return entry


def _inputs(instruction: MatrixInstruction) -> str:
    return " × ".join(dict.fromkeys((instruction.a_type, instruction.b_type)))


def _needs(form: Form, hardware: Mapping[str, str]) -> dict[str, Any]:
    return {
        "sass": machine_name(form),
        "needs": form.minimum_target,
        "ptx": form.version,
        "hardware": hardware.get(form.key),
    }


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


def _move(move: AtlasMove, tables: Tables, hardware: Mapping[str, str]) -> dict[str, Any]:
    family, section, shown = move.family, move.section, {}
    match move:
        case LdMatrix() | StMatrix():
            about: dict[str, Any] = {
                "shape": move.shape,
                "types": f"x{move.matrices} {move.dtype}",
                "more": "trans" if move.trans else "",
                "load": {
                    **members(move, "matrices", "rows"),
                    "store": isinstance(move, StMatrix),
                    "fragment": tables.layout(move.fragment),
                },
            }
        case MovMatrix():
            about = {"shape": "m8n8", "types": "b16", "more": "trans"}
            titles = {"A": "source", "D": "destination"}
            shown = {"operands": tables.operands(move), "titles": titles}
        case WmmaMove():
            name, verb = move.layout.operand, move.opcode.split(".")[1]
            types = f"{verb} {name} {move.layout.dtype}"
            about = {"shape": move.shape, "types": types, "more": move.order, "open": True}
            shown = {"operands": tables.operands(move), "titles": {name: name}}
            family, section = "wmma.load and wmma.store", WMMA_FRAGMENTS
    return {
        "name": move.name,
        "family": family,
        **_needs(move, hardware),
        **about,
        "section": tables.section(section),
        **shown,
    }


def _alike(forms: Iterable[Alike], label: Callable[[Alike], str]) -> dict[str, list[Alike]]:
    """Return the forms that have a label together, in their order."""
    alike: dict[str, list[Alike]] = {}
    for form in forms:
        alike.setdefault(label(form), []).append(form)
    return alike


def _groups(tables: Tables, hardware: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield entries for instructions that differ in one number alone: n of ``wgmma``, or how often a
    ``tcgen05`` shape is repeated.

    One stands for all of them, with the layouts of the largest. The number scales one operand: a
    smaller instruction has its first columns in its first registers.
    """

    def group(form: Form, name: str, choices: Sequence[int], letter: str) -> dict[str, Any]:
        scaled = form.operands[-1].operand
        return {
            "family": form.family,
            **_needs(form, hardware),
            "section": tables.section(form.section),
            "operands": tables.operands(form),
            "name": name,
            "choices": choices,
            "letter": letter,
            "scaled": scaled,
            "columns": COLUMNS[scaled],
        }

    multiplying = _alike(WGMMA, lambda form: form.key.replace(f"n{form.n}k", f"n{NUMBER}k"))
    for name, instructions in multiplying.items():
        last = instructions[-1]
        tables.accesses(last)
        entry = group(last, name, [instruction.n for instruction in instructions], "n") | {
            "sass": machine_name(last).replace(f"x{last.n}x", f"x{NUMBER}x"),
            "shape": f"m{last.m}n{NUMBER}k{last.k}",
            "mnk": [last.m, last.n, last.k],
            "types": f"{_inputs(last)} → {last.d_type}",
            "dtypes": {"A": last.a_type, "B": last.b_type, "D": last.d_type},
            "more": " ".join(["satfinite"] * last.satfinite + [last.variant]),
            "shared": {
                operand.operand: members(operand, "rows", "cols", "bits") for operand in last.shared
            },
        }
        if last.metadata:
            entry["sparse"] = tables.sparse(last.metadata)
        if last.bit_operation:
            entry["operation"] = last.bit_operation
        yield entry
    moving = _alike(
        TENSOR_MEMORY_MOVES, lambda move: move.name.replace(f".x{move.count}", f".x{NUMBER}")
    )
    for name, moves in moving.items():
        move = moves[-1]
        yield group(move, name, [each.count for each in moves], "x") | {
            "shape": move.shape,
            "types": move.reduction or "b32",
            "more": ("pack" if move.verb == "ld" else "unpack") if move.packed else "",
            "titles": {"R": "lanes × columns of Tensor Memory"},
        }
