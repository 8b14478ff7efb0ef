"""The action for GitHub: what it runs, line by line."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

from ptxlab.cli.verbs import find_verb
from ptxlab.errors import PtxlabError

HOME = Path(__file__).parents[1]
ACTION = HOME / "action.yml"
WORKFLOWS = sorted((HOME / ".github" / "workflows").glob("*.yml"))


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


def steps(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a workflow or an action."""
    jobs = tree["jobs"].values() if "jobs" in tree else [tree["runs"]]
    for job in jobs:
        yield from job["steps"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_what_workflows_run_is_there(file: Path) -> None:
    commands = [
        line.split("#")[0].split()
        for step in steps(yaml.safe_load(file.read_text(encoding="utf-8")))
        for line in (*step.get("run", "").splitlines(), *_given_to_the_action(step))
    ]
    assert all("uses" in step or "run" in step for step in steps(yaml.safe_load(file.read_text())))
    for command in filter(None, commands):
        assert is_there(command), command


def _given_to_the_action(step: dict[str, Any]) -> list[str]:
    lines = step["with"]["run"].splitlines() if step.get("uses") == "./" else []
    return [f"ptxlab {line}" for line in lines]


def is_there(command: list[str]) -> bool:
    """Say whether a command is a script of the project, takes its arguments, and finds the files and tests it names."""
    name, *arguments = command
    if name == "ptxlab":
        parser, _ = find_verb(arguments[0])
        parser.parse_args(arguments[1:])  # which exits where it does not take them
    paths = [
        each
        for each in (name, *arguments)
        if each.startswith(("scripts/", ".ci/", "tests/", "ptx/", "kernels/"))
    ]
    return name in ("ptxlab", "python", "pipx", "grep", "apt-get", *paths) and all(
        (HOME / each).exists() for each in paths
    )


def test_a_command_that_is_not_there_is_seen() -> None:
    assert not is_there(["scripts/tests"])
    assert not is_there(["ptxlab", "check", "ptx/none.ptx"])
    with pytest.raises(PtxlabError):
        is_there(["ptxlab", "check", "ptx/mma_m16n8k16_bf16_f32.ptx", "--no-such-option"])


def test_the_action_says_what_it_asks_for() -> None:
    text = ACTION.read_text(encoding="utf-8")
    tree = yaml.safe_load(text)
    assert tree["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" for step in steps(tree))
    assert set(re.findall(r"inputs\.(\w+)", text)) == set(tree["inputs"])
    for line in re.findall(
        r"^      (check|judge) (.*)$", (HOME / "docs" / "judge.md").read_text(), re.MULTILINE
    ):
        find_verb(line[0])[0].parse_args(shlex.split(line[1]))
