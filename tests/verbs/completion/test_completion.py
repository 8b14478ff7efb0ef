"""``ptxlab completion``: bash itself completes; what fish gets names every option."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from ptxlab.cli.verbs import VERBS
from ptxlab.main import main
from ptxlab.verbs.completion.scripts import described


def script(capsys: pytest.CaptureFixture[str], shell: str) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(capsys: pytest.CaptureFixture[str], *lines: str) -> list[list[str]]:
    """What bash offers for each command line, whose last word is being typed."""
    asked = [
        f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=(); _ptxlab; "
        'echo "${COMPREPLY[*]}"'
        for line in lines
    ]
    program = "\n".join([script(capsys, "bash"), *asked])
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [line.split() for line in done.stdout.split("\n")[:-1]]


def test_what_bash_offers(capsys: pytest.CaptureFixture[str]) -> None:
    verb, option, choice, value, shell, version = completed(
        capsys,
        "ptxlab ge",
        "ptxlab gemm --al",
        'ptxlab gemm --format ""',
        "ptxlab gemm --size 1",
        "ptxlab completion z",
        "ptxlab --v",
    )
    assert verb == ["gemm"]
    assert sorted(option) == ["--algorithm", "--all", "--alpha"]
    assert choice == ["text", "json", "markdown", "svg", "png", "csv"]
    assert value == []
    assert shell == ["zsh"]
    assert version == ["--version"]


def test_kernels_of_the_file_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    ptx, cuda, none = completed(
        capsys,
        "ptxlab run ptx/ldmatrix.ptx --kernel ldmatrix_x4",
        'ptxlab check kernels/naive.cu --kernel ""',
        'ptxlab run missing.ptx --kernel ""',
    )
    assert ptx == ["ldmatrix_x4", "ldmatrix_x4_trans"]
    assert cuda == ["naive"]
    assert none == []


def test_fish_and_zsh(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [shlex.split(line) for line in script(capsys, "fish").splitlines()]
    assert [line[line.index("-a") + 1] for line in lines if "__fish_use_subcommand" in line] == [
        name for name, _ in VERBS
    ]
    gemm = [line for line in lines if "__fish_seen_subcommand_from gemm" in line]
    assert {"algorithm", "size", "json", "output"} <= {
        line[line.index("-l") + 1] for line in gemm if "-l" in line
    }
    assert script(capsys, "zsh").endswith(script(capsys, "bash"))


def test_values_that_a_reader_takes_are_completed() -> None:
    predict = next(verb for verb in described() if verb.name == "predict")
    values = {option.names[-1]: option.choices for option in predict.options}
    assert {"a100", "h100"} <= set(values["--gpu"])
    assert {"sm_80", "sm_90a"} <= set(values["--arch"])


def test_every_verb_is_described() -> None:
    assert [(verb.name, verb.help) for verb in described()] == list(VERBS)
    assert all("--help" in {n for o in verb.options for n in o.names} for verb in described())
