"""Which matrix instruction a name is, with its modifiers in any order: by the table of its opcode alone.

Making a table takes some hundredths of a second, which what runs a program can spare for all others.
Source: ptxas of CUDA 13.0, which takes the modifiers in any order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from ptxlab.matrix.form import Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.numbers.types import is_type

_OPCODE = re.compile(r"wmma\.mma|wmma\.\w+\.\w|\w+")
_UNSAID = re.compile(r"shared(::cta|::cluster)?|global|collector::\w+::\w+|ashift|exclusive")
"""Modifiers that no form is told by: state spaces, and how ``tcgen05`` uses what it names."""
_IN_ORDER = {"row": "layout", "col": "layout", "and": "bits", "xor": "bits", "popc": "bits"}
"""Modifiers that keep their order among each other, beside types."""


@cache
def spelling(name: str) -> tuple[str, ...]:
    """Return the parts of a name in an order that all spellings of an instruction have in common.

    ptxas takes the modifiers behind an opcode in any order: only types keep theirs among each other,
    and so do the layouts of A and B, and a bit operation and ``popc``. What tells no form is left out.
    """
    name = name.replace("multicast::cluster::16b", "multicast::cluster")  # it has 16 bits anyhow
    match = _OPCODE.match(name)
    opcode = match[0] if match else ""
    modifiers = (part for part in name[len(opcode) :].split(".") if not _UNSAID.fullmatch(part))
    return opcode, *sorted(modifiers, key=_group)


def _group(modifier: str) -> str:
    return "type" if is_type(modifier) else _IN_ORDER.get(modifier, modifier)


def named(name: str) -> Form | None:
    """Return the form that an instruction is, with its modifiers in any order.

    Of several variants it is the first, unless the variant is one of the modifiers.
    """
    table = _TABLES.get(name.partition(".")[0], tuple)
    return _spelled(table).get(spelling(name))


@cache
def _spelled(table: Callable[[], tuple[Form, ...]]) -> dict[tuple[str, ...], Form]:
    forms: dict[tuple[str, ...], Form] = {}
    for form in table():
        for name in (form.key, form.name):
            forms.setdefault(spelling(name), form)
    return forms


def warp() -> tuple[MatrixInstruction, ...]:
    """Return the products of warps in registers."""
    from ptxlab.matrix.mma import MMA, MMA_BLOCK_SCALED, MMA_SPARSE, MMA_SPARSE_BLOCK_SCALED

    return (*MMA, *MMA_BLOCK_SCALED, *MMA_SPARSE, *MMA_SPARSE_BLOCK_SCALED)


def _wmma() -> tuple[Form, ...]:
    from ptxlab.matrix.wmma import WMMA, WMMA_MOVES

    return (*WMMA, *WMMA_MOVES)


def row_moves() -> tuple[Form, ...]:
    """Return what moves matrices by their rows, between registers and shared memory or among registers."""
    from ptxlab.matrix.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX

    return (*LDMATRIX, *STMATRIX, MOVMATRIX)


def warpgroup() -> tuple[MatrixInstruction, ...]:
    """Return the products of warpgroups."""
    from ptxlab.matrix.wgmma import WGMMA

    return WGMMA


def tensor_memory() -> tuple[Form, ...]:
    """Return what reads or writes Tensor Memory."""
    from ptxlab.matrix.tcgen05 import TCGEN05
    from ptxlab.matrix.tensor_memory import TENSOR_MEMORY_MOVES

    return (*TCGEN05, *TENSOR_MEMORY_MOVES)


_TABLES: dict[str, Callable[[], tuple[Form, ...]]] = {
    "mma": warp,
    "wmma": _wmma,
    "ldmatrix": row_moves,
    "stmatrix": row_moves,
    "movmatrix": row_moves,
    "wgmma": warpgroup,
    "tcgen05": tensor_memory,
}
