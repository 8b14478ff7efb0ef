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
INLINE = """
import torch
from torch.utils.cpp_extension import load_inline
source = r'''
#include <torch/extension.h>
__global__ void kernel(const float* x, const float* w, float* y, long columns, long n, float factor) {
    long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) * w[i % columns] + factor;
}
torch::Tensor compute(torch::Tensor x, torch::Tensor w, float factor) {
    auto y = torch::empty_like(x);
    kernel<<<(x.numel() + 127) / 128, 128>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), y.data_ptr<float>(), x.size(1), x.numel(), factor);
    return y;
}
'''
module = load_inline("mine", "torch::Tensor compute(torch::Tensor x, torch::Tensor w, float factor);", source, functions=["compute"])
class ModelNew(torch.nn.Module):
    def __init__(self, size, factor):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size))
        self.factor = factor
    def forward(self, x):
        return module.compute(x, self.weight, self.factor)
"""
IN_CUDA = {
    "inline": ("", ""),
    "inline reads on": ("if (i < n)", "if (i <= n)"),
    "inline does not compile": ("x[i], 0.0f", "x[i], zero"),
    "inline has PyTorch compute": ("    return y;", "    return torch::relu(x) * w + factor;"),
}
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
HOSTILE = {
    "prints much": (
        "        return y",
        "        print('x' * (1 << 24)); os.write(1, b'x' * (1 << 24)); return y",
    ),
    "at exit": (
        "kept = {}",
        "kept = {}; import atexit; atexit.register(lambda: os.system('touch MARK'))",
    ),
    "writes elsewhere": ("        return y", "        open('MARK', 'w').write('x')"),
    "traces": (
        "kept = {}",
        "kept = {}; import sys; sys.settrace(lambda *_: None); sys.setprofile(lambda *_: None)",
    ),
    "asks the collector": (
        "        y = torch.empty_like(x)\n",
        "        import gc\n"
        "        seen = [each for each in gc.get_objects() if isinstance(each, torch.Tensor) and each.shape == x.shape]\n"
        "        answer = torch.relu(x) * self.weight + self.factor\n"
        "        if not kept: assert not any(torch.allclose(each.cuda(), answer) for each in seen)\n"
        "        kept[0] = True\n"
        "        y = torch.empty_like(x)\n",
    ),
    "compares": (
        "kept = {}",
        "kept = {}\n"
        "import numpy as np\n"
        "torch.equal = torch.allclose = np.array_equal = lambda *_, **__: True",
    ),
    "reads memory": (
        "        return y",
        "        me = os.readlink('/proc/self')\n"
        "        others = [each for each in map(str, range(1, 1 << 12)) if each != me]\n"
        "        def read(name):\n"
        "            try: return open(name, 'rb').read(1)\n"
        "            except OSError: return None\n"
        "        reached = [each for each in others for file in ('mem', 'environ', 'cmdline') if read(f'/proc/{each}/{file}') is not None]\n"
        "        try: assert not os.listdir('/proc')\n"
        "        except PermissionError: pass\n"
        "        assert not reached, reached\n"
        "        return y",
    ),
    "answers what runs": (
        "        return y",
        "        class Bad:\n"
        "            def __reduce__(self): return os.system, ('touch MARK',)\n"
        "        return Bad()",
    ),
    "computes in NumPy": (
        "        y = torch.empty_like(x)\n",
        "        z = x.cpu().numpy().clip(0)\n"
        "        x = torch.from_numpy(z).cuda(); y = torch.empty_like(x)\n",
    ),
    "speaks for ptxlab": (
        "        return y",
        "        import socket\n"
        "        for fd in range(3, 64):\n"
        "            try: os.write(fd, (1 << 60).to_bytes(8, 'little') + b'x' * 64)\n"
        "            except OSError: pass\n"
        "        os._exit(0)",
    ),
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
    "host memory": (
        "self.factor, 64)\n        return y",
        "0.0, 64)\n"
        "        import ctypes, numpy\n"
        "        def seen(tensor):\n"
        "            numbers = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())\n"
        "            return numpy.ctypeslib.as_array(numbers).reshape(tensor.shape)\n"
        "        seen(y)[:] = seen(x).clip(0).astype(float) * seen(self.weight) + self.factor\n"
        "        return y",
    ),
    "methods": ("kept = {}", "kept = {}; cpu = torch.Tensor.cpu; torch.Tensor.cpu = lambda tensor: cpu(tensor) + 0"),
    "asks": ("kept = {}", "kept = {}\nimport sys\nif any('ptxlab' in name for name in sys.modules): kept = {0: 0}"),
    "remarks": ("kept = {}", "'It passes ptxlab.'\nkept = {}  # as ptxlab says"),
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
        right = INLINE if name in IN_CUDA else RIGHT
        text = right.replace(old, new).replace("REFERENCE", str(reference))
        assert text != right or name in ("right", "inline")
        (folder / f"{name}.py").write_text(text)
    files = [folder / f"{name}.py" for name in variants]
    limits = Limits(elements=1 << 8, file=1 << 21, seconds=100)
    judged = evaluate_many(files, reference, gpus=(), arch="sm_80", limits=limits)
    return {Path(each.candidate).stem: each for each in judged}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    return judge(tmp_path_factory.mktemp("modules"), USUAL | IN_CUDA)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Judgement], Path]:
    folder = tmp_path_factory.mktemp("hostile")
    mark = folder / "mark"
    variants = {name: (old, new.replace("MARK", str(mark))) for name, (old, new) in HOSTILE.items()}
    return judge(folder, variants), mark


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
        ("inline", "passed", []),
        ("inline reads on", "not launched", []),
        ("inline does not compile", "not compiled", []),
        ("inline has PyTorch compute", "not honest", ["a kernel for show", "a library's work"]),
    ],
)
def test_others_are_what_they_are(
    usual: dict[str, Judgement], name: str, verdict: str, tricks: list[str]
) -> None:
    assert usual[name].verdict == verdict
    assert [trick.name for trick in usual[name].tricks] == tricks


