"""The table of ``lop3``: what a function of three bits is called, and its truth table."""

from __future__ import annotations

from functools import cache
from itertools import product

KNOWN = {0x00: "0", 0xFF: "all ones", 0xCA: "a ? b : c", 0xE8: "at least two of a, b, c"}
"""What has a name that says more than operators do."""


def expression(table: int) -> str:
    """Return a shortest expression of a, b and c whose truth table is ``table``."""
    text = _expressions()[table]
    return text[1:-1] if text.startswith("(") else text


_INPUTS = ((0xF0, "a"), (0xCC, "b"), (0xAA, "c"))


@cache
def _expressions() -> dict[int, str]:
    """Return an expression for each of the 256 tables, with as few operators as can be."""
    by_cost = [
        {table ^ mask: f"{'~' * bool(mask)}{name}" for table, name in _INPUTS for mask in (0, 0xFF)}
    ]
    known = dict(by_cost[0])
    while len(known) < 254:  # all but the constants
        made: dict[int, str] = {}
        for cheap, dear in zip(by_cost, reversed(by_cost), strict=True):
            for (x, first), (y, second) in product(cheap.items(), dear.items()):
                for sign, table in (("&", x & y), ("|", x | y), ("^", x ^ y)):
                    if table not in known and table not in (0, 0xFF):
                        made.setdefault(
                            table, f"({_beside(first, sign)} {sign} {_beside(second, sign)})"
                        )
        by_cost.append(made)
        known |= made
    return known | KNOWN


def _beside(text: str, sign: str) -> str:
    """Leave out brackets around what only has the same operator."""
    inside = text.removeprefix("(").removesuffix(")")
    return inside if not set("()&|^").difference(sign) & set(inside) else text


def truth(table: int | None) -> list[list[str]]:
    """Return the truth table of lop3 under an immediate, or how one is made."""
    rule = "the table of a function F is F(0xf0, 0xcc, 0xaa): a & b | c is 0xea"
    if table is None:
        known = (0x80, 0xFE, 0x96, 0xE8, 0xCA, 0xEA, 0x78)
        return [
            ["some tables", *(f"  {value:#04x}  d = {expression(value)}" for value in known), rule]
        ]
    rows = [
        f"  {a} {b} {c}   {table >> (4 * a + 2 * b + c) & 1}   bit {4 * a + 2 * b + c}"
        for a, b, c in product((0, 1), repeat=3)
    ]
    return [[f"table {table:#04x}: d = {expression(table)}", "  a b c   d", *rows, rule]]
