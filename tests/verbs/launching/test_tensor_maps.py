"""Tensor maps from the command line: ``--arg "m=tma(a, box=64x64)"``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.errors import PtxlabError
from ptxlab.main import main
from ptxlab.tensormap.encoding import decode
from ptxlab.tensormap.tensor_map import Im2col
from ptxlab.verbs.launching.values import MapValue, read
from tests.together import in_one_test

TEXT = """\
// Writes the tensor map it is given to out, and 7 to where that begins.
//
// Run: ptxlab run FILE --block 16 --arg "out=zeros(16,u64)" --arg "a=zeros(64x32,u32)"
//      --arg "m=tma(a,box=8x32,swizzle=128B)"

.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .align 64 .b8 m[128])
{
    .reg .b32 i;
    .reg .b64 o, p, x;
    ld.param.u64    o, [out];
    mov.u32         i, %tid.x;
    mov.b64         p, m;
    mad.wide.u32    p, i, 8, p;
    ld.param.b64    x, [p];
    mad.wide.u32    o, i, 8, o;
    st.global.b64   [o], x;
    ld.param.b64    x, [m];
    st.global.b32   [x], 7;
    ret;
}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "map.ptx"
    path.write_text(TEXT)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *command: str, status: int = 0) -> Any:
    words = ["run", *command, "--device", "emulator", "--arch", "sm_90a", "--json"]
    assert main(words) == status, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def headless(file: str) -> None:
    """Take the header away, and what it gives."""
    lines = [line for line in TEXT.splitlines() if not line.startswith("//")]
    Path(file).write_text("\n".join(lines))


def test_a_map_of_an_array_that_is_no_parameter(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, m, a = run(capsys, file)["arguments"]
    decoded = decode(np.array(out["values"], np.uint64).tobytes())
    assert (decoded.dims, decoded.box, decoded.swizzle, decoded.dtype) == (
        (32, 64),
        (32, 8),
        "128B",
        "u32",
    )
    assert m == {"name": "m", "dtype": "b8", "value": "tma(a,box=8x32,swizzle=128B)"}
    assert (a["name"], a["dtype"], a["changed"]) == ("a", "u32", True)
    assert (a["values"][0][0], np.sum(a["values"])) == (7, 7)


def test_every_option_and_arguments_in_order(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "tma(z, box=4x16, shape=8x32, strides=256x4, offset=128, dtype=tf32, element_strides=2x1, "
        "fill=nan, l2_promotion=64)"
    )
    given = ["z=arange(64x32,f32)", "x=zeros(16,u64)", f"y={text}"]
    headless(file)
    words = [word for argument in given for word in ("--arg", argument)]
    x, y, z = run(capsys, file, "--block", "16", *words)["arguments"]
    assert (x["name"], y["name"], z["name"]) == ("x", "y", "z")
    decoded = decode(np.array(x["values"], np.uint64).tobytes())
    assert (decoded.dims, decoded.strides) == ((32, 8), (256,))
    assert (decoded.box, decoded.element_strides) == ((16, 4), (1, 2))
    assert (decoded.dtype, decoded.fill, decoded.l2_promotion) == ("tf32", "nan", 64)
    changed = np.array(z["values"]) != np.arange(64 * 32).reshape(64, 32)
    assert np.argwhere(changed).tolist() == [[1, 0]]


def test_the_array_may_be_a_parameter_too(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    headless(file)
    out, _ = run(
        capsys, file, "--block", "16", "--arg", "m=tma(out, box=2)", "--arg", "out=zeros(16,u64)",
        "--expect", "out=out",
        status=1,
    )["arguments"]  # fmt: skip
    assert out["changed"]
    assert out["values"][0] % 2**32 == 7, "what went through the map is seen through the pointer"


def test_pixels_of_im2col() -> None:
    value = read("m", "tma(x, lower=-1x-2, upper=0x1, channels=32, pixels=64)", (0,))
    assert isinstance(value, MapValue)
    assert value.options == {"im2col": Im2col((-1, -2), (0, 1), 32, 64)}


@in_one_test(
    ("text", "why"),
    [
        ("tma()", "'' is no argument"),
        ("tma(a b, box=8)", "'a b' is no argument"),
        ("tma(a, bo=8)", r"tma takes box, shape, .*, not 'bo=8'; did you mean box\?"),
        ("tma(a, 8)", "tma takes box, shape, .*, not '8'"),
        ("tma(a, box=8x0)", "'8x0' is not sizes such as 64x64"),
        ("tma(a, strides=8.5)", "'8.5' is not numbers such as 512x2"),
        ("tma(a, offset=-16)", "'-16' is not an integer of 0 or more"),
        ("tma(a, lower=-1, channels=8)", "pixels of im2col need upper, pixels too"),
        ("tna(a, box=8)", r"no tna\(\).*did you mean tma\?"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(PtxlabError, match=why) as caught:
        read("m", text, (0,))
    assert caught.value.message.startswith(f"argument m={text}: ")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("m=tma(b, box=8x32)", "a tensor map is one of 'b', which is no array argument"),
        ("m=tma(m, box=8x32)", "a tensor map is one of 'm', which is no array argument"),
        ("m=tma(a, box=8x32, swizzle=64B)", "128 bytes of the box along dimension 0 are more than"),
        ("m=tma(a)", "a tensor map takes either box= or im2col="),
        ("b=zeros(4,u32)", "no parameter 'b'"),
    ],
)
def test_what_is_wrong_is_said_before_the_launch(
    file: str, given: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", file, "--arch", "sm_90a", "--device", "emulator", "--arg", given]) == 2
    assert why in capsys.readouterr().err


def test_before_sm_90_there_are_none(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(file).write_text(TEXT.replace("sm_90", "sm_80"))
    assert main(["run", file, "--arch", "sm_80", "--device", "emulator"]) == 2
    assert "tensor maps are for sm_90 and newer" in capsys.readouterr().err
