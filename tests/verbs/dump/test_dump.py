"""``ptxlab dump``: what is shown of a warp, what is saved, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.main import main

MMA = "ptx/mma_m16n8k16_bf16_f32.ptx"
LOOP = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry loop(.param .u64 out)
{
    .reg .pred p;
    .reg .b32 i, x;
    .reg .f32 f;
    mov.u32 x, %tid.x;
    mov.b32 i, 0;
AGAIN:
    add.u32 i, i, 1;
    mad.lo.u32 x, x, 2, i;
    cvt.rn.f32.u32 f, x;
    setp.lt.u32 p, i, 5;
    @p bra AGAIN;
    ret;
}
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["dump", *words, "--device", "emulator"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status, out, err = run(capsys, *words, "--json")
    assert status == 0, err
    output: dict[str, Any] = json.loads(out)
    return output


@pytest.fixture
def loop(tmp_path: Path) -> str:
    file = tmp_path / "loop.ptx"
    file.write_text(LOOP)
    return str(file)


MEETING = """\
.version 8.0
.target sm_80
.address_size 64
.func (.reg .b32 r) twice(.reg .b32 g)
{
    add.u32 r, g, g;
    ret;
}
.visible .entry meeting(.param .u64 out)
{
    .reg .pred p, again;
    .reg .b32 i, x, n;
    mov.u32 i, %tid.x;
    setp.lt.u32 p, i, 40;
    mov.u32 x, 0;
AGAIN:
    add.u32 x, x, 1;
    barrier.red.popc.u32 n, 0, p;
    call (n), twice, (n);
    bar.warp.sync -1;
    setp.lt.u32 again, x, 3;
    @again bra AGAIN;
    bar.sync 1;
}
"""

APART = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry apart(.param .u64 out)
{
    .reg .pred last;
    .reg .b32 i, number, count;
    mov.u32 i, %tid.x;
    shr.u32 number, i, 5;
    setp.eq.u32 last, number, 2;
    mad.lo.u32 count, number, 32, 32;
    @last bra OTHER;
    barrier.sync number, count;
    ret;
OTHER:
    bar.sync 1, 64;
    ret;
}
"""

LAUNCH = ("--grid", "2,2", "--block", "48", "--arg", "out=zeros(1,f32)")


def test_the_accumulators_as_a_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    """D is what the program stores: the same numbers as ``ptxlab run`` prints, in the same places."""
    output = answer(capsys, MMA, "--at", "mma.sync", "--nth", "2", "--regs", "D")
    assert main(["run", MMA, "--json", "--device", "emulator"]) == 0
    arguments = {a["name"]: a for a in json.loads(capsys.readouterr().out)["arguments"]}
    assert output["matrices"]["D"] == arguments["d"]["values"]
    assert output["types"] == ["f32"] * 4
    # PTX ISA, "Matrix Fragments for mma.m16n8k16": groupID = lane >> 2, and the lane in its group.
    for lane in output["lanes"]:
        row, col = lane["lane"] // 4, 2 * (lane["lane"] % 4)
        stored = arguments["d"]["values"]
        held = [values[0] for values in lane["values"]]
        assert held == [stored[r][c] for r in (row, row + 8) for c in (col, col + 1)]


def test_the_second_mma_of_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(
        capsys, "kernels/tensor_core.cu", "--at", "mma.sync", "--nth", "2", "--regs", "D", "--warp", "1"
    )  # fmt: skip
    assert status == 0
    assert "time 2" in out
    assert "D  16 x 8" in out
    assert len(out.split("D  16 x 8")[1].split("lane")[0].strip().splitlines()) == 17


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--before"], "D        the registers of C too, and still holds C"),
        (["--regs", "C"], "C        the registers of D too, and holds D"),
        ([], None),
    ],
)
def test_all_registers_are_read_as_their_operands(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str | None
) -> None:
    """Nobody has to name D, A and B for packed numbers to be shown; whose registers are another's is said."""
    status, out, _ = run(capsys, MMA, "--at", "mma.sync", "--lane", "5", *words)
    assert status == 0
    lines = out.splitlines()
    assert [line for line in lines if " the registers of " in line] == ([told] if told else [])
    if "--regs" not in words:
        bits = int(lines[-1].split("(")[5].split(")")[0], 16)
        a0 = np.array([bits << 16 & 0xFFFF0000, bits & 0xFFFF0000], np.uint32).view(np.float32)
        low, high = lines[-1].split("  ")[-6].split()[:2]
        np.testing.assert_allclose([float(low), float(high)], a0, rtol=1e-4)


