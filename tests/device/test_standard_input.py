"""``-``: a program through a pipe is what the same program is as a file."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ptxlab import resources

CUDA = """\
#include <cstdio>
// not a .version of PTX
__global__ void twice(int* out, int n) { out[threadIdx.x] = 2 * n; }
int main() { printf("host"); }
"""


def ptxlab(content: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ptxlab", *words, "--device", "emulator"]
    return subprocess.run(command, input=content, capture_output=True)


def test_cuda_c_is_run() -> None:
    given = ("--block", "4", "--arg", "n=21", "--arg", "out=zeros(4,s32)")
    ran = ptxlab(CUDA.encode(), "run", "-", *given, "--expect", "out=zeros(4)+42")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(b"twice<<<1, 4>>>")
    wrong = ptxlab(
        CUDA.replace("2 * n", "3 * n").encode(), "run", "-", *given, "--expect", "out=zeros(4)+42"
    )
    assert wrong.returncode == 1
    bad = ptxlab(CUDA.replace("2 * n", "2 * m").encode(), "run", "-", *given)
    assert bad.returncode == 4
    assert bad.stderr.startswith(b"stdin.cu:3:")


def test_ptx_is_run_as_its_file_is() -> None:
    file = resources.path("ptx") / "mbarrier.ptx"
    piped = ptxlab(file.read_bytes(), "run", "-")
    assert piped.returncode == 0, piped.stderr
    named = ptxlab(b"", "run", str(file))
    assert (
        piped.stdout.splitlines()[1:] == named.stdout.splitlines()[1:]
    )  # the first has the time it took


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [(b" \n", 2, b"standard input is empty"), (b".version 8.0\n.target sm_8\n{", 4, b"stdin.ptx:")],
)
def test_what_is_no_program_is_said(content: bytes, status: int, said: bytes) -> None:
    ran = ptxlab(content, "run", "-", "--block", "1")
    assert ran.returncode == status
    assert said in ran.stderr
