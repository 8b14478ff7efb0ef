"""A compiled program, unchanged: the runtime that it was linked with is answered in its process."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ptxlab.clients.driver.library import RUNTIMES
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.main import main
from ptxlab.verbs.exec import compiled
from tests.toolchain.binaries import PTX, container, member

SCALE = """\
.version 7.0
.target sm_70
.address_size 64
.global .u32 factor;
.visible .entry scale(.param .u64 values, .param .u32 n)
{
    .reg .pred p;
    .reg .b32 i, most, x, f, c, t;
    .reg .b64 a;
    ld.param.u64 a, [values];
    ld.param.u32 most, [n];
    mov.u32 c, %ctaid.x;
    mov.u32 t, %tid.x;
    mad.lo.u32 i, c, 128, t;
    setp.ge.u32 p, i, most;
    @p ret;
    mad.wide.u32 a, i, 4, a;
    ld.global.u32 x, [a];
    ld.global.u32 f, [factor];
    mul.lo.u32 x, x, f;
    st.global.u32 [a], x;
    ret;
}
"""


def fatbin_of(text: str) -> str:
    data = container(member(PTX, 70, text.encode() + b"\0"))
    return f"_Alignas(8) const unsigned char fatbin[] = {{{','.join(map(str, data))}}};\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program that is linked with a runtime which ptxlab wrote, and finds none where it runs."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no compiler of C")
    folder = tmp_path_factory.mktemp("compiled")
    source = (Path(__file__).parent / "programs/compiled.c").read_text()
    asked = sorted(set(re.findall(r"\b((?:__)?cuda[A-Z]\w*)\(", source)))
    texts = {
        "program.c": source,
        "fatbin.c": fatbin_of(SCALE),
        "empty.c": "".join(f"int {name}(void) {{ return 0; }}\n" for name in asked),
        "versions": f"{RUNTIMES[0]} {{ *; }};\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    # What it is linked with has the names and the version of NVIDIA's, and is not there when it runs.
    empty = ["-shared", "-o", RUNTIMES[0], f"-Wl,-soname,{RUNTIMES[0]},--version-script,versions"]
    for arguments in ([*empty, "empty.c"], ["-o", "program", "program.c", "fatbin.c", RUNTIMES[0]]):
        subprocess.run([compiler, "-w", *arguments], cwd=folder, check=True)
    (folder / RUNTIMES[0]).unlink()
    return folder / "program"


def test_a_program_that_shares_the_runtime(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["exec", "--arch", "sm_86", "--check", "--", str(program), "7"]) == 7
    shown = capfd.readouterr()
    assert shown.out.splitlines() == [
        "malloc: cudaSuccess", "copy: cudaSuccess", "symbol: cudaSuccess",
        "symbol beyond its end: cudaErrorInvalidValue", "symbol of another: cudaErrorInvalidSymbol",
        "last: cudaErrorInvalidSymbol", "launch: cudaSuccess",
        "too many threads: cudaErrorInvalidConfiguration", "back: cudaSuccess", "size: cudaSuccess",
        "properties: cudaSuccess", "right, 4 bytes, capability 8.6", "an illegal memory access was encountered",
        "array: cudaErrorNotSupported", "free: cudaErrorIllegalAddress",
    ]  # fmt: skip
    for words in (
        "cudaLaunchKernel: <program>:18:5: global load of 4 bytes",
        "block x is 2048; it can be 1 to 1024",
        "cudaArrayGetInfo is a function of the CUDA runtime that the emulator does not have",
        "ptxlab: 1 launch of 1 kernel on the emulator, sm_86",
        "findings in 1 kernel",
    ):  # fmt: skip
        assert words in shown.err, shown.err
    assert "no version information" not in shown.err


def test_what_has_no_runtime_to_share_is_refused(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One linked statically is in tests/verbs/exec/test_exec.py."""
    older = tmp_path / "older"
    older.write_bytes(program.read_bytes().replace(b"libcudart.so.12\0", b"libcudart.so.11\0"))
    older.chmod(0o755)
    with pytest.raises(Unsupported, match=r"linked with libcudart\.so\.11, and the emulator has"):
        compiled.libraries_for(str(older), tmp_path / "libraries")
    assert compiled.libraries_for(sys.executable, tmp_path / "libraries") == {}
    assert compiled.libraries_for(__file__, tmp_path / "libraries") == {}
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_config_vars", lambda *names: [str(tmp_path), None, ""])
    with pytest.raises(PtxlabError, match=r"this Python has no libpython3\.\d+\.so\.1\.0, which"):
        compiled.libraries_for(str(program), tmp_path / "libraries")
