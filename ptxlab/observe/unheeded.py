"""Waits at mbarriers whose answer nothing looks at.

A wait may give up before the phase is complete, and then says so: threads go on only if they look. An answer is
looked at where a guard, or anything but the making of other registers, depends on it. Source: PTX ISA,
"mbarrier.test_wait, mbarrier.try_wait".
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxlab.emulator import Site
from ptxlab.emulator.prepare.forms import effects_of, form_of
from ptxlab.emulator.prepare.program import BoundFunction
from ptxlab.emulator.run.threads import Threads
from ptxlab.observe.check_context import CheckContext
from ptxlab.observe.value_flow import USING

Live = frozenset[int]
"""Registers by number of which something depends on what they hold."""


class WaitUse:
    """Follows which waits of a wave nothing depends on."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._unheeded: dict[str, set[int]] = {}

    def see(self, site: Site, threads: Threads) -> None:
        """See threads wait at an mbarrier."""
        name = site.function
        if name not in self._unheeded:
            self._unheeded[name] = set(unheeded(self._context.wave.prepared(name)))
        if site.number in self._unheeded[name]:
            verb = site.instruction.modifiers[0]
            message = (
                f"mbarrier.{verb} may give up before the phase is complete, and nothing looks at its answer: "
                f"{self._context.thread(int(threads.index[0]))} goes on without it"
            )
            hint = f"repeat mbarrier.{verb} until the predicate that it gives is true"
            self._context.find(
                "async", "error", "unheeded", threads.size, (message, hint), unit="threads"
            )


def unheeded(function: BoundFunction) -> Iterator[int]:
    """Yield the numbers of the waits at mbarriers of a function on whose answers nothing depends."""
    blocks = [
        [(each.site, each.guard is not None) for each in block.instructions]
        for block in function.blocks
    ]
    before: list[Live] = [frozenset()] * len(blocks)

    def behind(number: int) -> Live:
        following = function.blocks[number].successors
        own = () if following else function.frame.results
        return frozenset(own).union(*(before[successor] for successor in following))

    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            live = behind(number)
            for _, now in _backward(blocks[number], live):
                live = now
            changed |= live != before[number]
            before[number] = live
    for number, block in enumerate(blocks):
        after = behind(number)
        for site, live in _backward(block, after):
            if effects_of(site.instruction).mbarrier == "wait" and not site.writes & after:
                yield site.number
            after = live


def _backward(block: list[tuple[Site, bool]], live: Live) -> Iterator[tuple[Site, Live]]:
    """Yield the instructions from the last on, and the registers that are live before each."""
    for site, partial in reversed(block):
        if site.writes & live or not site.writes or form_of(site.instruction).row.mix in USING:
            live = (live if partial else live - site.writes) | site.reads
        yield site, live
