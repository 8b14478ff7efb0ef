"""What an operation does beside computing: a column of its row, which observers ask in place of its name.

    row("cp.async.bulk.commit_group", "", effects=Effects(commits="bulk_copies"), ...)
    row("mbarrier.<what>{.<space>}.b64", "[b64] u32", effects=Effects(mbarrier="<what>"), ...)

``<slot>`` stands for what fills that slot of a form, and what a form says of order (``.acquire``, ``.cluster``)
is read off it. A new family of asynchronous work is a new queue: its rows say what adds work to it, what
closes a group of it and what waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

Queue = Literal[
    "",
    "copies",
    "bulk_copies",
    "signals",
    "products",
    "tensor_work",
    "tensor_loads",
    "tensor_stores",
]
"""A queue of a wave: cp.async, and bulk copies, in groups; what mbarriers hear of; wgmma, in groups; tcgen05.

Of tcgen05 that is what tensor cores do, and what warps load from Tensor Memory and store to it.
"""

_SEMANTICS = frozenset(
    {"weak", "volatile", "mmio", "relaxed", "acquire", "release", "acq_rel", "sc"}
)
_APART = frozenset({"", "registers", "before_thread_sync", "after_thread_sync"})
"""What may stand as ``fence`` of what orders no memory."""

_SCOPES = frozenset({"cta", "cluster", "gpu", "gl", "sys"})


@dataclass(frozen=True, slots=True)
class Effects:
    """Each column is empty where an operation has no such effect; its words are those of PTX.

    Asynchronous work: it ``begins`` some in a queue, which messages call ``work``; it ``commits`` a group of a
    queue; it ``waits`` for a queue, for all of it or all groups but as many as its operand says, ``until`` the
    sources are "read" or all is done. It is ``behind`` a queue where an arrival comes when its work is done.

    Barriers: ``mbarrier`` is what it does to one ("init", "arrive", "try_wait", ...), ``tx`` that an arrival
    says what bytes to expect as well. ``barrier`` is whose it is about: of a "warp", a "cta", a "cluster" or of
    the "grid" before, ``meets`` whether threads "sync", "red", "arrive" or "wait" there, and ``aligned`` that a
    warp does so as one.

    Memory: ``fence`` is what it orders ("memory", the proxy that PTX names, the "registers" of products, or
    tcgen05 before and after threads meet, "before_thread_sync" and "after_thread_sync") and ``space`` where, if
    not everywhere. It is ``atomic`` where it changes memory at once. ``semantics`` and
    ``scope`` are those that its form names, or else those of its row.

    Values and control: ``passes`` that its result is an operand as it is, the "chosen" one, or bytes of those that
    are, or that of a "lane"; or that each of its bits is made of one of each operand, the "bits" of the same place, or
    "shifted" ones, the last operand saying how far; ``contracts``
    what of a sum of products it is that may become one fma: a "sum", a "difference" or a "product"; ``leads``
    that threads go on elsewhere: in a "function", in its "caller" or at a "label".
    """

    begins: Queue = ""
    work: str = ""
    commits: Queue = ""
    waits: Queue = ""
    until: str = ""
    behind: Queue = ""
    mbarrier: str = ""
    tx: str = ""
    barrier: str = ""
    meets: str = ""
    aligned: str = ""
    fence: str = ""
    space: str = ""
    atomic: bool = False
    passes: str = ""
    contracts: str = ""
    leads: str = ""
    semantics: str = ""
    scope: str = ""

    def of(self, filled: Callable[[str], str], modifiers: Sequence[str]) -> Effects:
        """Return those of a form of the row: of what its slots are ``filled`` with, and its modifiers."""
        given = ((column.name, getattr(self, column.name)) for column in fields(self))
        named: dict[str, Any] = {
            name: filled(word[1:-1]) for name, word in given if str(word).startswith("<")
        }
        semantics, scope = (
            next((name for name in modifiers if name in known), usual)
            for known, usual in ((_SEMANTICS, self.semantics), (_SCOPES, self.scope))
        )
        return replace(self, **named, semantics=semantics, scope=scope)

    # ---- what follows from them ----

    @property
    def engine(self) -> bool:
        """Whether it begins work of an engine, in the asynchronous proxy: cp.async is the thread's own."""
        return self.begins not in ("", "copies")

    @property
    def asynchronous(self) -> bool:
        """Whether it is about mbarriers, barriers of clusters, or work of engines."""
        queues = {self.begins, self.commits, self.waits} - {"", "copies"}
        return bool(queues or self.mbarrier) or self.barrier == "cluster"

    @property
    def strong(self) -> bool:
        """Whether its accesses do not race with each other."""
        return self.atomic or self.semantics not in ("", "weak")

    @property
    def acquires(self) -> bool:
        return self.semantics in ("acquire", "acq_rel", "sc")

    @property
    def releases(self) -> bool:
        return self.semantics in ("release", "acq_rel", "sc")

    @property
    def orders_memory(self) -> bool:
        """Whether it is a fence of memory, or of a proxy of that."""
        return self.fence not in _APART

    @property
    def relaxed(self) -> bool:
        """Whether it arrives or waits at a barrier object, and orders nothing by itself."""
        return bool(self.mbarrier or self.barrier) and self.semantics == "relaxed"


NO_EFFECTS = Effects()
