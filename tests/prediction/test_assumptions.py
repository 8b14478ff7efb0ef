"""What is assumed of conditions that are not computed: it decides, is said, and is told by line or by address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxlab
from ptxlab.device.loading import load_assembled
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.main import main
from ptxlab.prediction.model import Prediction

PRODUCT = """\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b64 p; .reg .b32 r, n; .reg .f32 f, g<4>; .reg .pred u, more;
  ld.param.u64 p, [out]; ld.global.f32 f, [p]; mov.b32 r, f;
  mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {g0, g1, g2, g3}, {r, r}, {r}, {f, f, f, f};
  setp.gt.f32 u, g0, 0f00000000;
  @u bra done;
  mov.u32 n, 0;
again:
  fma.rn.f32 f, f, f, f; add.u32 n, n, 1; setp.lt.u32 more, n, 4096;
  @more bra again;
done:
  st.global.f32 [p], f;
  ret;
}
"""
"""What is behind line 10 takes long, and is passed by where the product of tensor cores is positive."""
LINE = 10

HISTOGRAM = """\
extern "C" __global__ void histogram(const unsigned char *data, int *bins, int n)
{
    __shared__ int mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
        atomicAdd(&mine[data[i]], 1);
    __syncthreads();
    int found = mine[threadIdx.x];
    if (found > 0)
        atomicAdd(&bins[threadIdx.x], found);
}
"""
"""Bins of each CTA, of which those are added that anything was counted in: as who tunes histograms writes them."""
ADDED = 10


def told(**assume: Any) -> Prediction:
    return ptxlab.predict(PRODUCT, "a100", 1, 32, [np.zeros(64, np.float32)], **assume)


def test_what_a_product_decides_is_as_it_is_assumed() -> None:
    passed, done = (told(assume={f"{LINE}": holds}) for holds in (True, False))
    assert done.cycles - passed.cycles > 4096 * 4
    assert (
        passed.not_modelled[-1]
        == f"what line {LINE} decides where it is not computed: yes is assumed"
    )
    assert (
        done.not_modelled[-1] == f"what line {LINE} decides where it is not computed: no is assumed"
    )


def test_whether_a_copy_reads_is_as_it_is_assumed() -> None:
    """The predicate of cp.async itself, without which it copies zeros, at line 10."""
    copied = PRODUCT[: PRODUCT.index("  @u bra done;")].replace(
        ".reg .pred u, more;", ".reg .pred u; .shared .align 16 .b8 there[16];"
    )
    copied += "cp.async.ca.shared.global [there], [p+4096], 16, u;\n  cp.async.wait_all; ret;\n}\n"
    out = [np.zeros(2048, np.float32)]
    with pytest.raises(Unsupported, match="reads depends on data that is not computed") as caught:
        ptxlab.predict(copied, "a100", 1, 32, out)
    assert caught.value.hint is not None
    assert f"{LINE}=yes" in caught.value.hint
    read, zeros = (
        ptxlab.predict(copied, "a100", 1, 32, out, assume={f"{LINE}": holds}, cold=True)
        for holds in (True, False)
    )
    assert (read.dram_bytes, zeros.dram_bytes) == (2 * 32, 32)


def test_the_refusal_names_the_line_and_the_option() -> None:
    with pytest.raises(Unsupported, match="depends on data that is not computed") as caught:
        told()
    assert caught.value.location is not None
    assert caught.value.location.line == LINE
    assert (
        caught.value.hint
        == f"ptxlab predict --assume {LINE}=yes says that it is taken, {LINE}=no that it is not"
    )


@pytest.mark.parametrize("where", ["7", "0x10", "elsewhere.cu:10", "ten", ""])
def test_a_place_where_nothing_is_decided_is_an_error(where: str) -> None:
    with pytest.raises(PtxlabError, match=f"nothing is decided at {where}"):
        told(assume={where: True})


def test_what_is_computed_is_not_assumed() -> None:
    """The loop's own branch, at line 14, goes on for as long as it does."""
    assumed = {f"{LINE}": False, "14": False}
    assert told(assume=assumed).cycles == told(assume={f"{LINE}": False}).cycles


def predicted(program: Path, gpu: str, assume: dict[str, bool] | None = None) -> Prediction:
    numbers = np.random.default_rng(3).integers(0, 256, 1 << 16, np.uint8)
    args = [numbers, np.zeros(256, np.int32), len(numbers)]
    return ptxlab.predict(str(program), gpu, 16, 256, args, assume=assume or {})


@pytest.mark.parametrize("gpu", ["a100", "h100", "rtx4090", "rtx5090"])
def test_bins_of_a_cta_are_added_or_not(tmp_path: Path, gpu: str) -> None:
    """As a branch or a guard, whichever the compiler made of it: one of both adds 16 CTAs' bins, the other none."""
    program = tmp_path / "histogram.cu"
    program.write_text(HISTOGRAM)
    both = [predicted(program, gpu, {f"histogram.cu:{ADDED}": holds}) for holds in (True, False)]
    assert sorted("atomics" in each.used for each in both) == [False, True]


def test_machine_code_without_lines_is_told_by_address(tmp_path: Path) -> None:
    program, cubin = tmp_path / "histogram.cu", tmp_path / "histogram.cubin"
    program.write_text(HISTOGRAM)
    cubin.write_bytes(load_assembled(program, TARGETS["sm_86"])[1].image)
    with pytest.raises(Unsupported, match="depends on data") as caught:
        predicted(cubin, "rtx3090")
    assert caught.value.location is None
    assert caught.value.hint is not None
    where = caught.value.hint.removeprefix("ptxlab predict --assume ").partition("=")[0]
    assert where.startswith("0x")
    both = [predicted(cubin, "rtx3090", {where: holds}) for holds in (True, False)]
    assert sorted("atomics" in each.used for each in both) == [False, True]


def test_the_command_takes_it_and_says_what_is_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "product.ptx"
    program.write_text(PRODUCT)
    command = ["predict", str(program), "--gpu", "a100", "--grid", "1", "--block", "32"]
    command += ["--arg", "out=zeros(64,f32)"]
    assert main(command) == 4
    assert f"hint: ptxlab predict --assume {LINE}=yes says" in capsys.readouterr().err
    assert main([*command, "--assume", f"{LINE}=no", "--json"]) == 0
    assert (
        f"what line {LINE} decides where it is not computed: no is assumed"
        in capsys.readouterr().out
    )
    for wrong in ("10", "10=maybe", "=yes"):
        assert main([*command, "--assume", wrong]) == 2
        assert f"'{wrong}' is no line that is assumed, such as 64=yes" in capsys.readouterr().err
    assert main([*command, "--assume", "3=yes"]) == 2
    assert "nothing is decided at 3" in capsys.readouterr().err
