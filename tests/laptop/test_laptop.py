"""A laptop without NVIDIA's packages, on a system that is not POSIX: what needs only PTX works there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PTX = "ptx/mma_m16n8k16_bf16_f32.ptx"

WORKS = {
    "fragments --op m16n8k16 --dtype bf16": "layout    verified: every register of every lane",
    "fragments --op m16n8k16 --dtype bf16 --element D[5,6]": "D[5,6] is in lane 23, register d0",
    "fragments --html -o atlas.html": "",
    "ops --family movmatrix": "movmatrix.sync.aligned.m8n8.trans.b16",
    "explain m16n8k16": "computes",
    "layout 8x64 --banks ldmatrix --bits 16": "bank",
    "numerics": "sm_90",
    f"run {PTX}": "d  f32 16x8  changed",
    f"dump {PTX} --at mma.sync --regs D": "lane",
    f"check {PTX}": "no ",
    f"profile {PTX}": "counted on the emulator",
    f"diff {PTX} --a emulator:sm_80 --b emulator": "they differ by rounding",
    f"step {PTX} -o step.html": "",
    f"trace {PTX} -o trace.html": "",
    "gemm --algorithm tensor_core_ptx --size 32": "result   right",
    "gemm --algorithm naive --size 32": "result   right",
    "gemm --algorithm tensor_core --size 32": "result   right",
    "gemm --list": "wgmma_persistent",
    "doctor": "the emulator          yes",
    "completion bash": "complete",
}
"""What works, and what it prints; what differs is a result, with status 1."""

NEEDS_A_TOOL = {
    "run kernels/naive.cu": "NVRTC",
    f"sass {PTX}": "nvJitLink",
    "gemm --explain --algorithm naive --size 32": "NVRTC",
    "gemm --algorithm naive --tile BM=16 --size 32": "NVRTC",
}
"""What ends with status 3, and the tool that it names."""

RUN_ALL = """
import contextlib, io, json, os, sys
del os.sysconf  # here, because Python's asyncio, which pytest imports, needs it on Linux
from ptxlab.main import main

def ran(words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    return status, out.getvalue(), err.getvalue()

print(json.dumps([ran(words) for words in json.load(sys.stdin)]))
"""


class Ran(NamedTuple):
    status: int
    out: str
    err: str


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a Python that is without, and finds nothing that was made with."""
    path = os.pathsep.join([str(Path(__file__).with_name("without")), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache")}


def test_what_needs_only_ptx_works_and_what_needs_a_tool_says_so(tmp_path: Path) -> None:
    """All commands one after the other in one process, which takes eight seconds: so it is one test."""
    commands = [*WORKS, *NEEDS_A_TOOL]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        input=json.dumps([shlex.split(command) for command in commands]),
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for command, outcome in zip(commands, json.loads(done.stdout), strict=True):
        ran = Ran(*outcome)
        if command in WORKS:
            works(command, ran, tmp_path)
        else:
            needs_a_tool(command, ran)


def works(command: str, ran: Ran, folder: Path) -> None:
    """Assert that a command did what it does everywhere."""
    assert ran.status == (1 if command.startswith("diff") else 0), (command, ran)
    assert WORKS[command] in ran.out, command
    if " -o " in command:
        assert "</html>" in (folder / command.rpartition(" ")[2]).read_text(encoding="utf-8")


def needs_a_tool(command: str, ran: Ran) -> None:
    """Assert that a command said in one sentence which tool it lacks."""
    assert (ran.status, ran.out) == (3, ""), (command, ran)
    *_, message, hint = ran.err.splitlines()
    assert message.startswith(f"ptxlab: {NEEDS_A_TOOL[command]} is not available"), command
    assert hint.startswith("hint: ")


def test_the_pytest_plugin_has_a_device(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_kernel.py").write_text(
        "def test_kernel(device):\n    assert device.name == 'ptxlab emulator, sm_80'\n"
    )
    options = ["-p", "ptxlab.testing.plugin", "--ptxlab-arch=sm_80", "test_kernel.py"]
    command = [sys.executable, "-m", "pytest", *options]
    alone = environment(tmp_path) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stderr


def test_what_is_taken_away_is_gone(tmp_path: Path) -> None:
    tried = """
import importlib, os, signal
for name in ("cuda.bindings", "nvidia", "fcntl", "resource"):
    try:
        importlib.import_module(name)
        print(name)
    except ModuleNotFoundError: pass
try:
    print(open("/dev/zero"))
except FileNotFoundError: pass
print(hasattr(os, "fork"), hasattr(signal, "SIGALRM"))
"""
    command = [sys.executable, "-c", tried]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False False\n", "")


# ---- what is installed where ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "machine", "wanted"),
    [
        ("linux", "x86_64", True),
        ("linux", "aarch64", True),
        ("win32", "AMD64", True),
        ("win32", "ARM64", True),
        ("darwin", "arm64", False),
        ("darwin", "x86_64", False),
        ("linux", "riscv64", False),
    ],
)
def test_packages_are_asked_for_where_nvidia_has_wheels(
    system: str, machine: str, wanted: bool
) -> None:
    """The file names of releases 13.4 and 13.5 of these packages on PyPI."""
    here = {"sys_platform": system, "platform_machine": machine}
    asked = {
        requirement.name
        for requirement in map(Requirement, PROJECT["dependencies"])
        if requirement.marker is None or requirement.marker.evaluate(here)
    }
    nvidia = {"cuda-python", "nvidia-cuda-nvrtc", "nvidia-nvjitlink", "nvidia-cuda-nvdisasm"}
    assert asked == {"numpy", "ml_dtypes", "rich"} | (nvidia if wanted else set())


def test_every_place_names_the_same_versions_of_python() -> None:
    allowed = SpecifierSet(PROJECT["requires-python"])
    minors = [minor for minor in range(40) if f"3.{minor}" in allowed]
    first, last = minors[0], minors[-1]
    for name in ("README.md", "CONTRIBUTING.md", "scripts/common.sh"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.findall(r"Python 3\.(\d+) to 3\.(\d+)", text) == [(str(first), str(last))], name
        if name.endswith(".sh"):
            assert f"(3, {first}) <= sys.version_info < (3, {last + 1})" in text
    named = [
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["classifiers"]
        if ":: 3." in classifier
    ]
    assert named == [f"3.{minor}" for minor in minors]
