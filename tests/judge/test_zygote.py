"""What a judge leaves behind that is killed: no process, and no folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

pytestmark = pytest.mark.thorough

JUDGE = """
import numpy as np
from ptxlab import evaluate
from ptxlab.judge import contained
from ptxlab.judge.arguments import Array
from ptxlab.judge.contained import zygote
print(zygote(modules=False)._process.pid, flush=True)
evaluate(
    "endless.ptx", lambda: {"x": np.zeros(1)}, arguments={"x": Array(1)}, grid=1, block=1, gpus=(), arch="sm_80"
)
"""


def _below(process: int) -> Iterator[int]:
    """Yield a process and all that descend from it."""
    yield process
    with suppress(OSError):
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
        for child in children.split():
            yield from _below(int(child))


def _home(process: int) -> Path | None:
    """Return the folder that a candidate works in, None for a process that is none."""
    with suppress(OSError):
        folder = Path(os.readlink(f"/proc/{process}/cwd"))
        return folder if folder.name.startswith("ptxlab-judge-") else None
    return None


def _lives(process: int) -> bool:
    with suppress(OSError):
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
            != "Z"
        )
    return False


@pytest.mark.parametrize("killed", ["the judge", "what forks"])
def test_what_a_killed_judge_began_ends_and_clears_up(tmp_path: Path, killed: str) -> None:
    (tmp_path / "endless.ptx").write_text(
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 x) { again: bra again; }\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", JUDGE], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as judge:
        assert judge.stdout is not None
        forking = int(judge.stdout.readline())
        deadline = monotonic() + 60
        while not (homes := [home for each in _below(forking) if (home := _home(each))]):
            assert monotonic() < deadline
            sleep(0.1)
        processes = list(_below(forking))
        assert len(processes) == 3
        os.kill(judge.pid if killed == "the judge" else forking, signal.SIGKILL)
        while any(home.exists() for home in homes) or any(_lives(each) for each in processes):
            assert monotonic() < deadline
            sleep(0.1)
        judge.kill()
