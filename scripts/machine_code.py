"""Write docs/machine_code.md: the opcodes of machine code, and what is done with each. Run after every change.

python scripts/machine_code.py

For which targets ptxas makes an opcode is counted, in all that nvdisasm has answered here and the cache still
has, and is added to what the page says already.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from ptxlab import cache
from ptxlab.errors import ToolchainError
from ptxlab.machine.lift.table import RULES
from ptxlab.machine.sass import read_target
from ptxlab.machine.table import ROWS

PAGE = Path(__file__).parents[1] / "docs" / "machine_code.md"
MARK = "<!-- opcodes: python scripts/machine_code.py -->\n"
_HEAD = "| opcode | runs | timed | registers and scoreboards known | met on sm_ |\n|---|---|---|---|---|"
_ROW = re.compile(r"^\| `(?P<opcode>\w+)` \|.*\| (?P<targets>[\d ]*) \|$", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?(?P<opcode>[A-Z]\w*)", re.MULTILINE)

Met = Mapping[str, set[int]]
"""The capabilities of the targets on which each opcode was met."""


def met_in(texts: Iterable[str]) -> dict[str, set[int]]:
    """Count for which targets each opcode stands in what nvdisasm printed."""
    met = defaultdict(set)
    for text in texts:
        try:
            capability = int(re.sub(r"\D", "", read_target(text)))
        except ToolchainError:
            continue  # it says a cubin's data alone
        for match in _INSTRUCTION.finditer(text):
            met[match["opcode"]].add(capability)
    return dict(met)


def told(page: str) -> dict[str, set[int]]:
    """Return for which targets a page says that each opcode was met."""
    return {row["opcode"]: {*map(int, row["targets"].split())} for row in _ROW.finditer(page)}


def table(met: Met) -> str:
    """Return a row for every opcode that anything is known of."""
    lines = [_HEAD]
    for opcode in sorted({*RULES, *ROWS}):
        row = ROWS.get(opcode)
        known = (opcode in RULES, row is not None and row.timed, row is not None)
        cells = ["yes" if cell else "" for cell in known]
        targets = " ".join(map(str, sorted(met.get(opcode, ()))))
        lines.append(f"| `{opcode}` | {' | '.join([*cells, targets])} |")
    return "\n".join(lines) + "\n"


def page(text: str, met: Met | None = None) -> str:
    """Return the text of the page with the table behind the mark, to which is added what was ``met``."""
    before = told(text)
    both = {
        opcode: before.get(opcode, set()) | (met or {}).get(opcode, set())
        for opcode in {*before, *(met or {})}
    }
    return text[: text.index(MARK)] + MARK + "\n" + table(both)


def main() -> None:
    met = met_in(answer.decode(errors="replace") for answer in cache.answers("nvdisasm"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), met), encoding="utf-8")


if __name__ == "__main__":
    main()
