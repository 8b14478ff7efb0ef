"""``-``: a program through a pipe is what the same program is as a file."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ptxlab import resources
from ptxlab.device import loading
from ptxlab.main import main

CUDA = """\
#include <cstdio>
// not a .version of PTX
__global__ void twice(int* out, int n) { out[threadIdx.x] = 2 * n; }
int main() { printf("host"); }
"""


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ptxlab(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Run a command with standard input; return its status and what it says."""

    def run(content: bytes, *words: str) -> tuple[int, str, str]:
        loading._standard_input.cache_clear()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        status = main([*words, "--device", "emulator"])
        return status, *capsys.readouterr()

    yield run
    loading._standard_input.cache_clear()


def test_cuda_c_is_run(ptxlab: Command) -> None:
    given = ("--block", "4", "--arg", "n=21", "--arg", "out=zeros(4,s32)")
    expect = ("--expect", "out=zeros(4)+42")
    status, out, err = ptxlab(CUDA.encode(), "run", "-", *given, *expect)
    assert status == 0, err
    assert out.startswith("twice<<<1, 4>>>")
    wrong = CUDA.replace("2 * n", "3 * n").encode()
    assert ptxlab(wrong, "run", "-", *given, *expect)[0] == 1
    status, _, err = ptxlab(CUDA.replace("2 * n", "2 * m").encode(), "run", "-", *given)
    assert status == 4
    assert err.startswith("stdin.cu:3:")


def test_ptx_is_run_as_its_file_is(ptxlab: Command) -> None:
    file = resources.path("ptx") / "mbarrier.ptx"
    command = [sys.executable, "-m", "ptxlab", "run", "-", "--device", "emulator"]
    piped = subprocess.run(command, input=file.read_text(), capture_output=True, text=True)
    assert piped.returncode == 0, piped.stderr
    _, named, _ = ptxlab(b"", "run", str(file))
    # The first line has the time it took.
    assert piped.stdout.splitlines()[1:] == named.splitlines()[1:]


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [(b" \n", 2, "standard input is empty"), (b".version 8.0\n.target sm_8\n{", 4, "stdin.ptx:")],
)
def test_what_is_no_program_is_said(
    ptxlab: Command, content: bytes, status: int, said: str
) -> None:
    ended, _, err = ptxlab(content, "run", "-", "--block", "1")
    assert ended == status
    assert said in err
