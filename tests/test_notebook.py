"""The notebook of docs/ shows what its cells show today."""

from __future__ import annotations

import json
from typing import Any

from scripts.notebook import NOTEBOOK, executed

Notebook = dict[str, Any]


def changed(notebook: Notebook, old: str, new: str) -> Notebook:
    text = json.dumps(notebook)
    assert old in text
    changed: Notebook = json.loads(text.replace(old, new))
    return changed


def test_its_outputs_are_those_of_its_cells() -> None:
    kept: Notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert executed(kept) == kept
    kinds = {
        kind
        for cell in kept["cells"]
        for out in cell.get("outputs", ())
        for kind in out.get("data", ())
    }
    assert {"text/html", "text/plain"} <= kinds


def test_another_program_shows_something_else() -> None:
    kept: Notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    kept["cells"] = kept["cells"][:4]
    other = executed(changed(kept, "a.registers(9, 4)", "a.registers(9, 5)"))
    assert [cell["outputs"] for cell in other["cells"][1::2]] != [
        cell["outputs"] for cell in kept["cells"][1::2]
    ]
