"""What others call types and targets is understood by every verb."""

from __future__ import annotations

import pytest

from ptxlab.cli import readers
from ptxlab.main import main
from ptxlab.matrix.catalog import find, matching
from ptxlab.numbers.synonyms import SYNONYMS, type_called
from ptxlab.numbers.types import is_type


def test_every_synonym_is_of_a_type_and_none_is_one_itself() -> None:
    assert all(map(is_type, SYNONYMS.values()))
    assert not [name for name in SYNONYMS if is_type(name)]
    assert type_called("half.int8.bf16") == "f16.s8.bf16"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("80", "sm_80"), ("90a", "sm_90a"), ("sm90a", "sm_90a"), ("9.0", "sm_90"), ("12.0a", "sm_120a"),
        ("compute_86", "sm_86"), ("SM_100A", "sm_100a"), ("sm_75", "sm_75"),
    ],
)  # fmt: skip
def test_targets(text: str, target: str) -> None:
    assert readers.target(text) == target


@pytest.mark.parametrize("text", ["81", "sm_90b", "hopper", "9", ""])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(ValueError, match="no target"):
        readers.target(text)


def test_instructions() -> None:
    assert find("m16n8k16", "half", "float") is find("m16n8k16", "f16", "f32")
    assert matching("m16n8k32.int8")[0] is matching("m16n8k32.s8")[0]
    assert matching("mma.fp8")[0].name.endswith("e4m3.e4m3.f32")


@pytest.mark.parametrize(
    "words",
    [
        ["gemm", "--size", "8", "--algorithm", "naive", "--dtype", "float", "--device", "emulator"],
        ["numerics", "--dtype", "half", "--acc", "float", "--a", "1", "--b", "1", "--arch", "80"],
        ["ops", "--arch", "80", "--family", "movmatrix"],
        ["ops", "--arch", "80", "--family", "movmatrix.sync"],
        ["dump", "ptx/ldmatrix.ptx", "--at", "ldmatrix", "--as", "half"],
    ],
)
def test_verbs(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0, capsys.readouterr().err
