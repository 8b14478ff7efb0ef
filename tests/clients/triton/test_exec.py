"""An unchanged program in Triton, run by ``ptxlab exec`` in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxlab.main import main

PROGRAM = """\
import sys
import torch
from tests.clients.triton import kernels

assert torch.cuda.is_available()
x = torch.rand(500, device="cuda")
for _ in range(3):
    kernels.add[(2,)](x, x, x, 500, BLOCK=256)
kernels.last_wins[(3,)](torch.zeros(1, device="cuda", dtype=torch.int32))
print("done", sys.argv[1])
try:
    kernels.shifted[(1,)](x[:256].clone(), x, BLOCK=256)
except Exception as error:
    print(error)
"""


def test_findings_and_counts_of_a_program(
    kernels: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    command = [sys.executable, str(program), "well"]
    assert main(["exec", "--arch", "sm_80", "--check", "--json", "--", *command]) == 1
    shown = capfd.readouterr()
    assert "done well\n" in shown.err
    place = f"{kernels.__file__}:{_line('value = tl.load(x + at + 1)', kernels)}:5: "
    assert place + "global load of 4 bytes" in shown.err
    result = json.loads(shown.out)
    launches = {one["kernel"]: one["launches"] for one in result["kernels"]}
    assert launches == {"add": 3, "last_wins": 1}
    race, bounds = result["checks"]
    assert (race["kernel"], race["findings"][0]["kind"]) == ("last_wins", "race")
    line = _line("tl.store(out, tl.program_id(0))", kernels)
    assert race["findings"][0]["source"] == {"file": kernels.__file__, "line": line}
    assert (bounds["kernel"], bounds["findings"][0]["kind"]) == ("shifted", "bounds")


def _line(text: str, kernels: Any) -> int:
    lines = Path(kernels.__file__).read_text().splitlines()
    return [line.strip() for line in lines].index(text) + 1
