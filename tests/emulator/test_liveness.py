"""Registers are dropped where nobody reads them again, and nowhere else."""

from __future__ import annotations

from ptxlab.emulator.prepare.liveness import (
    BlockFlow,
    Liveness,
    Uses,
    live_out,
    temporary,
)


def uses(reads: str, writes: str, *, partial: bool = False) -> Uses:
    return Uses(frozenset(map(int, reads)), frozenset(map(int, writes)), partial)


def dropped(flow: BlockFlow, live: set[int]) -> list[tuple[int, int]]:
    """Return (steps before it, register) for every drop."""
    drops = Liveness(flow, live, keep=set(), unread=set()).drops(len(flow.uses))
    return [(position + 1, slot) for position, slots in drops for slot in slots]


def test_a_loop_keeps_what_its_next_round_reads() -> None:
    before = BlockFlow([uses("", "1"), uses("", "2")], (1,))
    loop = BlockFlow([uses("12", "3"), uses("3", "1")], (1, 2))
    after = BlockFlow([uses("1", "")], ())
    assert live_out([before, loop, after]) == [{1, 2}, {1, 2}, set()]
    assert dropped(loop, {1, 2}) == [(2, 3)]


def test_a_register_written_again_is_not_dropped() -> None:
    flow = BlockFlow([uses("1", "2"), uses("", "1"), uses("2", "")], ())
    assert dropped(flow, {1}) == [(3, 2)]


def test_a_guarded_write_keeps_the_old_value_alive() -> None:
    branch = BlockFlow([uses("4", "1", partial=True)], ())
    assert live_out([BlockFlow([], (1,)), branch])[0] == {4}
    flow = BlockFlow([uses("", "1"), uses("4", "1", partial=True)], ())
    assert (2, 4) in dropped(flow, {1})
    assert (1, 1) not in dropped(flow, {1})


def test_a_result_that_is_never_read_is_dropped() -> None:
    assert dropped(BlockFlow([uses("", "5")], ()), set()) == [(1, 5)]


def test_of_a_block_only_registers_are_temporary_that_nobody_needs_elsewhere() -> None:
    first = BlockFlow([uses("6", "1"), uses("1", "2"), uses("2", "7")], (1,))
    loop = BlockFlow([uses("2", "3"), uses("3", "45"), uses("5", "2")], (1, 2))
    flows = [first, loop, BlockFlow([uses("", "1"), uses("1", "6"), uses("", "8")], ())]
    lives = live_out(flows)
    blocks = [Liveness(*each, keep={8}, unread=set()) for each in zip(flows, lives, strict=True)]
    assert [*temporary(blocks)] == [{1, 7}, {3, 4}, {1}]
