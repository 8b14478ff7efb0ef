from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from ptxlab.fragments import support
from ptxlab.fragments.support import Compiled
from ptxlab.main import main
from ptxlab.matrix.catalog import forms, matching
from ptxlab.matrix.form import Form
from ptxlab.toolchain.wheels import ToolAbsent


def explain(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["explain", *words, "--json"]) == 0, capsys.readouterr().err
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert output["schema"] == "ptxlab.explain/1"
    return output


def not_asked(form: Form, targets: Sequence[str]) -> tuple[Compiled, ...]:
    """Stand in for ptxas and nvdisasm, which take longest, where others are asked about."""
    return (Compiled(tuple(targets), (("NOP", 1),)),)


def test_a_dense_instruction(capsys: pytest.CaptureFixture[str]) -> None:
    output = explain(capsys, "mma.m16n8k16.f32.bf16", "--arch", "sm_80", "--arch", "sm_90a")
    assert output["instruction"] == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    assert (output["flops"], output["min_ptx"], output["targets"]) == (4096, "7.0", ["sm_80"])
    assert [(o["name"], o["registers"]) for o in output["operands"]] == [
        ("d", 4),
        ("a", 4),
        ("b", 2),
        ("c", 4),
    ]
    assert output["operands"][1]["matrix"] == {"rows": 16, "cols": 16, "dtype": "bf16", "bits": 16}
    assert output["compiled"] == [
        {"targets": ["sm_80", "sm_90a"], "sass": [["HMMA.16816.F32.BF16", 1]]}
    ]
    ampere, hopper = output["arithmetic"]
    assert ampere["targets"] == ["sm_80"]
    assert ampere["note"].startswith("8 products at a time and C, cut off 24 bits")
    assert hopper["note"].startswith("16 products and C, cut off 25 bits")


def test_what_has_no_tensor_core_instruction_is_seen_in_sass(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    output = explain(capsys, name, "--arch", "sm_89", "--arch", "sm_90a")
    ada, hopper = (dict(compiled["sass"]) for compiled in output["compiled"])
    assert list(ada) == ["QMMA.16832.F32.E4M3.E4M3"]
    assert "HMMA.16816.F32" in hopper
    assert any(opcode.startswith("F2FP") for opcode in hopper)
    assert "unpacked to f16" in output["arithmetic"][1]["note"]


def test_sparse_and_scaled_operands(capsys: pytest.CaptureFixture[str]) -> None:
    sparse = explain(capsys, "mma.sp.m16n8k32.f32.f16", "--arch", "sm_80")
    assert [o["name"] for o in sparse["operands"]] == ["d", "a", "b", "c", "e", "f"]
    assert sparse["operands"][5]["role"] == "constant"
    assert sparse["flops"] == 2 * 16 * 8 * 32
    assert main(["explain", "m16n8k64.mxf4nvf4.4X.ue4m3", "--arch", "sm_120a"]) == 0
    text = capsys.readouterr().out
    assert "scale-b-data  4 scales of ue4m3 a column of B: 1 register of .b32 a lane" in text
    assert "OMMA.SF" in text


def test_ldmatrix_and_the_forms_the_words_also_describe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = explain(capsys, "ldmatrix.x4", "--arch", "sm_75")
    assert output["instruction"] == "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    assert output["flops"] is None
    assert output["compiled"][0]["sass"] == [["LDSM.16.M88.4", 1]]
    assert "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" in output["others"]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (
            "sm_90a",
            {
                "wgmma.m64n64k16.f32.bf16.rs": "HGMMA.64x64x16.F32.BF16",
                "wgmma.m64n64k16.f32.bf16.ss": "HGMMA.64x64x16.F32.BF16",
                "wgmma.m64n8k32.s32.s8.u8.ss": "IGMMA.64x8x32.S8.U8",
                "wgmma.mma_async.sp.m64n8k64.f32.e4m3.e4m3.ss": "QGMMA.SP",
            },
        ),
        (
            "sm_100a",
            {
                "tcgen05.mma.cta_group::1.kind::f16.ss": "UTCHMMA",
                "tcgen05.ld.16x256b.x2": "LDTM.16dp256bit.x2",
            },
        ),
    ],
    ids=["sm_90a", "sm_100a"],
)
def test_what_the_warpgroup_and_tensor_memory_compile_to(
    target: str, expected: dict[str, str]
) -> None:
    made = support.opcodes([matching(name)[0] for name in expected], target)
    for opcode, opcodes in zip(expected.values(), made, strict=True):
        assert any(name.startswith(opcode) for name, _ in opcodes), opcodes


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tcgen05.mma.cta_group::1.kind::f16.ss", "yes\n"),
        ("tcgen05.mma.cta_group::2.kind::f16.ss", "yes\n"),
        ("wgmma.mma_async.sp.m64n8k64.f32.e4m3.e4m3.ss", "yes; nobody has measured its bits\n"),
        ("tcgen05.mma.cta_group::2.kind::i8.ss", "yes\n"),
        (
            "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
            "yes; nobody has measured its bits\n",
        ),
    ],
)
def test_what_is_not_measured_says_so(
    name: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "compiled", not_asked)
    assert main(["explain", name]) == 0
    assert f"emulated {says}" in capsys.readouterr().out.replace("  ", " ").replace("  ", " ")


