"""Run the notebook of docs/ from its first cell to its last and keep what each shows.

PYTHONPATH=. python scripts/notebook.py

What a cell prints and what its last expression is are its outputs, as Jupyter has them: text, and the
picture of what shows itself as one. A test holds the file to this.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "from_mma_to_gemm.ipynb"

_PICTURES = (("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_"))


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells made anew."""
    notebook = copy.deepcopy(notebook)
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        cell["execution_count"] = number
        cell["outputs"] = _outputs("".join(cell["source"]), number, names)
    return notebook


def _outputs(source: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    *rest, last = ast.parse(source).body
    asked = last.value if isinstance(last, ast.Expr) else None
    done = ast.Module(rest if asked else [*rest, last], [])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(done, f"cell {number}", "exec"), names)
        value = (
            eval(compile(ast.Expression(asked), f"cell {number}", "eval"), names) if asked else None
        )
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())}
        )
    if value is not None:
        outputs.append(
            {
                "data": _shown(value),
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs


def _shown(value: Any) -> dict[str, list[str]]:
    """Return the value as Jupyter shows it: its picture, where it has one, and its text."""
    for kind, method in _PICTURES:
        picture = getattr(value, method, lambda: None)()
        if picture is not None:
            return {kind: _lines(picture), "text/plain": _lines(repr(value))}
    return {"text/plain": _lines(repr(value))}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    notebook = executed(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    NOTEBOOK.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
