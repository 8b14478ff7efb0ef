"""A cubin without its PTX on the emulator: its parameters lie where its own table has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxlab.device.opening import open_device
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.machine.image import KernelImage, read_image
from ptxlab.machine.lift.module import declared
from ptxlab.main import main
from ptxlab.toolchain import assemble_cuda, link_ptx
from tests.toolchain.binaries import CUBIN, container, executable, member

SOURCE = """
struct Mixed { char a; long long b[3]; short c; };
extern "C" __global__ void mixed(long long* out, char first, int n, Mixed m, short last) {
    out[0] = first; out[1] = n; out[2] = m.a; out[3] = m.b[2]; out[4] = m.c; out[5] = last;
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_parameters_come_from_the_cubin(arch: str, tmp_path: Path) -> None:
    _, cubin = assemble_cuda(SOURCE, path="k.cu", arch=arch)
    file = tmp_path / "k.cubin"
    file.write_bytes(cubin.image)
    mixed = np.zeros(1, np.dtype([("a", "i1"), ("b", "i8", 3), ("c", "i2")], align=True))
    mixed["a"], mixed["b"], mixed["c"] = -3, [7, 8, -(1 << 40)], 12345
    with open_device("emulator", arch=arch, engine="sass") as device:
        module = device.load(file)
        kernel = module.kernel("mixed")
        assert [(each.offset, each.size) for each in kernel.parameters] == [
            (0, 8), (8, 1), (12, 4), (16, 40), (56, 2)
        ]  # fmt: skip
        out = device.zeros((6,), "s64")
        kernel.launch(grid=1, block=1, args=[out, 5, 1 << 20, mixed.view("u1"), 999])
        assert out.numpy().tolist() == [5, 1 << 20, -3, -(1 << 40), 12345, 999]


def test_the_command_line_takes_the_target_from_the_cubin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ptx = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 32
{ .reg .b32 i; .reg .b64 d; ld.param.u64 d, [out]; mov.u32 i, %tid.x;
  mad.wide.u32 d, i, 4, d; st.global.u32 [d], i; ret; }
"""
    file = tmp_path / "k.cubin"
    file.write_bytes(link_ptx(ptx, arch="sm_80").image)
    words = [
        "run",
        str(file),
        "--arg",
        "param_0=zeros(32,u32)",
        "--expect",
        "param_0=arange(32,u32)",
    ]
    assert main([*words, "--engine", "sass"]) == 0
    assert "sm_80" in capsys.readouterr().out
    assert main([*words, "--device", "emulator"]) == 4
    assert "--engine sass runs it" in capsys.readouterr().err
    with (
        open_device("emulator", arch="sm_90a", engine="sass") as device,
        pytest.raises(PtxlabError, match="no machine code for sm_90a"),
    ):
        device.load(file)


@pytest.mark.parametrize(
    ("arch", "alignment", "offset"), [("sm_90", 64, 48), ("sm_90", 128, 112), ("sm_80", 64, 32)]
)
def test_parameters_are_aligned_where_constants_are(
    arch: str, alignment: int, offset: int, tmp_path: Path
) -> None:
    """They begin at 0x210 of the bank on sm_90 and at 0x160 on sm_80."""
    ptx = f""".version 8.0
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .align {alignment} .b8 map[128], .param .u32 last)
{{ .reg .b32 i, j; .reg .b64 d; ld.param.u64 d, [out]; ld.param.u32 i, [map+124]; ld.param.u32 j, [last];
  st.global.u32 [d], i; st.global.u32 [d+4], j; ret; }}
"""
    file = tmp_path / "k.cubin"
    file.write_bytes(link_ptx(ptx, arch=arch).image)
    with open_device("emulator", arch=arch, engine="sass") as device:
        kernel = device.load(file).kernel("k")
        assert [each.offset for each in kernel.parameters] == [0, offset, offset + 128]
        out = device.zeros((2,), "u32")
        kernel.launch(grid=1, block=1, args=[out, np.arange(128, dtype=np.uint8), 77])
        assert out.numpy().tolist() == [0x7F7E7D7C, 77]


def test_parameters_that_no_declaration_puts_there_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ptx = ".version 8.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 a, .param .u32 b) { ret; }"
    image = read_image(link_ptx(ptx, arch="sm_80").image)
    first, second = image.kernels["k"].parameters
    monkeypatch.setattr(KernelImage, "parameters", (first, replace(second, offset=9)))
    with pytest.raises(Unsupported, match="parameter 1 of k lies 1 bytes behind"):
        declared([image], "k.cubin")


def test_a_kernel_is_found_in_any_part_of_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each part has a variable of its own, and its constant memory begins where those of others do."""
    text = """.version 8.0
.target sm_80
.address_size 64
.const .b32 told = {value};
.global .b32 {name}_seen;
.visible .entry {name}(.param .u64 out)
{{ .reg .b32 i; .reg .b64 d; ld.param.u64 d, [out]; ld.const.b32 i, [told]; st.global.b32 [{name}_seen], i;
  ld.global.b32 i, [{name}_seen]; st.global.b32 [d], i; ret; }}
"""
    images = [
        link_ptx(text.format(name=name, value=value).replace("told", f"{name}_told"), arch="sm_80")
        for name, value in (("one", 11), ("two", 22))
    ]
    parts = [container(member(CUBIN, 80, cubin.image)) for cubin in images]
    file, twice = tmp_path / "program", tmp_path / "twice"
    file.write_bytes(executable(b"".join(parts)))
    twice.write_bytes(executable(2 * parts[0]))
    words = ["run", str(file), "--engine", "sass", "--block", "1", "--arg", "param_0=zeros(1,u32)"]
    assert main([*words, "--kernel", "two", "--expect", "param_0=param_0 + 22"]) == 0
    assert main([*words, "--kernel", "one", "--expect", "param_0=param_0 + 11"]) == 0
    capsys.readouterr()
    assert main(words) == 2
    assert "has 2 kernels" in (told := capsys.readouterr().err)
    assert "one, two" in told
    with (
        open_device("emulator", arch="sm_80", engine="sass") as device,
        pytest.raises(Unsupported, match=r"2 of the programs .* have a variable one_"),
    ):
        device.load(twice)
