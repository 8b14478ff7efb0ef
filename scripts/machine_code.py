"""Write docs/machine_code.md: the opcodes of machine code, and what is done with each. Run after every change.

python scripts/machine_code.py
"""

from __future__ import annotations

from pathlib import Path

from ptxlab.machine.lift.table import RULES
from ptxlab.machine.table import ROWS

PAGE = Path(__file__).parents[1] / "docs" / "machine_code.md"
MARK = "<!-- opcodes: python scripts/machine_code.py -->\n"


def table() -> str:
    """Return a row for every opcode that anything is known of."""
    lines = ["| opcode | runs | timed | registers and scoreboards known |", "|---|---|---|---|"]
    for opcode in sorted({*RULES, *ROWS}):
        row = ROWS.get(opcode)
        told = (opcode in RULES, row is not None and row.timed, row is not None)
        lines.append(f"| `{opcode}` | {' | '.join('yes' if known else '' for known in told)} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the text of the page with the table behind the mark."""
    return text[: text.index(MARK)] + MARK + "\n" + table()


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
