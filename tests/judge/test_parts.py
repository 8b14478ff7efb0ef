"""Messages that run nothing, sizes that keep what matters, and what a file with a reference has to have."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.errors import PtxlabError
from ptxlab.judge import messages
from ptxlab.judge.arguments import Array, drawn, others, smaller, wider
from ptxlab.judge.references import ReferenceFunction, read_reference
from ptxlab.judge.speed import ADVICE, Speed, plain, predicted
from ptxlab.prediction.model import Changed
from ptxlab.prediction.what_if import CHANGES


def test_messages_carry_arrays_of_any_type() -> None:
    here, there = socket.socketpair()
    bf16 = np.arange(5, dtype=ml_dtypes.bfloat16)
    sent = {
        "a": np.eye(2, dtype=np.float32),
        "b": [bf16, np.zeros((0, 3))],
        "n": None,
        "x": float("inf"),
    }
    messages.send(here, sent)
    received = messages.receive(there)
    assert received["a"].tobytes() == np.eye(2, dtype=np.float32).tobytes()
    assert received["b"][0].dtype == bf16.dtype
    assert received["b"][1].shape == (0, 3)
    assert (received["n"], received["x"]) == (None, float("inf"))
    here.close()
    with pytest.raises(EOFError):
        messages.receive(there)


@pytest.mark.parametrize(
    "array",
    [["object", [1], 0], ["float32", [1 << 40], 0], ["float32", [1], -8], ["no", [1], 0], [1]],
)
def test_messages_that_lie_are_refused(array: list[Any]) -> None:
    body = messages.encoded({"x": {messages.ARRAY: array}})[8:]
    with pytest.raises(ValueError, match=r".*"):
        messages.decoded(body + b"\0" * 16)


def test_sizes_are_made_smaller_by_whole_tiles() -> None:
    def count(sizes: dict[str, int]) -> int:
        return sizes["m"] * sizes["n"]

    small = smaller({"m": 5000, "n": 70}, 1 << 16, count)
    assert small == {"m": 4 * 128 + 5000 % 128, "n": 70}
    assert smaller({"m": 100, "n": 70}, 100 * 70, count) == {"m": 100, "n": 70}
    smallest = smaller({"m": 5000, "n": 70}, 1, count)
    assert {name: size % 16 for name, size in smallest.items()} == {"m": 5000 % 16, "n": 70 % 16}
    assert max(smallest.values()) < 32
    assert smaller({}, 1, lambda sizes: 2) == {}
    batch = smaller(
        {"n": 64, "batch_size": 16}, 300, lambda sizes: sizes["n"] * sizes["batch_size"]
    )
    assert batch == {"n": 64, "batch_size": 4}


def test_other_sizes_keep_what_they_are_multiples_of() -> None:
    assert others({"n": 512, "k": 96}, {"n": 16}) == [
        {"n": 528, "k": 97}, {"n": 496, "k": 95}, {"n": 16, "k": 1},
    ]  # fmt: skip
    assert others({"n": 1}, {}) == [{"n": 2}]
    assert others({}, {}) == []
    assert wider({"n": 512, "k": 96}, {"n": 48}) == {"n": 656, "k": 96}
    assert wider({"n": 5}, {}) == {"n": 133}


def test_numbers_differ_from_launch_to_launch_and_follow_from_the_seed() -> None:
    values = {"x": Array(100), "i": np.arange(100), "a": 0.1}
    first, again = (drawn(values, (7, number), first=not number) for number in (0, 1))
    assert (first["x"] != again["x"]).all()
    assert first["i"].tolist() == list(range(100))
    assert again["i"].tolist() != first["i"].tolist()
    assert sorted(again["i"]) == sorted(first["i"])
    assert first["a"] == float(np.float32(0.1))
    assert drawn(values, (7, 1), first=False)["x"].tobytes() == again["x"].tobytes()


def test_what_saves_most_is_told_and_a_launch_only_where_nothing_else_is_worth_it() -> None:
    def speed(**saved: float) -> Speed:
        told = {"seconds": 10.0, "low": 9.0, "high": 11.0, "bound": "lsu", "bound_by": "lsu"}
        return predicted("a100", {**told, "saved": saved})

    best = speed(**{"launch=0": 6.0, "lsu=inf": 2.0, "occupancy": 3.0})
    assert (best.change, best.changed, best.advice) == ("occupancy", 7.0, ADVICE["occupancy"])
    assert speed(**{"launch=0": 6.0, "lsu=inf": 0.01}).change == "launch=0"
    assert speed(**{"launch=0": 0.01, "lsu=inf": -1.0}).change is None


def test_all_that_can_change_has_advice() -> None:
    assert ADVICE.keys() == {*CHANGES, "occupancy"}


def test_launches_of_a_module_add_up() -> None:
    """A CTA more is another number of them for each launch; the bound is the longest one's."""
    made = [
        SimpleNamespace(seconds=s, low=s - 1, high=s + 1, bound=b, bound_by=b, what_if=[Changed(c, s / 2, b)])
        for s, b, c in ((4.0, "dram", "occupancy=3"), (6.0, "lsu", "occupancy=9"))
    ]  # fmt: skip
    assert plain(made) == {  # type: ignore[arg-type]
        "seconds": 10.0, "low": 8.0, "high": 12.0, "bound": "lsu", "bound_by": "lsu", "saved": {"occupancy": 5.0},
    }  # fmt: skip


def test_a_file_has_a_reference(tmp_path: Path) -> None:
    file = tmp_path / "ref.py"
    file.write_text("import math\ndef _helper(): pass\ndef mine(x): return x\n")
    assert read_reference(file).__name__ == "mine"
    file.write_text("def a(x): return x\ndef b(x): return x\n")
    with pytest.raises(PtxlabError, match="no function reference"):
        read_reference(file)
    file.write_text("1 / 0")
    with pytest.raises(PtxlabError, match="ZeroDivisionError"):
        read_reference(file)


def test_a_reference_takes_arguments() -> None:
    with pytest.raises(PtxlabError, match="takes z"):
        ReferenceFunction(lambda z: z, ["x"])
