"""mbarrier.arrive, .arrive_drop, .expect_tx and .complete_tx at the objects of several CTAs: ``.multicast::cluster::32b``.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ptxlab.emulator.operations.bulk import BulkCopies
from ptxlab.emulator.operations.mbarrier import Objects, given
from ptxlab.emulator.prepare.context import SINK, Context
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import CLUSTER, translate
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.mbarriers import Arrive
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.syntax.tree import Name


def _tell(context: Context, form: RowForm) -> Step:
    """Change the object at the same offset in every CTA that the mask names."""
    *operands, mask = context.instruction.operands
    arrives, expects = form["what"].startswith("arrive"), bool(form["tx"])
    if arrives:
        state, *operands = operands
        if not isinstance(state, Name) or state.text != SINK:
            context.reject("the state of objects of several CTAs is written _", state)
    address, *rest = operands
    access = replace(Objects.of(context, form, address).access, space=CLUSTER)
    objects, ctas = Objects(access), context.source(mask, "u32")
    number = context.source(rest[0], "u32") if rest else None
    sign = -1 if form["what"] == "complete_tx" else 1

    def run(frame: Frame, threads: Threads) -> None:
        copies = BulkCopies.of(frame, threads, ctas)
        if not copies.thread.size:
            return
        [part] = translate(access, frame, copies.owners, copies.address(access, frame))
        index = np.broadcast_to(part.index, copies.thread.shape)
        numbers = given(number, frame, threads, 1)[copies.thread]
        no, single = np.zeros_like(numbers), np.ones_like(numbers)
        if not arrives:
            arrive = Arrive(no, numbers * sign)
        elif expects:
            arrive = Arrive(single, numbers, form["what"] == "arrive_drop")
        else:
            arrive = Arrive(numbers, no, form["what"] == "arrive_drop")
        objects.change(
            frame, copies.owners, lambda barriers, at: barriers.arrive(at, arrive), index
        )

    return run


_row = partial(
    row,
    step=_tell,
    mix="synchronization",
    needs="sm_107f 9.4",
    effects=Effects(mbarrier="<what>", tx="<tx>"),
)
_ENDING = "{.shared::cluster}.multicast::cluster::32b.b64"
for _ordered in ("", ".<sem>.<scope>"):
    _named = partial(_row, scope="cta cluster", sem="relaxed") if _ordered else _row
    _named(f"mbarrier.<what>{_ordered}{_ENDING}", "[b64] u32 u32", what="expect_tx complete_tx")
    _named = partial(_row, scope="cta cluster", sem="release relaxed") if _ordered else _row
    _arrives = partial(_named, what="arrive arrive_drop")
    for _count in ("", " u32"):
        _arrives(f"mbarrier.<what>{_ordered}{_ENDING}", f"[b64]{_count} u32 -> u64?")
    _expecting = f"mbarrier.<what>.<tx>{_ordered}{_ENDING}"
    _arrives(_expecting, "[b64] u32 u32 -> u64?", tx="expect_tx")
