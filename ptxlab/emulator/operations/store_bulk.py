"""st.bulk: zeros for a piece of shared memory.

Source: PTX ISA, "Data Movement and Conversion Instructions: st.bulk".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxlab.emulator.operations.mbarrier import given
from ptxlab.emulator.operations.memory import memory_operand, scatter
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.forms import require
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError
from ptxlab.isa.legality import parse_needs
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import Name

UNIT = 8
"""Bytes that are written as one; sizes and addresses are multiples of them."""


def clear(context: Context, form: RowForm) -> Step:
    """Write zeros to so many bytes of shared memory."""
    address, size, _ = context.operands(3)
    access = memory_operand(context, form, address, UNIT, "st.bulk", writes=True)
    register = context.register(size.text) if isinstance(size, Name) else None
    is_narrow = register is not None and TYPES[register.type].bits == 32
    if is_narrow:
        require(context, f"{form.name} with a size of 32 bits", parse_needs("sm_100 9.0"))
    sizes = context.source(size, "u32" if is_narrow else "u64")
    zero = np.zeros(1, ITEM[UNIT])

    def run(frame: Frame, threads: Threads) -> None:
        nbytes = given(sizes, frame, threads)
        wrong = nbytes % UNIT != 0
        if wrong.any():
            at = int(wrong.argmax())
            raise LaunchError(
                f"st.bulk of {int(nbytes[at])} bytes by {frame.wave.thread(int(threads.index[at]))}",
                location=frame.wave.locate(access.line),
                hint=f"the size is a multiple of {UNIT}",
                kind="alignment",
            )
        for first in range(0, int(nbytes.max()), UNIT):
            some = Threads(threads.width, index=threads.index[nbytes > first])
            scatter(replace(access, offset=access.offset + first), frame, some, zero)

    return run


row(
    "st.bulk{.weak}{.<space>}",
    "[b64] u32 #u32<1",
    wider=True,
    step=clear,
    mix="store",
    needs="sm_100 8.6",
    space="shared::cta",
)
