"""SASS read from text, beside the same machine code as nvdisasm tells it in JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ptxlab.cache import bypassed
from ptxlab.errors import ToolchainError
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.sass import NAMELESS, read_sass, sass, whole
from ptxlab.syntax.parser import parse
from ptxlab.toolchain import (
    assemble_cuda,
    compile_cuda,
    disassemble,
    inventory,
    link_ptx,
    nvjitlink,
    nvrtc,
)  # fmt: skip
from ptxlab.toolchain.cubin import Remark, read_remarks, read_resources
from ptxlab.toolchain.wheels import ToolAbsent

TEXT = """\
	.target	sm_90a
//--------------------- .text.helper      --------------------------
	.section	.text.helper,"ax",@progbits
helper:
	//## File ".nv_debug_ptx_txt.986082944", line 158
        /*0000*/                   S2R R0, SR_LANEID ;
        /*0010*/                   RET.ABS.NODEC R20 0x0 ;
.L_x_4:
        /*0020*/                   BRA `(.L_x_4);
        /*0030*/                   NOP;
.L_x_12:
//--------------------- .text.k           --------------------------
	.section	.text.k,"ax",@progbits
        .other          k,@"STO_CUDA_ENTRY STV_DEFAULT"
k:
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File ".nv_debug_ptx_txt.986082944", line 9
.L_x_1:
        /*0010*/              @!P0 LDG.E.64 R4, desc[UR4][R2.64+-0x8] ;
	//## File ".nv_debug_ptx_txt.986082944", line 11
        /*1020*/               @P1 BRA `(.L_x_1) ;
        /*1030*/                   NOP ;
        /*1040*/                   EXIT ;
        /*1050*/                   NOP;
