"""Where a modifier must stand, as ptxas has it: some are part of the opcode, most stand in any order.

Of ``mul.lo.u32`` ptxas knows the opcode as ``mul.lo``, of ``mul.rn.f32`` as ``mul``. What is part of the
opcode comes first and in its order; the types of an instruction keep theirs, and so do the state spaces
of one that names two.
"""

from __future__ import annotations

from typing import Literal

from ptxlab.numbers.types import is_type

_HALVES = "lo hi wide"
_LEADING = {
    "applypriority": "async bulk tensor",
    "bar": "cta warp sync arrive red",
    "clusterlaunchcontrol": "try_cancel async query_cancel",
    "barrier": "cta cluster sync arrive wait red",
    "cp": "reduce async bulk prefetch tensor mbarrier arrive wait_group commit_group wait_all",
    "createpolicy": "fractional range cvt",
    "cvt": "pack",
    "cvta": "to",
    "div": "full",
    **dict.fromkeys(("dp2a", "mad", "mad24", "madc", "mul", "mul24"), _HALVES),
    **dict.fromkeys(("fence", "membar"), "proxy"),
    "mbarrier": "init inval arrive arrive_drop expect_tx complete_tx pending_count test_wait try_wait parity",
    "red": "async",
    "st": "async bulk",
    "shf": "l r",
    "tensormap": "replace",
}
_WORDS = {opcode: frozenset(words.split()) for opcode, words in _LEADING.items()}
_SPACES = ("global", "shared", "shared::cta", "shared::cluster")

Order = Literal["", "type", "space"]
"""What the modifiers are that keep their order among themselves."""


def leads(opcode: str, name: str) -> bool:
    return name in _WORDS.get(opcode, ())


def order_of(name: str) -> Order:
    """Return among what a modifier keeps its place, "" where it has none."""
    return "type" if is_type(name) else "space" if name in _SPACES else ""
