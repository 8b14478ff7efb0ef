"""The action for GitHub: what it runs, line by line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from textwrap import dedent

ACTION = Path(__file__).parents[1] / "action.yml"


def ran(folder: Path, lines: str, form: str) -> tuple[int, list[str]]:
    """Run the script of the action with a ptxlab that writes down what it is given, and fails at ``bad``."""
    script = dedent(ACTION.read_text(encoding="utf-8").rpartition("run: |\n")[2])
    stub = folder / "ptxlab"
    stub.write_text(
        '#!/bin/sh\nfor a; do printf "[%s]" "$a" >> log; done; echo >> log; [ "$1" != bad ]\n'
    )
    stub.chmod(0o755)
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}", "PTXLAB_RUN": lines, "PTXLAB_FORMAT": form, "PTXLAB_OUTPUT": "out",
    }  # fmt: skip
    status = subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environment).returncode
    return status, (folder / "log").read_text().splitlines()


def test_each_line_is_a_command(tmp_path: Path) -> None:
    lines = "check a.cu --arg 'x=zeros(4,f32)'\n\n  bad `touch evil` $(touch evil); x\njudge b.cu\n"
    status, log = ran(tmp_path, lines, "github")
    assert status == 1
    assert log == [
        "[check][a.cu][--arg][x=zeros(4,f32)][--format][github]",
        "[bad][`touch][evil`][$(touch][evil);][x][--format][github]",
        "[judge][b.cu][--format][github]",
    ]
    assert not (tmp_path / "evil").exists()


def test_others_go_to_files(tmp_path: Path) -> None:
    assert ran(tmp_path, "check a.cu\ncheck b.cu", "sarif") == (
        0,
        [
            f"[check][{name}.cu][--format][sarif][-o][out/{n}.sarif]"
            for n, name in ((1, "a"), (2, "b"))
        ],
    )
    assert (tmp_path / "out").is_dir()