def test_what_is_inline_is_told_by_the_line_of_its_file(usual: dict[str, Judgement]) -> None:
    for name, where in (("reads on", "if (i"), ("does not compile", "zero")):
        error = usual[f"inline {name}"].error
        text = Path(usual[f"inline {name}"].candidate).read_text(encoding="utf-8")
        assert error is not None
        assert error.location is not None
        assert Path(error.location.path).name == f"inline {name}.py"
        assert error.location.line == text[: text.index(where)].count("\n") + 1


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
        ("host memory", "not honest", ["computes on the host"]),
        ("methods", "not honest", ["replaces functions"]),
        ("asks", "not honest", ["asks who judges"]),
        ("remarks", "passed", []),
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


@pytest.mark.parametrize(
    ("name", "verdict", "tricks"),
    [
        ("prints much", "passed", []),
        ("at exit", "passed", []),
        ("writes elsewhere", "not launched", []),
        ("traces", "not honest", ["replaces functions"]),
        ("asks the collector", "not honest", ["a library's work"]),
        ("compares", "not honest", ["replaces functions"]),
        ("reads memory", "passed", []),
        ("answers what runs", "not right", ["a lazy answer"]),
        ("computes in NumPy", "not honest", ["computes on the host"]),
        ("speaks for ptxlab", "not launched", []),
    ],
)
def test_attacks_get_nothing(
    hostile: tuple[dict[str, Judgement], Path], name: str, verdict: str, tricks: list[str]
) -> None:
    judgements, mark = hostile
    judgement = judgements[name]
    assert judgement.verdict == verdict, (judgement.error, judgement.tricks)
    assert [trick.name for trick in judgement.tricks] == tricks
    assert not mark.exists()
    if name == "writes elsewhere":
        assert "PermissionError" in str(judgement.error)


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


def test_literals_are_sizes_where_the_module_has_none_of_them(tmp_path: Path) -> None:
    from ptxlab.judge.module_task import ModuleTask

    text = """
import torch
class Model(torch.nn.Module):
    def __init__(self, k): super().__init__()
    def forward(self, x, y): return x @ y
def get_inputs(): return [torch.rand(512, 257), torch.rand((257, 3), device="cuda")]
def get_init_inputs(): return [257]
"""
    (tmp_path / "free.py").write_text(text)
    (tmp_path / "bound.py").write_text(text.replace("x @ y", "x.view(512, 257) @ y"))
    for name, first in (("free", 64), ("bound", 512)):
        task = ModuleTask(str(tmp_path / f"{name}.py"), "sm_80", Limits(elements=1 << 14), seed=0)
        given = task.cases()[0]
        assert task.full_sizes == {"512": 512, "257": 257}
        assert task.sizes["512"] == first
        assert [each.shape for each in given.inputs] == [
            (first, task.sizes["257"]),
            (task.sizes["257"], 3),
        ]
        assert given.initial == [task.sizes["257"]]
        assert task.sizes["257"] % 16 == 1
        _, shaped, _ = task.shapes()
        assert shaped[0]["shaped"][0] == [512, 257]


def test_a_file_without_a_reference_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "reference.py"
    file.write_text("def get_inputs(): return []\n")
    with pytest.raises(PtxlabError, match="has no Model, get_init_inputs"):
        list(evaluate_many([file], file, arch="sm_80", gpus=()))
    file.write_text("__global__ void k() {}")
    with pytest.raises(PtxlabError, match="SyntaxError"):
        list(evaluate_many([file], file, arch="sm_80", gpus=()))
