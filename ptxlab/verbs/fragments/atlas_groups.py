"""Instructions of the atlas that differ in one number alone, together: n of ``wgmma``, or how often a
``tcgen05`` shape is repeated.

One entry of the page stands for all of them, with the layouts of the largest. The number scales one
operand: a smaller instruction has its first columns in its first registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.tensor_memory import TENSOR_MEMORY_MOVES, TensorMemoryMove
from ptxlab.matrix.wgmma import WGMMA
from ptxlab.verbs.fragments.atlas_tables import Tables
from ptxlab.view.json import members

Alike = TypeVar("Alike", bound=Form)

NUMBER = "{n}"
"""What stands for the number in names and shapes."""
COLUMNS = {"D": 8, "R": 16}
"""How many columns of the scaled operand are drawn at once."""


def _alike(forms: Iterable[Alike], label: Callable[[Alike], str]) -> Iterator[list[Alike]]:
    """Yield the forms that have a label together, in their order."""
    found: dict[str, list[Alike]] = {}
    for form in forms:
        found.setdefault(label(form), []).append(form)
    yield from found.values()


def groups(tables: Tables, hardware: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for instructions in _alike(WGMMA, lambda form: form.key.replace(f"n{form.n}k", "nNk")):
        last = instructions[-1]
        entry = _common(last, tables, hardware)
        entry |= {
            "name": last.key.replace(f"n{last.n}k", f"n{NUMBER}k"),
            "choices": [instruction.n for instruction in instructions],
            "letter": "n",
            "scaled": "D",
            "columns": COLUMNS["D"],
            "shape": f"m{last.m}n{NUMBER}k{last.k}",
            "mnk": [last.m, last.n, last.k],
            "types": f"{_inputs(last)} → {last.d_type}",
            "dtypes": {"A": last.a_type, "B": last.b_type, "D": last.d_type},
            "more": " ".join(["satfinite"] * last.satfinite + [last.variant]),
            "shared": {one.operand: members(one, "rows", "cols", "bits") for one in last.shared},
        }
        if last.metadata:
            entry["sparse"] = tables.sparse(last.metadata)
        if last.bit_operation:
            entry["operation"] = last.bit_operation
        yield entry
    for moves in _alike(
        TENSOR_MEMORY_MOVES, lambda move: move.name.replace(f".x{move.count}", ".xN")
    ):
        move = moves[-1]
        entry = _common(move, tables, hardware)
        entry |= {
            "name": move.name.replace(f".x{move.count}", f".x{NUMBER}"),
            "choices": [each.count for each in moves],
            "letter": "x",
            "scaled": "R",
            "columns": COLUMNS["R"],
            "shape": move.shape,
            "types": move.reduction or "b32",
            "more": ("pack" if move.verb == "ld" else "unpack") if move.packed else "",
            "titles": {"R": "lanes × columns of Tensor Memory"},
        }
        yield entry


def _common(
    form: MatrixInstruction | TensorMemoryMove, tables: Tables, hardware: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "family": form.family,
        "needs": form.minimum_target,
        "ptx": "{}.{}".format(*form.minimum_ptx),
        "hardware": hardware.get(form.name),
        "section": tables.section(form.section),
        "operands": tables.operands(form),
    }


def _inputs(instruction: MatrixInstruction) -> str:
    types = dict.fromkeys((instruction.a_type, instruction.b_type))
    return " × ".join(types)
