from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ptxlab import resources
from ptxlab.main import main
from ptxlab.toolchain.nvrtc import assemble_cuda
from ptxlab.verbs.sass.verb import EXAMPLE

SCALE = """\
extern "C" __global__ void BOUNDS scale(float* x, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        tile[threadIdx.x & 255] = x[i];
    __syncthreads();
    x[i] = tile[255 - (threadIdx.x & 255)] * FACTOR;
}
extern "C" __global__ void empty() {}
"""

PTX = """\
.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x)
.maxntid 96
{
    .reg .f32   v;
    .reg .b64   p;

    ld.param.u64    p, [x];      // the comment is not shown
    ld.global.f32   v, [p];
    add.f32         v, v, 0f3F800000;
    st.global.f32   [p], v;
    ret;
}
"""


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One file for all tests: machine code names it, and the same is disassembled once."""
    file = tmp_path_factory.mktemp("scale") / "scale.cu"
    file.write_text(SCALE)
    return str(file)


@pytest.fixture
def ptx(tmp_path: Path) -> str:
    file = tmp_path / "k.ptx"
    file.write_text(PTX)
    return str(file)


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["sass", *arguments, "--json"]) == 0, capsys.readouterr().err
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return output


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["sass", *arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


DEFINES = ["-D", "FACTOR=2.5f", "-D", "BOUNDS="]


def test_the_examples_of_the_help(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = EXAMPLE.partition("example:\n")[2].splitlines()[:5]
    shown = []
    for line in (line.partition("       ")[0].replace("mine.cu", scale) for line in lines):
        more = DEFINES if scale in line else []
        assert main([*shlex.split(line)[1:], *more]) == 0, capsys.readouterr().err
        shown.append(capsys.readouterr().out)
    listing, summary, two, changed, data = shown
    assert summary.splitlines() == listing.splitlines()[: len(summary.splitlines())]
    assert "registers     30" in summary
    assert "0000  " not in summary
    name = "mma_m16n8k16_bf16_f32"
    assert listing.splitlines()[0] == f"{name} on sm_90a"
    assert re.findall(rf"^{name} on (\w+)$", two, re.MULTILINE) == ["sm_80", "sm_90a"]
    assert (listing.count("HMMA.16816.F32.BF16"), two.count("HMMA.16816.F32.BF16")) == (1, 2)
    assert changed.startswith("naive of kernels/naive.cu and coalescing of kernels/coalescing.cu")
    (program,) = json.loads(data)["programs"]
    assert program["arch"] == "sm_120a"
    assert [kernel["occupancy"][0]["threads"] for kernel in program["kernels"]] == [256, 256]


def test_ptx_stands_beside_its_sass(ptx: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, ptx, "--arch", "sm_80").splitlines()
    assert out[0] == "k on sm_80"
    (add,) = (line for line in out if "add.f32" in line)
    number = PTX.splitlines().index("    add.f32         v, v, 0f3F800000;") + 1
    assert add.split("  ")[0] == ""
    assert add.split()[:5] == [str(number), "add.f32", "v,", "v,", "0f3F800000;"]
    assert add.split()[6] == "FADD"
    assert "comment" not in "\n".join(out)
    (head,) = (line for line in out if line.endswith("SASS for sm_80"))
    assert head.index("SASS") == add.index(add.split()[5])


def test_an_instruction_of_two_lines_is_where_it_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = "ptx/mma_m16n8k16_bf16_f32.ptx"
    text = resources.path(program).read_text(encoding="utf-8").splitlines()
    (begins,) = (n for n, line in enumerate(text, 1) if line.lstrip().startswith("mma.sync"))
    assert text[begins].lstrip().startswith("{d0, d1, d2, d3}")
    (kernel,) = report(capsys, program, "--arch", "sm_80")["programs"][0]["kernels"]
    assert [i["line"] for i in kernel["instructions"] if i["opcode"] == "HMMA"] == [begins]


def test_two_targets_stand_side_by_side(ptx: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, ptx, "--arch", "sm_80", "--arch", "sm_120a").splitlines()
    assert [line for line in out if line.startswith("k on ")] == ["k on sm_80", "k on sm_120a"]
    (head,) = (line for line in out if "SASS for" in line)
    columns = head.index("SASS for sm_80"), head.index("SASS for sm_120a")
    (add,) = (line for line in out if "add.f32" in line)
    first, second = add[columns[0] : columns[1]], add[columns[1] :]
    assert "FADD" in first
    assert "FADD" in second


def test_cuda_c_stands_above_the_ptx(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, scale, *DEFINES, "--kernel", "scale").splitlines()
    heading = next(i for i, line in enumerate(out) if line.startswith(f"{scale}:7  x[i] = tile["))
    below = "\n".join(out[heading + 1 :])
    assert "FMUL" in below.partition(f"{scale}:8")[0]
    assert not any(line.startswith("empty") for line in out)


def test_machine_order_and_what_each_instruction_waits_for(
    ptx: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, ptx, "--arch", "sm_80", "--order", "machine").splitlines()
    code = [line for line in out if re.match(r"  [0-9a-f]{4}  ", line)]
    assert [int(line.split()[0], 16) for line in code] == [16 * n for n in range(len(code))]
    load = next(n for n, line in enumerate(code) if "LDG" in line)
    add = next(n for n, line in enumerate(code) if "FADD" in line)
    (board,) = re.findall(r" w(\d) ", code[load])
    waits = [n for n, line in enumerate(code) if re.search(rf"  \S*{board}\S* r", line)]
    assert load < waits[0] <= add
    assert code[add].endswith(
        f"PTX {PTX.splitlines().index('    add.f32         v, v, 0f3F800000;') + 1}"
    )


@pytest.mark.parametrize(
    ("at", "kept"), [("add.f32", 1), ("FADD", 1), ("12", 1), ("0x0040", 1), ("ld", 2)]
)
def test_one_place(at: str, kept: int, ptx: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert PTX.splitlines()[11].split()[0] == "add.f32"
    out = printed(capsys, ptx, "--arch", "sm_80", "--at", at).splitlines()
    assert len([line for line in out if re.match(r" {0,4}\d{1,5}  [a-z@]", line)]) == kept
    assert main(["sass", ptx, "--arch", "sm_80", "--at", "nowhere"]) == 2
    assert "no machine code" in capsys.readouterr().err


def test_a_line_of_the_source_and_its_colour(
    scale: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [scale, *DEFINES, "--at", "scale.cu:7"]
    assert main(["sass", *words[:-1], "2"]) == 2
    assert "line 2 of the source is scale.cu:2" in capsys.readouterr().err
    out = printed(capsys, *words)
    assert "FMUL" in out
    assert "scale.cu:4" not in out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = printed(capsys, *words)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == out


def test_the_summary_of_several_kernels_has_a_row_for_each(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head, *rows = printed(capsys, scale, *DEFINES, "--summary").splitlines()
    assert head.split()[:3] == ["kernel", "target", "registers"]
    assert [row.split()[0] for row in rows] == ["scale", "empty"]


def test_resources_and_occupancy(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*DEFINES, "--arch", "sm_80", "--block", "16,16", "--shared", "40000"]
    (program,) = report(capsys, scale, *words)["programs"]
    assert [kernel["kernel"] for kernel in program["kernels"]] == ["scale", "empty"]
    kernel = program["kernels"][0]
    assert (kernel["shared"], kernel["dynamic_shared"], kernel["barriers"]) == (1024, 40000, 1)
    (occupancy,) = kernel["occupancy"]
    # 164 KiB of shared memory, and 1024 + 1024 + 40000 bytes in units of 128 for each CTA
    assert (occupancy["threads"], occupancy["ctas"], occupancy["warps"]) == (256, 3, 24)
    assert occupancy["limited_by"] == ["shared memory"]
    assert occupancy["limits"]["shared memory"] == 164 * 1024 // 42112


@pytest.mark.parametrize(
    ("bounds", "words", "threads"),
    [
        ("", [], [64, 128, 256, 512, 1024]),
        ("__launch_bounds__(192)", [], [192]),
        ("__block_size__((64,2,1))", [], [128]),
        ("__launch_bounds__(192)", ["--block", "64"], [64]),
    ],
)
def test_where_the_size_of_a_cta_comes_from(
    bounds: str,
    words: list[str],
    threads: list[int],
    scale: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words += ["-D", "FACTOR=2.5f", "-D", f"BOUNDS={bounds}", "--kernel", "scale"]
    ((kernel,),) = (program["kernels"] for program in report(capsys, scale, *words)["programs"])
    assert [occupancy["threads"] for occupancy in kernel["occupancy"]] == threads


def test_the_run_line_gives_block_and_macros(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = str(tmp_path / "scale.cu")
    run = f"// Scales.\n//\n// Run: ptxlab run {scale} --kernel scale --block 32 -D BOUNDS= -D FACTOR=3\n"
    Path(scale).write_text(run + SCALE)
    (program,) = report(capsys, scale)["programs"]
    occupancies = [kernel["occupancy"] for kernel in program["kernels"]]
    assert [len(of_targets) for of_targets in occupancies] == [1, 5]
    assert occupancies[0][0]["threads"] == 32


def test_json_has_every_instruction_with_its_lines(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = report(capsys, scale, *DEFINES, "--arch", "sm_90a")["programs"]
    kernel = program["kernels"][0]
    addresses = [instruction["address"] for instruction in kernel["instructions"]]
    assert addresses == list(range(0, 16 * len(addresses), 16))
    assert sum(kernel["opcodes"].values()) == len(addresses)
    multiplies = [
        instruction for instruction in kernel["instructions"] if instruction["opcode"] == "FMUL"
    ]
    assert [product["source"] for product in multiplies] == [{"path": scale, "line": 7}]
    assert all(instruction["line"] is not None for instruction in kernel["instructions"])


def test_comparison_counts_what_changed(
    scale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.cu"
    other.write_text(SCALE.replace("* FACTOR", "* FACTOR + 1.0f"))
    words = [*DEFINES, "--kernel", "scale", "--arch", "sm_80", "--compare", scale]
    out = printed(capsys, str(other), *words).splitlines()
    assert out[0] == f"scale of {scale} and scale of {other} on sm_80"
    changes = {line.split()[0]: line.split()[1:] for line in out if line.startswith("  F")}
    assert changes == {"FMUL": ["1", "0", "-1"], "FFMA": ["0", "1", "+1"]}
    assert any(line.startswith("-FMUL") for line in out)
    assert any(line.startswith("+FFMA") for line in out)
    same = printed(capsys, scale, *words)
    assert not any(line[:1] in "+-" for line in same.splitlines() if line)


SPILLS = """\
extern "C" __global__ void __launch_bounds__(1024) full(float* x) {
    float held[96];
#pragma unroll
    for (int i = 0; i < 96; i++) held[i] = x[1024 * i + threadIdx.x];
    __syncthreads();
    float sum = held[0];
#pragma unroll
    for (int i = 0; i < 96; i++)
        x[1024 * i + threadIdx.x] = sum = sum * held[95 - i] + held[7 * i % 96];
}
"""


def test_what_is_stored_and_loaded_of_registers_is_what_ptxas_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "full.cu"
    file.write_text(SPILLS)
    _, cubin = assemble_cuda(SPILLS, path=str(file), arch="sm_80", options=["--generate-line-info"])
    said = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", cubin.log)
    assert said is not None
    stored, loaded = map(int, said.groups())
    assert 0 < stored != loaded > 0
    out = printed(capsys, str(file), "--arch", "sm_80").splitlines()
    (line,) = (line for line in out if line.startswith("spills"))
    assert line.split(maxsplit=1)[1] == f"{stored} bytes stored, {loaded} bytes loaded"
    ((kernel,),) = (
        each["kernels"] for each in report(capsys, str(file), "--arch", "sm_80")["programs"]
    )
    assert (kernel["spill_stores"], kernel["spill_loads"]) == (stored, loaded)


def test_what_ptxas_warns_of_is_there_in_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.maxntid 128\n"
        "{\n    setmaxnreg.inc.sync.aligned.u32 232;\n    ret;\n}\n"
    )
    assert "ptxas on sm_90a: C7504: Potential Performance Loss: 'setmaxnreg' ignored" in printed(
        capsys, str(file)
    )
    (program,) = report(capsys, str(file))["programs"]
    assert [remark["code"] for remark in program["remarks"]] == ["C7504"]


def test_the_target_is_one_the_file_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.ptx"
    for needed, shown in (("sm_80", "sm_90a"), ("sm_100a", "sm_100a"), ("sm_120", "sm_120")):
        file.write_text(PTX.replace("7.8", "8.7").replace("sm_80", needed))
        assert report(capsys, str(file))["programs"][0]["arch"] == shown


def test_a_long_line_of_ptx_does_not_push_sass_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.ptx"
    long = "add.f32         v, v, " + "(" * 40 + "1.0" + ")" * 40 + ";"
    file.write_text(PTX.replace("add.f32         v, v, 0f3F800000;", long))
    out = printed(capsys, str(file), "--arch", "sm_80").splitlines()
    (index,) = (i for i, line in enumerate(out) if "((((" in line)
    assert "FADD" not in out[index]
    assert "FADD" in out[index + 1]
    assert out[index + 1].index("FADD") < 80


def test_a_file_without_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "empty.cu"
    file.touch()
    assert main(["sass", str(file)]) == 2
    assert "has no kernel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--kernel", "kk"], 2, "did you mean k"),
        (["--compare", "none.ptx"], 2, "there is no file none.ptx"),
        (
            ["--compare", "{ptx}", "--arch", "sm_80", "--arch", "sm_89"],
            2,
            "--compare is of two files",
        ),
        (["--arch", "sm_75"], 4, ".target sm_80 does not run on sm_75"),
        (["-D", "X=1"], 2, "PTX already"),
        (["--block", "0"], 2, "'0' is not one to three sizes"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], status: int, message: str, ptx: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sass", ptx, *(word.format(ptx=ptx) for word in words)]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_what_lines_are_of_is_written_to_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "sass",
        "ptx/mbarrier.ptx",
        "--arch",
        "sm_90a",
        "--summary",
        "--save",
        str(tmp_path / "here"),
    ]
    assert main(words) == 0
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [
        "mbarrier.sm_90a.cubin",
        "mbarrier.sm_90a.ptx",
    ]
    assert (tmp_path / "here" / "mbarrier.sm_90a.cubin").read_bytes().startswith(b"\x7fELF")