def test_registers_that_differ_from_place_to_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A column is called by its register only where all threads may have that one in it."""
    file = tmp_path / "two.ptx"
    file.write_text(LOOP.replace("    cvt", "    add.u32 i, i, 0;\n    add.u32 x, i, 0;\n    cvt"))
    words = (str(file), *LAUNCH, "--at", "add", "--nth", "3", "--lane", "0")
    for asked, heads in (("D", ["D"]), ("i,D", ["i", "D"])):
        status, out, _ = run(capsys, *words, "--regs", asked)
        assert status == 0
        head, values = out.splitlines()[-2:]
        assert head.split() == ["lane", *(f"{name}[0]" if name == "D" else name for name in heads)]
        assert values.split()[1:] == ["0x00000001"] * len(heads)


def test_an_iteration_by_label(capsys: pytest.CaptureFixture[str], loop: str) -> None:
    output = answer(
        capsys, loop, *LAUNCH, "--at", "AGAIN", "--nth", "3", "--regs", "x,i,p", "--before",
        "--cta", "1,1", "--warp", "1",
    )  # fmt: skip
    assert [lane["lane"] for lane in output["lanes"]] == list(range(16))
    assert [lane["thread"] for lane in output["lanes"]] == list(range(3 * 48 + 32, 4 * 48))
    for lane, thread in zip(output["lanes"], range(32, 48), strict=True):
        assert lane["words"] == [f"0x{4 * thread + 4:08x}", "0x00000002", "1"]
        assert lane["passes"] == 5


@pytest.mark.parametrize(
    ("read_as", "expected"),
    [("f32", 4.0 * 5 + 4), ("s32", 0x41C00000), ("u8", [0, 0, 0xC0, 0x41]), ("bf16", [0, 24.0])],
)
def test_bits_are_read_as_asked(
    capsys: pytest.CaptureFixture[str], loop: str, read_as: str, expected: Any
) -> None:
    output = answer(
        capsys, loop, *LAUNCH, "--at", "cvt", "--nth", "2", "--regs", "f", "--as", read_as,
        "--lane", "5",
    )  # fmt: skip
    [[values]] = [lane["values"] for lane in output["lanes"]]
    assert values == (expected if isinstance(expected, list) else [expected])


def test_all_threads_are_saved(
    capsys: pytest.CaptureFixture[str], loop: str, tmp_path: Path
) -> None:
    file = tmp_path / "all.npz"
    status, out, _ = run(capsys, loop, *LAUNCH, "--at", "13", "--regs", "D,i", "--save", str(file))
    assert status == 0
    assert "192 of 192 threads" in out
    with np.load(file) as saved:
        assert saved["registers"].tolist() == ["x", "i"]
        assert (saved["words"][:, 0] == 2 * (np.arange(192) % 48) + 1).all()
        assert (saved["passes"] == 5).all()


def test_a_place_nobody_reached(capsys: pytest.CaptureFixture[str], loop: str) -> None:
    status, out, _ = run(capsys, loop, *LAUNCH, "--at", "AGAIN", "--nth", "6", "--regs", "i")
    assert status == 0
    assert "reached  0 of 192 threads" in out
    assert out.splitlines()[-1].split() == ["31", "-"]


@pytest.mark.parametrize(
    ("at", "after", "before"),
    [
        ("barrier", [2, 40, 1], [2, 80, 1]),
        ("call", [2, 80, 1], [2, 40, 1]),
        ("23", [3, 80, 0], [3, 80, 0]),
    ],
)
def test_the_end_of_a_block(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, at: str, after: list[int], before: list[int]
) -> None:
    """What a barrier or a call gives is there after it, and those who end next are looked at too."""
    file = tmp_path / "meeting.ptx"
    file.write_text(MEETING)
    words = [str(file), "--grid", "2", "--block", "48", "--arg", "out=zeros(1,f32)", "--at", at]
    words += [
        "--regs",
        "x,n,again",
        "--nth",
        "1" if at == "23" else "2",
        "--cta",
        "1",
        "--warp",
        "1",
    ]
    for expected, more in ((after, []), (before, ["--before"])):
        output = answer(capsys, *words, *more)
        assert len(output["lanes"]) == 16
        for lane in output["lanes"]:
            assert [int(word, 0) for word in lane["words"]] == expected
            assert lane["passes"] == (1 if at == "23" else 3)


def test_threads_that_leave_a_barrier_one_after_the_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "apart.ptx"
    file.write_text(APART)
    words = (str(file), "--grid", "1", "--block", "96", "--arg", "out=zeros(1,f32)")
    for warp in (0, 1):
        output = answer(capsys, *words, "--at", "barrier", "--regs", "number", "--warp", str(warp))
        assert {lane["passes"] for lane in output["lanes"]} == {1}
        assert {int(word, 0) for lane in output["lanes"] for word in lane["words"]} == {warp}


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--at", "AGIAN"], 2, "did you mean AGAIN?"),
        (["--at", "99"], 2, "the nearest is on line 17"),
        (["--at", "add", "--regs", "y"], 2, "no register named y"),
        (["--at", "bra"], 2, "after bra: threads go on elsewhere"),
        (["--at", "ret", "--regs", "x"], 2, "after ret: threads leave the function"),
        (["--at", "add", "--cta", "2"], 2, "no CTA 2 along x"),
        (["--at", "add", "--warp", "2"], 2, "no warp 2"),
        (["--at", "add", "--warp", "1", "--lane", "16"], 2, "no lane 16"),
        (["--at", "add", "--as", "f16x2"], 2, "not read as 'f16x2'"),
        (["--at", "add", "--nth", "0"], 2, "'0' is not an integer of 1 or more"),
        (["--at", "add", "--regs", "x,,i"], 2, "not a list"),
        ([], 2, "--at"),
    ],
)
def test_what_is_refused(
    capsys: pytest.CaptureFixture[str], loop: str, words: list[str], status: int, message: str
) -> None:
    status_of_dump, out, err = run(capsys, loop, *LAUNCH, *words)
    assert status_of_dump == status
    assert out == ""
    assert message in err


LINES = """\
extern "C" __global__ void k(float* a) {
    float v = a[threadIdx.x] * 3.0f;
    if (threadIdx.x < 16)
        v += 1.0f;
    a[threadIdx.x] = v;
}
"""


def test_a_line_of_the_source_is_a_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "k.cu"
    file.write_text(LINES)
    words = [str(file), "--block", "32", "--arg", "a=arange(32,f32)", "--as", "f32"]
    output = answer(capsys, *words, "--at", "k.cu:2", "--lane", "5")
    assert "15" in json.dumps(output["lanes"])
    assert main(["dump", *words, "--at", "k.cu:6000"]) == 2
    assert "the nearest is line 6" in capsys.readouterr().err
    words[4] = "a=arange(16,f32)"
    for more in (["dump", *words, "--at", "ld.global"], ["profile", *words[:-2]]):
        assert main(more) == 4
        told = capsys.readouterr().err
        assert f"{file}:2:5: global load of 4 bytes" in told
        assert "it is ld.global.f32 " in told, "and what of the PTX it is"
