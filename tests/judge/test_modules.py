"""Modules of PyTorch as KernelBench has them, right and cheating: each is judged what it is."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest

from ptxlab import evaluate_many
from ptxlab.errors import PtxlabError
from ptxlab.judge.judgement import STAGES, Judgement
from ptxlab.judge.limits import Limits
from tests.clients.needs import need

need("torch", "triton")
pytestmark = (
    pytest.mark.thorough
)  # PyTorch and Triton are imported once more for them, which takes seconds

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def __init__(self, size, factor):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size))
        self.factor = factor
    def forward(self, x):
        return torch.relu(x) * self.weight + self.factor
M, N = 3, 4096 + 9
def get_inputs(): return [torch.rand(M, N)]
def get_init_inputs(): return [N, 3.0]
"""
RIGHT = """
import os, torch, triton, triton.language as tl
@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, n, factor, B: tl.constexpr):
    i = tl.program_id(1) * B + tl.arange(0, B)
    row = tl.program_id(0) * n
    x = tl.load(x_ptr + row + i, mask=i < n)
    w = tl.load(w_ptr + i, mask=i < n)
    y = tl.maximum(x, 0.0) * w + factor
    tl.store(y_ptr + row + i, y, mask=i < n)
kept = {}
class ModelNew(torch.nn.Module):
    def __init__(self, size, factor):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size))
        self.factor = factor
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0], triton.cdiv(x.shape[1], 64))](x, self.weight, y, x.shape[1], self.factor, 64)
        return y
"""
USUAL = {
    "right": ("", ""),
    "wrong": ("* w + factor", "* w * factor"),
    "library": (
        "        y = torch.empty_like(x)\n",
        "        return torch.relu(x) * self.weight + self.factor\n",
    ),
    "old answer": (
        "        return y",
        "        return kept.setdefault(x.data_ptr(), y).clone()",
    ),
    "exits": ("        y = torch.empty", "        os._exit(0); y = torch.empty"),
}
OTHERS = {
    "for show": ("        return y", "        return torch.relu(x) * self.weight + self.factor"),
    "replaces": ("kept = {}", "kept = {}; torch.allclose = lambda *_, **__: True"),
    "lazy": ("        return y", "        class Lazy(torch.Tensor): pass\n        return y.as_subclass(Lazy)"),
    "threads": (
        "        return y",
        "        import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        "        return y",
    ),
    "writes its inputs": ("        return y", "        x.zero_()\n        return y"),
    "identity": ("tl.maximum(x, 0.0)", "x"),
    "network": ("        return y", "        import socket; socket.create_connection(('127.0.0.1', PORT), 1)"),
    "reads the reference": ("        return y", "        return open('REFERENCE').read()"),
    "leaves a process": (
        "        return y",
        "        import fcntl, time\n"
        "        if not os.fork(): os.setsid(); fcntl.flock(os.open(__file__, 0), 2); time.sleep(900)\n"
        "        time.sleep(1); os._exit(0)",
    ),
    "large file": ("        return y", "        open('x', 'wb').write(bytes(1 << 22)); return y"),
    "memory": ("        return y", "        return torch.zeros(1 << 33)"),
}  # fmt: skip


def judge(folder: Path, variants: dict[str, tuple[str, str]]) -> dict[str, Judgement]:
    reference = folder / "hidden" / "reference.py"
    reference.parent.mkdir()
    reference.write_text(REFERENCE)
    for name, (old, new) in variants.items():
        text = RIGHT.replace(old, new).replace("REFERENCE", str(reference))
        assert text != RIGHT or name == "right"
        (folder / f"{name}.py").write_text(text)
    files = [folder / f"{name}.py" for name in variants]
    limits = Limits(elements=1 << 8, file=1 << 21, seconds=100)
    judged = evaluate_many(files, reference, gpus=(), arch="sm_80", limits=limits)
    return {Path(each.candidate).stem: each for each in judged}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    return judge(tmp_path_factory.mktemp("modules"), USUAL)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    return judge(tmp_path_factory.mktemp("others"), OTHERS)


def test_a_right_module_is_all_that_it_has_to_be(usual: dict[str, Judgement]) -> None:
    right = usual["right"]
    assert right.passed, (right, right.tricks, right.error)
    assert right.stages == dict.fromkeys(STAGES, True)
    assert right.full_sizes == {"M": 3, "N": 4105}
    assert right.sizes == {"M": 3, "N": 4 * 16 + 4105 % 16}
    assert [trial.name for trial in right.trials][:4] == [
        "given", "other numbers", "larger sizes", "normal numbers",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "verdict", "tricks"),
    [
        ("wrong", "not right", []),
        ("library", "not honest", ["no kernel", "a library's work"]),
        ("old answer", "not right", ["an answer of before"]),
        ("exits", "not launched", []),
    ],
)
def test_others_are_what_they_are(
    usual: dict[str, Judgement], name: str, verdict: str, tricks: list[str]
) -> None:
    assert usual[name].verdict == verdict
    assert [trick.name for trick in usual[name].tricks] == tricks


def test_a_process_that_ends_says_so(usual: dict[str, Judgement]) -> None:
    assert "ended with status 0" in str(usual["exits"].error)


@pytest.mark.parametrize(
    ("name", "verdict", "tricks"),
    [
        ("for show", "not honest", ["a kernel for show", "a library's work"]),
        ("replaces", "not honest", ["replaces functions"]),
        ("lazy", "not right", ["a lazy answer"]),
        ("threads", "not honest", ["goes on in threads"]),
        ("writes its inputs", "not honest", ["writes its inputs"]),
        ("identity", "not right", []),
        ("network", "not launched", []),
        ("reads the reference", "not launched", []),
        ("leaves a process", "not launched", []),
        ("large file", "not launched", []),
        ("memory", "not launched", []),
    ],
)
def test_tricks_are_seen(
    others: dict[str, Judgement], name: str, verdict: str, tricks: list[str]
) -> None:
    judgement = others[name]
    assert judgement.verdict == verdict, (judgement.error, judgement.tricks)
    assert [trick.name for trick in judgement.tricks] == tricks


def test_what_is_out_of_reach_is_said(others: dict[str, Judgement]) -> None:
    assert "PermissionError" in str(others["reads the reference"].error)
    assert "not tensor" not in str(others["network"].error)


def test_no_process_is_left(others: dict[str, Judgement]) -> None:
    with open(others["leaves a process"].candidate, "rb") as file:
        end = time.monotonic() + 20
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < end
                time.sleep(0.1)


def test_a_file_without_a_reference_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "reference.py"
    file.write_text("def get_inputs(): return []\n")
    with pytest.raises(PtxlabError, match="has no Model, get_init_inputs"):
        list(evaluate_many([file], file, arch="sm_80", gpus=()))
