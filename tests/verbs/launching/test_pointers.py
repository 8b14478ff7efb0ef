"""A number where a kernel takes an address is told apart from an array, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxlab.main import main

KERNEL = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry set(.param .u64 d, .param .u64 n)
{
  .reg .b64 p, q, n1;
  ld.param.u64 p, [d]; ld.param.u64 n1, [n];
  cvta.to.global.u64 q, p;
  st.global.u64 [q], n1;
  ret;
}
"""


def test_a_number_is_no_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "set.ptx"
    file.write_text(KERNEL)
    words = ["run", str(file), "--block", "1", "--arg", "n=4096", "--arg"]
    assert main([*words, "d=zeros(1,u64)"]) == 0
    capsys.readouterr()
    assert main([*words, "d=4096"]) == 2
    told = capsys.readouterr().err
    assert "d=4096 is a number, and set takes an address of memory there" in told
    assert "an array is such as d=zeros(4096,f32)" in told
    assert main([*words, "d=0"]) == 4, "no address is one that may be passed"
