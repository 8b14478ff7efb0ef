from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ptxlab.main import main
from ptxlab.observe.counters import Counts
from ptxlab.observe.profile import ProfiledLine
from ptxlab.verbs.profile import verb
from ptxlab.verbs.profile.lines import KEYS, ShownLine, sort_keys, table
from ptxlab.verbs.profile.text import access_of
from ptxlab.verbs.profile.verb import key
from ptxlab.view import colour

TRANSPOSE = """\
// Run: ptxlab run transpose.cu --grid 2,1 --block 32,8 --arg "in=arange(64x32,f32)"
//      --arg "out=zeros(32x64,f32)"
__device__ __forceinline__ float twice(float x) {
    return 2 * x;
}
extern "C" __global__ void transpose(const float* in, float* out) {
    __shared__ float tile[32][32];
    for (int y = threadIdx.y; y < 32; y += 8)
        tile[y][threadIdx.x] = in[(32 * blockIdx.x + y) * 32 + threadIdx.x];
    __syncthreads();
    for (int y = threadIdx.y; y < 32; y += 8)
        out[64 * y + 32 * blockIdx.x + threadIdx.x] =
            twice(tile[threadIdx.x][y]);
}
"""


@pytest.fixture
def transpose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "transpose.cu"
    file.write_text(TRANSPOSE)
    return file.name


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["profile", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_json_has_what_the_contract_says(
    transpose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result: dict[str, Any] = json.loads(run(capsys, transpose, "--json"))
    assert result["schema"] == "ptxlab.profile/1"
    assert (result["kernel"], result["device"], result["grid"]) == (
        "transpose",
        "emulator",
        [2, 1, 1],
    )
    contract = "line text executed shared_wavefronts shared_ideal sectors sectors_ideal requests"
    for line in result["lines"]:
        assert set(contract.split()) < set(line)
        assert line["text"]
    totals = result["totals"]
    for field in fields(Counts):
        assert totals[field.name] == sum(line[field.name] for line in result["lines"])
    assert result["instructions"] == totals["executed"] == sum(result["mix"].values())
    warps = 2 * 32
    assert (totals["requests"], totals["sectors"]) == (2 * warps, 8 * warps)
    assert (totals["shared_wavefronts"], totals["shared_ideal"]) == (33 * warps, 2 * warps)
    assert (totals["flops"], totals["barriers"]) == (2 * 1024, 2)
    assert totals["bytes_per_flop"]["global"] == 8
    assert result["main_loop"] is None  # all loops are unrolled
    by_line = {line["line"]: line for line in result["sources"]}
    assert by_line[13]["text"] == "twice(tile[threadIdx.x][y]);"
    assert by_line[13]["shared_wavefronts"] == 32 * warps
    assert by_line[13]["conflict"]["ways"] == 32
    assert by_line[4]["flops"] == 2 * 1024
    assert {source["path"] for source in result["sources"]} == {str(Path(transpose).resolve())}
    conflicts = [line for line in result["lines"] if line["conflict"]]
    assert {line["source"]["line"] for line in conflicts} == {13}


LOOP = """\
// Run: ptxlab run loop.ptx --block 64 --arg n=10
.version 7.8
.target sm_80
.address_size 64
.visible .entry loop(.param .u32 n)
{
    .reg .pred  p;
    .reg .b32   i;
    .reg .f32   x;
    ld.param.u32    i, [n];
    mov.f32         x, 0f00000000;
again:
    fma.rn.f32      x, x, x, x;
    sub.u32         i, i, 1;
    setp.ne.u32     p, i, 0;
    @p bra          again;
    add.f32         x, x, x;
    ret;
}
"""


def test_the_main_loop_is_from_its_first_line_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.ptx").write_text(LOOP)
    loop = json.loads(run(capsys, "loop.ptx", "--json"))["main_loop"]
    lines = LOOP.splitlines()
    assert lines[loop["first_line"] - 1].split()[0] == "fma.rn.f32"
    assert lines[loop["last_line"] - 1].split() == ["@p", "bra", "again;"]
    assert (loop["executed"], loop["flops"]) == (2 * 10 * 4, 64 * 10 * 2)
    assert "lines 13 to 16 of the PTX: " in run(capsys, "loop.ptx", "--full")


def test_lines_are_sorted_and_cut_as_asked(
    transpose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = run(capsys, transpose, "--sort", "excess", "--top", "1")
    assert "lines of CUDA C by excess, 1 of " in text
    table = text.split("lines of CUDA C")[1].splitlines()
    assert table[2].split()[0] == "13"
    assert table[2].endswith("twice(tile[threadIdx.x][y]);")
    assert "13  32 ways in bank 0: lanes 0 to 31 at bytes 1024 to 4992 in steps of 128" in text
    assert "shared memory" in text
    assert "local memory" not in text
    lines = run(capsys, transpose, "--by", "ptx", "--sort", "line", "--top", "0")
    table = lines.split("lines of PTX from the top")[1].split("\n\n")[0].splitlines()[2:]
    numbers = [int(line.split()[0]) for line in table]
    assert numbers == sorted(numbers)
    assert len(numbers) > 20


def test_the_verdict_comes_first_and_the_rest_when_asked(
    transpose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    short = run(capsys, transpose).splitlines()
    assert short[0].endswith("counted on the emulator (sm_90a)")
    # 32 rows in one bank, and the loads beside them: 64 wavefronts would do for the stores at line 13.
    assert short[1].startswith("shared memory: ")
    assert short[1].endswith(" wavefronts, 16.5 times the ideal 128; 100.0 % of the excess at 13")
    assert len(short) < 25
    assert short[-1].startswith("totals and instruction mix: --full")
    full = run(capsys, transpose, "--full").splitlines()
    assert full[:2] == short[:2]
    assert "instruction mix" in full
    assert "instruction mix" not in short
    (clean,) = run(capsys, "ptx/mma_m16n8k16_bf16_f32.ptx").splitlines()[1:2]
    assert clean.startswith(("no sector", "global memory"))


def test_colour_says_what_is_hot(
    transpose: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(capsys, transpose)
    assert "\x1b" not in plain
    monkeypatch.setattr(verb, "wants_colour", lambda args: True)
    monkeypatch.setattr(
        colour, "heat_on_terminal", lambda: lambda text, heat: f"<{text}>" if heat > 0.9 else text
    )
    marked = run(capsys, transpose)
    assert re.sub("[<>](?!<)", "", marked.split("lines of")[1]) == re.sub(
        "[<>](?!<)", "", plain.split("lines of")[1]
    )
    [wasted] = re.findall(r"<([\d,]+)> +64 ", marked)
    assert wasted == "2,048"


def test_the_page_is_whole(
    transpose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "profile.html"
    assert run(capsys, transpose, "--format", "html", "-o", str(file)) == ""
    html = file.read_text()
    assert html.startswith("<!doctype html>")
    assert not re.search(r"(src|href)=|https?://|@\w+@", html)
    for line in TRANSPOSE.splitlines():
        assert (
            line.replace("&", "&amp;")
            .replace("<", "&lt;")
            .replace(">", "&gt;")
            .replace('"', "&quot;")
            in html
        )
    assert html.count("32 ways in bank 0") == 2  # in CUDA C and in PTX
    assert "prefers-color-scheme: dark" in html


@pytest.mark.parametrize(
    ("name", "flops", "written"),
    [
        # By hand, of the sizes in their "Run:" lines: k fma and a factor for each element of D;
        # 2 whole tiles of 128 x 128 with k rounded up to 96, and the factors; two mma.
        ("kernels/naive.cu", 40 * 24 * (2 * 16 + 1), 4 * 40 * 24),
        ("kernels/tensor_core.cu", 2 * 2 * 128 * 128 * 96 + 100 * 136, 4 * 100 * 136),
        ("ptx/mma_m16n8k16_bf16_f32.ptx", 2 * 2 * 16 * 8 * 16, 4 * 16 * 8),
    ],
)
def test_shipped_programs(
    name: str, flops: int, written: int, capsys: pytest.CaptureFixture[str]
) -> None:
    result = json.loads(run(capsys, name, "--json"))
    assert (result["totals"]["flops"], result["totals"]["global_written"]) == (flops, written)
    assert bool(result["sources"]) == name.endswith(".cu")


def test_a_gpu_counts_with_nsight_compute(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["kernels/naive.cu", "--grid", "2,1", "--arg", "a=randn(40x16, f32)", "-D", "BM=32"]
    words += ["--set", "c=5", "--cooperative"]
    assert main(["profile", *words, "--device", "cuda:1"]) == 2
    message = capsys.readouterr().err
    command = shlex.split(message.splitlines()[-1])
    assert command[0] == "ncu"
    assert command[command.index("ptxlab") :] == [
        *("ptxlab", "run", "kernels/naive.cu", "--device", "cuda:1", "--grid", "2,1"),
        *("--cooperative", "--arg", "a=randn(40x16, f32)", "--set", "c=5", "-D", "BM=32"),
    ]


def test_wrong_questions_are_answered_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "kernels/naive.cu", "--sort", "sector"]) == 2
    assert key("inst_executed") == key("executed") == "executed"
    assert key("wavefronts") == "shared_wavefronts"
    assert key("int ops") == "integer_ops"
    assert "did you mean sectors?" in capsys.readouterr().err
    assert main(["profile", "kernels/naive.cu", "--top", "-1"]) == 2
    capsys.readouterr()
    assert main(["profile", "ptx/mma_m16n8k16_bf16_f32.ptx", "--by", "cuda"]) == 2
    assert "-lineinfo" in capsys.readouterr().err


def test_the_examples_of_the_help_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples = verb.EXAMPLE.split("\n\n")[0].splitlines()[1:]
    assert len(examples) == 4
    for example in examples:
        run(capsys, *shlex.split(example.split("   ")[0])[2:])
    assert (tmp_path / "naive.html").stat().st_size > 10000


def test_a_table_is_as_wide_as_the_terminal() -> None:
    """Counters make way, the least first, and then the text is cut; some of it is always there."""
    counts = Counts(**{field.name: 123_456_789 for field in fields(Counts)})
    shown = [
        ShownLine(str(number), "add " * 40, ProfiledLine(number, (), counts, None))
        for number in (7, 800)
    ]
    whole = len(table(shown, colour.plain)[0])
    least = len(table(shown, colour.plain, 1)[0]) + 2 + 24
    widths = []
    for screen in range(least, whole + 40):
        head, *lines = table(shown, colour.plain, screen)
        lines = [line for line in lines if not line.startswith("not shown")]
        assert max(map(len, (head, *lines))) <= screen
        assert all(len(line) >= len(head) + 2 + 20 for line in lines)
        widths.append(len(head.split()))
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


def test_a_name_of_a_counter_is_that_counter() -> None:
    keys = sort_keys()
    assert [keys[name] for name in ("line", *KEYS)] == ["line", *KEYS]
    assert keys["global"] == "requests"
    assert keys["inst_executed"] == "executed"


@pytest.mark.parametrize(
    ("line", "access"),
    [
        ("ld.shared.f32 %f1, [%r1];", ("ld32", 32)),
        ("st.shared.v4.u32 [%r1], {%r2, %r3, %r4, %r5};", ("st128", 32)),
        ("ld.volatile.shared::cta.u16 %rs1, [%r1];", ("ld16", 16)),
        (
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {a, b, c, d}, [r];",
            ("ldmatrix.trans", 16),
        ),
        ("atom.shared.add.u32 %r1, [%r2], 1;", None),
    ],
)
def test_the_hint_is_about_the_access(line: str, access: tuple[str, int] | None) -> None:
    assert access_of(line) == access


def test_the_tile_of_the_hint_is_that_of_the_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lanes that go down a column of 16 floats: what ptxlab layout finds there is what mends the kernel."""
    file = tmp_path / "column.cu"
    file.write_text("""// Run: ptxlab run column.cu --grid 1 --block 16,16 --arg "x=zeros(256,f32)"
extern "C" __global__ void column(float* x) {
    __shared__ float tile[16][16];
    tile[threadIdx.x][threadIdx.y] = x[threadIdx.x];
    __syncthreads();
    x[16 * threadIdx.y + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
""")
    assert main(["profile", str(file)]) == 0
    hint = "ptxlab layout 32x16 --bits 32 --banks "
    [command] = (line for line in capsys.readouterr().out.splitlines() if hint in line)
    assert set(command.partition("--banks ")[2].split(",")) == {"ld32.across", "st32.across"}
    assert main(command[command.index("layout") :].split()) == 0
    assert "smallest padding  (32,16):(17,1)" in capsys.readouterr().out


def test_the_line_with_the_excess_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "kernels/tiled.cu", "--top", "1")
    named = re.search(r"of the excess at (\S+)", out)
    assert named is not None
    assert any(
        line.split()[0] == named[1]
        for line in out.split("lines of CUDA C")[1].splitlines()
        if line.strip()
    )
