"""Structs from the command line: ``--arg "p=struct(x, y, 3:s64, 2.0)"``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ptxlab.errors import PtxlabError
from ptxlab.main import main
from ptxlab.verbs.launching.values import StructValue, read
from tests.together import in_one_test

TEXT = """\
// Writes x[n] + a to where n says in y, of a struct {s32 *x; s8 n; f32 a; s32 *y;}.
//
// Run: ptxlab run FILE --block 1 --arg "x=arange(8,s32)" --arg "y=zeros(8,s32)"

.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .align 8 .b8 p[24])
{
    .reg .b32 v, n, a;
    .reg .b64 x, y, at;
    ld.param.b64    x, [p];
    ld.param.s8     n, [p+8];
    ld.param.b32    a, [p+12];
    ld.param.b64    y, [p+16];
    mul.wide.s32    at, n, 4;
    add.s64         x, x, at;
    add.s64         y, y, at;
    ld.global.b32   v, [x];
    add.s32         v, v, a;
    st.global.b32   [y], v;
    ret;
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "struct.ptx"
    path.write_text(TEXT)
    return str(path)


def test_members_are_where_c_has_them(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", file, "--arg", "p=struct(x, 5:s8, 2.0, y)", "--device", "emulator", "--json"]
    assert main(words) == 0, capsys.readouterr().err
    p, x, y = json.loads(capsys.readouterr().out)["arguments"]
    assert p["value"] == "struct(x, 5:s8, 2.0, y)"
    assert (x["changed"], y["changed"]) == (False, True)
    assert y["values"][5] == 5 + int(np.float32(2.0).view(np.int32))
    assert not any(y["values"][:5] + y["values"][6:])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["p=struct(z, 5:s8, 2.0, y)"], "'z', which is no array, tensor map or struct before it"),
        (["p=struct(x, y)"], r"members of 16 bytes together, and is 24"),
    ],
)
def test_what_does_not_fit_is_said(
    words: list[str], why: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", file, "--arg", *words, "--device", "emulator"]) == 2
    assert why in capsys.readouterr().err


def test_numbers_have_types() -> None:
    value = read("p", "struct(x, 7, 0x10:u64, 0.5, 1:f16, m)", (0,))
    assert isinstance(value, StructValue)
    assert value.names == ("x", "m")
    told: list[np.generic] = [np.int32(7), np.uint64(16), np.float32(0.5), np.float16(1)]
    numbers = [member for member in value.members if not isinstance(member, str)]
    assert [(n.dtype, n) for n in numbers] == [(n.dtype, n) for n in told]


@in_one_test(
    ("text", "why"),
    [
        ("struct()", "'' is not a number"),
        ("struct(x, 300:u8)", "300 is no u8"),
        ("struct(x, 2.0:s32)", "2.0 is no s32"),
        ("struct(x, 2:f33)", "no array type 'f33'"),
        ("strukt(x)", r"no strukt\(\).*did you mean struct\?"),
    ],
)
def test_what_is_no_member_is_said(text: str, why: str) -> None:
    with pytest.raises(PtxlabError, match=why):
        read("p", text, (0,))