def test_operands_in_shared_and_tensor_memory(capsys: pytest.CaptureFixture[str]) -> None:
    output = explain(capsys, "wgmma.m64n256k16.f32.bf16.rs", "--arch", "sm_90a")
    assert (output["variant"], output["flops"], output["emulated"]) == (
        "rs",
        2 * 64 * 256 * 16,
        True,
    )
    assert [(o["name"], o["registers"]) for o in output["operands"]][:4] == [
        ("d", 128),
        ("a", 4),
        ("b-desc", 1),
        ("scale-d", 1),
    ]
    assert main(["explain", "tcgen05.mma.mxf4nvf4.block16", "--arch", "sm_90a"]) == 2
    assert "hint: it needs sm_100f or sm_110f" in capsys.readouterr().err
    assert main(["explain", "tcgen05.mma.mxf4nvf4.block16.ts", "--arch", "sm_100a"]) == 0
    text = capsys.readouterr().out
    assert "A lies in  Tensor Memory (ts)" in text
    assert "UTCOMMA" in text


def test_what_matters_comes_in_a_dozen_lines(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "mma.m16n8k16.f32.bf16", "--arch", "sm_80"]
    assert main(words) == 0
    short = capsys.readouterr().out.splitlines()
    assert main([*words, "--full"]) == 0
    full = capsys.readouterr().out.splitlines()
    assert len(short) <= 15
    assert max(map(len, short)) <= 80
    assert short[0] == full[0] == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    assert short[1].startswith("computes  D = A * B + C")
    assert "  sm_80  HMMA.16816.F32.BF16" in short
    assert short[-1] == "targets, arithmetic and PTX: --full; the same words describe 2 more"
    assert {line.split()[0] for line in full if line and line not in short} >= {"PTX", "runs", "as"}
    assert any("8 products at a time" in line for line in full)


def test_what_has_no_operands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "tcgen05.wait::ld", "--full"]) == 0
    assert capsys.readouterr().out.endswith("as PTX\n  tcgen05.wait::ld.sync.aligned;\n")


def test_a_whole_part_is_nearer_than_the_end_of_one() -> None:
    assert matching("tcgen05.ld")[0].family == "tcgen05.ld"


def test_every_full_name_finds_itself() -> None:
    assert all(matching(entry.key)[0] is entry for entry in forms()[::3])
    cta = "stmatrix.sync.aligned.m8n8.x2.shared::cta.b16"
    assert matching(cta)[0].name == cta.replace("::cta", "")


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("ldmatrx.x4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        ("mma.m16n8k16.e3m2", "mma.sync.aligned.m16n8k16.row.col"),
        ("nonsense", "mma, mma.block_scale, mma.sp"),
    ],
)
def test_an_unknown_name_gets_near_ones(
    word: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", word]) == 2
    err = capsys.readouterr().err
    assert f"no matrix instruction is {word}" in err
    assert near in err


def test_a_target_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "stmatrix.x4", "--arch", "sm_80"]) == 2
    assert "hint: it needs sm_90" in capsys.readouterr().err


def test_without_the_tools_the_reason_is_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> NoReturn:
        raise ToolAbsent("nvdisasm", "nvidia-cuda-nvdisasm", "no wheel")

    monkeypatch.setattr(support, "compiled", absent)
    assert explain(capsys, "movmatrix")["not_compiled"].startswith("nvdisasm is not available")
    assert main(["explain", "movmatrix"]) == 0
    assert "unknown: nvdisasm is not available: no wheel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "tcgen05.mma.cta_group::1.kind::f16.ss",
            [
                "m 64 layout F: row 36 in lane 68, column n",
                "m 128 layout D: row 72 in lane 72, column n",
            ],
        ),
        (
            "tcgen05.mma.ws.cta_group::1.kind::f16.ss",
            [
                "m 32 layout G: row 18 in lanes 18 and 50 and 82 and 114, column n mod N/4, a part of N in each lane",
                "m 64 layout E: row 36 in lanes 36 and 100, column n mod N/2, a part of N in each lane",
            ],
        ),
        (
            "tcgen05.mma.sp.cta_group::2.kind::f16.ss",
            ["m 128 layout C: row 36 of CTA r / 64 of the pair in lane 68, column n"],
        ),
    ],
)
def test_where_an_accumulator_lies(
    name: str,
    lines: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(support, "compiled", not_asked)
    assert main(["explain", name, "--arch", "sm_100a"]) == 0
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert set(lines) <= set(told)