"""


def test_each_part_of_an_instruction() -> None:
    helper, kernel = read_sass(TEXT).values()
    assert (helper.name, helper.kernel, kernel.name, kernel.kernel) == ("helper", False, "k", True)
    assert [instruction.name for instruction in helper.instructions] == ["S2R", "RET.ABS.NODEC"]
    first, load, branch, nop, end = kernel.instructions
    assert (first.line, load.line, branch.line, end.line) == (None, 9, 11, 11)
    assert (load.address, load.guard, load.opcode, load.modifiers) == (
        16,
        "@!P0",
        "LDG",
        ("E", "64"),
    )
    assert load.operands == ("R4", "desc[UR4][R2.64+-0x8]")
    assert load.text == "@!P0 LDG.E.64 R4, desc[UR4][R2.64+-0x8]"
    assert (branch.address, branch.target) == (0x1020, ".L_x_1")
    assert (nop.text, end.operands, end.target) == ("NOP", (), None)
    assert kernel.labels == {".L_x_1": 16}
    assert kernel.opcodes() == {"LDC": 1, "LDG": 1, "BRA": 1, "NOP": 1, "EXIT": 1}


def test_what_nvdisasm_leaves_out_has_no_name() -> None:
    kernel = whole(
        read_sass(TEXT.replace("1020", "0030").replace("1030", "0040").replace("1040", "0050"))["k"]
    )
    assert [each.opcode for each in kernel.instructions[:5]] == [
        "LDC",
        "LDG",
        NAMELESS,
        "BRA",
        "NOP",
    ]
    assert [each.address for each in kernel.instructions] == list(range(0, 0x60, 16))


CALLS = """
__device__ __noinline__ float helper(float x, int n) { return n ? helper(x * 2, n - 1) : x; }
extern "C" __global__ void k(float* x, const double* y, int n) {
    __shared__ float tile[64];
    for (int i = threadIdx.x; i < n; i += 64) {
        tile[threadIdx.x] = helper(x[i], i & 3) + float(y[i] / 3);
        __syncthreads();
        x[i] = tile[63 - threadIdx.x];
    }
}
"""


@pytest.mark.parametrize(
    "arch",
    [
        pytest.param("sm_75", marks=pytest.mark.thorough),
        pytest.param("sm_80", marks=pytest.mark.thorough),
        "sm_90a",
        pytest.param("sm_100a", marks=pytest.mark.thorough),
        pytest.param("sm_120a", marks=pytest.mark.thorough),
    ],
)
def test_text_holds_what_json_does(arch: str) -> None:
    cubin = link_ptx(compile_cuda(CALLS, path="k.cu", arch=arch), arch=arch)
    listings = sass(cubin)
    _, functions = json.loads(disassemble(cubin, options=["-json"]))
    assert sorted(listings) == sorted(function["function-name"] for function in functions)
    for function in functions:
        ours = listings[function["function-name"]].instructions
        theirs = function["sass-instructions"]
        assert [instruction.name for instruction in ours] == [
            instruction["opcode"] for instruction in theirs[: len(ours)]
        ]
        padding = theirs[len(ours) :]
        assert {instruction["opcode"] for instruction in padding} <= {"BRA", "NOP"}
        for decoded, other in zip(ours, theirs, strict=False):
            if decoded.target is None and "lo(" not in decoded.text and "hi(" not in decoded.text:
                operands = ",".join(decoded.operands).replace(" ", ",")  # "RET.ABS R20 0x0"
                assert operands == other.get("operands", "").replace(" ", ",")


def test_each_line_of_ptx_has_its_machine_code() -> None:
    source = (
        'extern "C" __global__ void k(float* x) {\n  x[threadIdx.x] *= 3;\n  __syncthreads();\n}\n'
    )
    ptx, cubin = assemble_cuda(source, path="k.cu", arch="sm_90a", options=["-lineinfo"])
    assembly = Assembly(parse(ptx), cubin)
    lines = assembly.lines("k")
    assert [line.number for line in lines] == sorted(line.number for line in lines)
    (multiply,) = (line for line in lines if line.text.startswith("mul.f32"))
    assert multiply.source is not None
    assert (Path(multiply.source.path).name, multiply.source.line) == ("k.cu", 2)
    assert [instruction.opcode for instruction in multiply.sass] == ["FMUL"]
    (barrier,) = (line for line in lines if line.text.startswith("bar"))
    assert barrier.source is not None
    assert barrier.source.line == 3
    assert "BAR" in [instruction.opcode for instruction in barrier.sass]
    shown = [instruction for line in lines for instruction in line.sass]
    instructions = assembly.functions["k"].instructions
    assert sorted(shown, key=lambda instruction: instruction.address) == list(instructions)


LOG = """\
ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility.
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized \
due to non wgmma instructions in the function 'k' in line 49
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized \
due to non wgmma instructions in the function 'k' in line 49
ptxas warning : Value of threads per SM for entry k is out of range.
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
ptxas         .     24 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 30 registers, used 2 barriers, 1024 bytes smem
"""


def test_remarks_are_kept_in_full_and_once() -> None:
    first, second, third = read_remarks(LOG)
    assert (first.code, first.line) == ("C7504", None)
    assert (second.code, second.line) == ("C7510", 49)
    assert second.text.endswith("due to non wgmma instructions in the function 'k' in line 49")
    assert third == Remark("", "Value of threads per SM for entry k is out of range.", None)
    (used,) = read_resources(LOG)
    assert (used.registers, used.barriers, used.shared, used.stack) == (30, 2, 1024, 24)
    assert (used.spill_stores, used.spill_loads) == (8, 16)


SERIALISED = """
extern "C" __global__ void k(float* out, unsigned long long a, unsigned long long b) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;");
  for (int i = 0; i < 2; ++i) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; "
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    d[0] += out[i];
  }
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  for (int i = 0; i < 4; ++i) out[i] = d[i];
}
"""


def test_ptxas_says_when_wgmma_is_serialised() -> None:
    ptx = compile_cuda(SERIALISED, path="k.cu", arch="sm_90a")
    remarks = link_ptx(ptx, arch="sm_90a").remarks
    (serialized,) = (remark for remark in remarks if "serialized" in remark.text)
    assert "C7510" <= serialized.code <= "C7515"
    assert serialized.line is not None
    assert "wgmma" in ptx.splitlines()[serialized.line - 1]


WHOLE = """
__device__ __noinline__ float once(float x) { return x * 3; }
extern "C" __global__ void __launch_bounds__(384, 1) k(float* out) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  *out = once(*out);
}
"""


def test_cuda_c_is_assembled_as_a_whole() -> None:
    """Only so does setmaxnreg do anything: ptxas ignores it in what is to be linked with others."""
    ptx, cubin = assemble_cuda(WHOLE, path="k.cu", arch="sm_90a")
    assert ptx == compile_cuda(WHOLE, path="k.cu", arch="sm_90a")
    assert cubin.remarks == []
    assert "USETMAXREG" in sass(cubin)["k"].opcodes()
    assert cubin.kernels["k"].registers == 168
    linked = link_ptx(ptx, arch="sm_90a")
    assert [remark.code for remark in linked.remarks] == ["C7504"]
    assert "USETMAXREG" not in sass(linked)["k"].opcodes()


def test_a_long_log_is_cut_and_says_so() -> None:
    body = "\n".join(f"  nonsense.f32 %f{i}, %f1;" for i in range(50))
    ptx = f".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{\n{body}\n}}\n"
    with pytest.raises(ToolchainError, match=r"\.\.\. and \d+ more lines") as caught:
        link_ptx(ptx, arch="sm_80")
    assert len(str(caught.value).splitlines()) < 18


# ---- inventory ------------------------------------------------------------------------------


def test_the_inventory_finds_all_tools_and_the_newest_ptx() -> None:
    tools = inventory.tools()
    *needed, nvcc = tools
    assert [tool.name for tool in tools] == ["NVRTC", "nvJitLink", "nvdisasm", "nvcc"]
    assert all(Path(tool.path).is_file() and tool.version and not tool.problem for tool in needed)
    assert nvcc.problem or re.fullmatch(r"\d+\.\d+\.\d+", nvcc.version), "it need not be there"
    newest = inventory.newest_ptx()
    text = ".version {}\n.target sm_80\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
    link_ptx(text.format(newest), arch="sm_80")
    major, minor = newest.split(".")
    with pytest.raises(ToolchainError):
        link_ptx(text.format(f"{major}.{int(minor) + 1}"), arch="sm_80")
    ptx = compile_cuda("__global__ void k() {}", path="k.cu", arch="sm_80")
    assert f".version {newest}" in ptx or nvrtc.version() != nvjitlink.version()


def test_an_absent_tool_is_a_problem_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise ToolAbsent("NVRTC", "nvidia-cuda-nvrtc", "no such library")

    monkeypatch.setattr(nvrtc, "version", absent)
    first, *_ = inventory.tools()
    assert first.problem == "NVRTC is not available: no such library"
    assert (first.version, first.path, first.package) == ("", "", "nvidia-cuda-nvrtc")


@pytest.mark.parametrize(("driver", "ptx"), [(13000, "9.0"), (12080, "8.7"), (12090, "8.8")])
def test_the_newest_ptx_of_a_driver(driver: int, ptx: str) -> None:
    """PTX ISA, "Release Notes": 9.0 came with CUDA 13.0, 8.8 with 12.9, 8.7 with 12.8."""
    assert inventory.newest_ptx_of_driver(driver) == ptx


def test_past_the_cache_work_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []
    real = nvjitlink._link

    def spy(*args: Any) -> tuple[bytes, str]:
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(nvjitlink, "_link", spy)
    ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
    for _ in range(2):
        with bypassed():
            link_ptx(ptx, arch="sm_80")
    assert len(calls) == 2
    assert list(tmp_path.iterdir()) == []
    link_ptx(ptx, arch="sm_80")
    link_ptx(ptx, arch="sm_80")
    assert len(calls) == 3
