"""What ld and st may say about ordering and caches, none of which changes what they do here.

Every access is seen by all threads at once, so each ordering in each scope is kept; the rest are
hints. They are held to the grammar all the same: PTX ISA, "Data Movement and Conversion
Instructions: ld, ld.global.nc, st".
"""

from __future__ import annotations

from typing import Any

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.operation import Modifiers
from ptxlab.emulator.prepare.row import UnknownForm

SCOPES = ("cta", "cluster", "gpu", "sys")
ORDERINGS = {
    "ld": ("weak", "volatile", "relaxed", "acquire"),
    "ldu": (),
    "st": ("weak", "volatile", "relaxed", "release"),
}
CACHES = {"ld": ("ca", "cg", "cs", "lu", "cv"), "ldu": (), "st": ("wb", "cg", "cs", "wt")}
SPACES = {
    "ld": ("generic", "global", "shared", "local", "const", "param"),
    "ldu": ("generic", "global"),
    "st": ("generic", "global", "shared", "local", "param"),
}
SCOPED = ("relaxed", "acquire", "release")
EVICTIONS = tuple(
    f"L1::{name}"
    for name in ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")
)
PREFETCHES = ("L2::64B", "L2::128B", "L2::256B")


def take_qualifiers(context: Context, modifiers: Modifiers) -> tuple[Any, Any]:
    """Take orderings and hints, and return the operands without a cache policy.

    Raise UnknownForm for what cannot stand together.
    """
    opcode, space = context.instruction.opcode, _space(modifiers)
    if space not in SPACES[opcode]:
        raise UnknownForm(f"cannot be in .{space}")
    ordering = modifiers.one_of(*ORDERINGS[opcode], default="")
    mapped = modifiers.take("mmio")
    scope = modifiers.one_of(*SCOPES, default="")
    if bool(scope) != (ordering in SCOPED):
        raise UnknownForm("takes a scope with .relaxed, .acquire and .release, and only with these")
    if mapped and (ordering, scope) != ("relaxed", "sys"):
        raise UnknownForm("takes .mmio only with .relaxed.sys")
    if ordering not in ("", "weak") and space not in ("global", "shared", "generic"):
        raise UnknownForm(f"cannot be .{ordering} in .{space}")
    constant = opcode == "ld" and modifiers.take("nc")
    if constant and (space != "global" or ordering):
        raise UnknownForm("takes .nc only in .global, without an ordering")
    cache = modifiers.one_of(*CACHES[opcode], default="")
    if cache and ordering not in ("", "weak"):
        raise UnknownForm(f"cannot be both .{ordering} and .{cache}")
    evicted = modifiers.one_of(*EVICTIONS, default="")
    fetched = opcode == "ld" and modifiers.one_of(*PREFETCHES, default="")
    hinted = modifiers.take("L2::cache_hint")
    if (hinted or mapped or evicted or fetched) and space not in ("global", "generic"):
        raise UnknownForm(f"has nothing to do with the caches of global memory in .{space}")
    if (ordering == "volatile" and (hinted or evicted)) or (
        mapped and (hinted or evicted or fetched)
    ):
        raise UnknownForm("takes no hint with .volatile or .mmio")
    return _without_policy(context, hinted=hinted)


def _space(modifiers: Modifiers) -> str:
    """Return the state space, which stays to be taken."""
    names = (name.partition("::")[0] for name in modifiers.rest())
    return next((name for name in names if name in SPACES["ld"]), "generic")


def _without_policy(context: Context, *, hinted: bool) -> tuple[Any, Any]:
    instruction = context.instruction
    if len(instruction.operands) != 2 + hinted:
        context.reject(
            f"{instruction.name} takes {2 + hinted} operands, found {len(instruction.operands)}"
        )
    if hinted:
        context.source(instruction.operands[2], "b64")
    first, second, *_ = instruction.operands
    return first, second
