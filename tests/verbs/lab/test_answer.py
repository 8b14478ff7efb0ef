"""What the page asks, without a page: verbs answer as at the command line, and words of PTX are explained where they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab.main import main
from ptxlab.verbs.lab.answer import answer
from tests.clients.needs import need

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "ptxlab/verbs/lab/page_files/begin.js").read_text(encoding="utf-8")
TRITON = json.loads(re.search(r'"new.py": (".*"),', PAGE)[1])  # type: ignore[index]
"""The program in Triton that the page offers to begin with."""
MMA = (ROOT / "ptx/mma_m16n8k16_bf16_f32.ptx").read_text(encoding="utf-8")
LDMATRIX = (ROOT / "ptx/ldmatrix.ptx").read_text(encoding="utf-8")


def asked(want: str, text: str = MMA, name: str = "x.ptx", **more: Any) -> Any:
    told = answer({"want": want, "name": name, "text": text, **more})
    assert told["status"] == 0, told
    return told["result"]


def place(text: str, what: str, part: str) -> dict[str, Any]:
    """Return where ``part`` stands in the line of code that has ``what``."""
    lines = text.split("\n")
    line = next(n for n, each in enumerate(lines, 1) if what in each and not each.startswith("//"))
    return {"line": line, "column": lines[line - 1].index(part) + 1}


@pytest.mark.parametrize("verb", ["check", "profile"])
def test_a_verb_answers_as_at_the_command_line(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.ptx").write_text(LDMATRIX, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main([verb, "x.ptx", "--json"]) == 0
    assert asked(verb, LDMATRIX) == json.loads(capsys.readouterr().out)
    assert Path.cwd() == tmp_path


def test_options_go_to_the_verbs_that_have_them_and_no_others_are_known() -> None:
    options = ["--arg", "k=16", "--expect", "d=d", "--warp", "0"]
    lines = asked("profile", options=options)["lines"]
    [times] = [line["executed"] for line in lines if line["text"].startswith("mma.sync")]
    assert times == 1  # where the header has a k of 32
    told = answer({"want": "run", "name": "x.ptx", "text": MMA, "options": options})
    assert told["status"] == 1
    assert "d is wrong" in told["result"]
    assert asked("profile", options=["--timeout", "60", "--seed=3"])["instructions"] > 0
    for option in (
        "--grad",
        "-o",
        "-ox",
        "--save",
        "--save=x",
        "--json",
        "--device",
        "--help",
        "--list",
    ):
        told = answer({"want": "check", "name": "x.ptx", "text": MMA, "options": [option, "x"]})
        assert (told["status"], told["error"]["kind"]) == (2, "usage"), option


def test_a_file_is_named_from_where_the_lab_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "d.npy", np.full((16, 8), 7, np.float32))
    monkeypatch.chdir(tmp_path)
    told = asked("run", options=["--arg", "k=0", "--arg", "d=@d.npy", "--expect", "d=d"])
    assert "[[7. 7. 7." in told
    assert "d is right" in told


@pytest.mark.parametrize("name", ["", "x.pyc", "../x", "x.cubin"])
def test_a_program_has_a_name_that_says_what_it_is(name: str) -> None:
    told = answer({"want": "check", "name": name, "text": MMA})
    assert told["error"]["kind"] == "usage"


def test_nobody_answers_anything_else() -> None:
    assert "nobody answers 'exec'" in answer({"want": "exec"})["error"]["message"]
    assert answer({})["error"]["kind"] == "usage"


def test_what_is_wrong_stands_where_it_is() -> None:
    text = MMA.replace(".m16n8k16.row.col.f32.bf16", ".m16n8k17.row.col.f32.bf16")
    [fault] = asked("diagnose", text)["faults"]
    assert (fault["line"], fault["column"]) == tuple(place(MMA, "mma.sync", "mma").values())
    assert "m16n8k17" in fault["message"]
    [fault] = asked("diagnose", MMA.replace("shr.u32         steps, depth, 4;", "shr.u32 steps depth, 4;"))["faults"]  # fmt: skip
    assert fault["line"] == place(MMA, "steps, depth, 4", "shr")["line"]
    assert asked("diagnose")["faults"] == []


def test_each_kernel_says_what_is_wrong_with_it() -> None:
    kernel = ".entry {}() {{ .reg .b32 r; {} }}\n"
    text = ".version 8.0\n.target sm_80\n.address_size 64\n"
    text += kernel.format("f", "add.u32 r, r;") + kernel.format("g", "ret;") + kernel.format("h", "mov.f32 r, 1;")  # fmt: skip
    assert [fault["line"] for fault in asked("diagnose", text)["faults"]] == [4, 6]


def test_the_launch_is_that_of_the_header() -> None:
    known = asked("diagnose")
    [run], [kernel] = known["runs"], known["kernels"]
    assert (run["grid"], run["block"], run["arg"][3]) == ("1", "32", "k=32")
    assert [each["name"] for each in kernel["parameters"]] == ["a", "b", "d", "k"]
    assert kernel["parameters"][3]["about"] == "multiple of 16"


def test_a_matrix_instruction_is_explained_with_its_picture() -> None:
    told = asked("hover", **place(MMA, "mma.sync", "sync"))
    rows = dict(told["rows"])
    assert "16 x 8 x 16 (m x n x k): 4,096 FLOPs" in rows["computes"]
    assert (told["title"], rows["needs"]) == ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80, PTX 7.0")  # fmt: skip
    assert told["picture"].count('class="c') >= 128


def test_a_register_says_which_elements_it_holds() -> None:
    here = place(MMA, "{d0, d1, d2, d3}, {a0", "a1")
    told = asked("hover", **here)
    rows = dict(told["rows"])
    # PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": a1 has row groupID + 8, columns 2 * in_group.
    assert rows["lane 0"] == "A[8,0] and A[8,1]"
    assert rows["is"] == "a register of type .b32"
    assert rows["read"] == f"line {here['line'] - 1}"


@pytest.mark.parametrize(
    ("what", "part", "said"),
    [
        ("shr.u32         steps", "shr", "logic and bits"),
        ("mov.u32         lane, %laneid", "laneid", "a special register of 32 bits"),
        ("ld.param.u32    depth, [k]", "[k", None),
        ("ld.param.u32    depth, [k]", "k]", "a parameter of mma_m16n8k16_bf16_f32, of type .u32"),
        ("bra.uni         along_k", "along_k", "the label of line"),
    ],
)
def test_other_words(what: str, part: str, said: str | None) -> None:
    told = asked("hover", **place(MMA, what, part))
    assert (told and dict(told["rows"])["is"].startswith(said or "")) or (told is said is None)


def test_plain_instructions_are_told_as_explain_tells_them() -> None:
    assert (
        dict(asked("hover", **place(MMA, "shr.u32         steps", "shr"))["rows"])["does"]
        == "d = a >> b"
    )
    head = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n.reg .b32 r<3>;\n"
    text = head + "lop3.b32 r0, r0, r1, r2, 0x96;\nadx.u32 r0, r1;\n}\n"
    assert dict(asked("hover", text, line=6, column=2)["rows"])["here"] == "d = a ^ b ^ c"
    assert "mad" in dict(asked("hover", text, line=7, column=2)["rows"])["near"]


def test_a_float_is_told_by_its_bits_also_where_nothing_parses() -> None:
    line = "  mov.f32 x, 0f3FC00000; // 0f40000000"
    told = asked("hover", line, line=1, column=line.index("0f3F") + 4)
    assert told["rows"] == [["is", "1.5, as its 32 bits"]]
    assert asked("hover", line, line=1, column=line.index("0f40") + 4) is None


def labels(text: str) -> list[str]:
    line = text.count("\n") + 1
    told = asked("complete", text, line=line, column=len(text.split("\n")[-1]) + 1)
    return [option["label"] for option in told["options"]]


def test_what_may_come_next_are_forms_that_there_are() -> None:
    assert "mma" in labels("  @p m")
    assert labels("  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.") == [
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    ]
    wrapped = labels("  shf.l.")
    assert {"shf.l.wrap", "shf.l.clamp"} == set(wrapped)
    assert "add.sat" in labels("  add.")
    assert {"%r0", "%r1", "%tid.x"} <= set(labels(".reg .b32 %r<2>;\n add.u32 %r1, %"))
    assert "%r2" not in labels(".reg .b32 %r<2>;\n add.u32 %r1, %")


def test_two_gpus_and_two_sources_are_compared() -> None:
    text = MMA.replace("add.u32         step, step, 1;", "add.u32         step, step, 2;")
    told = asked(
        "compare", options=["--gpu", "a100"], other={"text": text, "options": ["--gpu", "a100"]}
    )
    numbers = {each["name"]: (each["a"], each["b"]) for each in told["numbers"]}
    assert numbers["GPU"] == ("A100 SXM", "A100 SXM")
    assert numbers["cycles"][0] > numbers["cycles"][1]
    changed = [each for each in told["lines"] if each["mark"] != " "]
    assert changed
    assert all(re.search(r"0x[12]\b", each["text"]) for each in changed)
    assert {each["mark"] for each in changed} == {"-", "+"}


def test_a_program_in_python_says_where_it_does_not_parse() -> None:
    [fault] = asked("diagnose", "x = 1\ndef f(:\n", "x.py")["faults"]
    assert (fault["line"], fault["column"]) == (2, 7)
    assert asked("diagnose", "x = 1\n", "x.py")["faults"] == []


@pytest.mark.thorough
def test_a_launch_of_triton_is_looked_into() -> None:
    need("torch", "triton")
    text = TRITON
    counted = {line["line"]: line["executed"] for line in asked("profile", text, "x.py")["sources"]}
    stores = next(n for n, line in enumerate(text.splitlines(), 1) if "tl.store" in line)
    assert max(counted, key=counted.__getitem__) == stores
    [program] = asked("sass", text, "x.py")["programs"]
    lines = {
        each["source"]["line"] for each in program["kernels"][0]["instructions"] if each["source"]
    }
    assert text.splitlines()[9].startswith("    tl.store")
    assert 10 in lines
    told = answer({"want": "check", "name": "x.py", "text": text.replace("+ at, inside) + tl.load(y + at, inside)", "+ at) + tl.load(y + at)")})  # fmt: skip
    assert (told["error"]["line"], told["error"]["kind"]) == (10, "launch")
    assert "out of bounds" in told["error"]["message"]
    told = answer({"want": "step", "name": "x.py", "text": "print('nothing')"})
    assert "no launch" in told["error"]["message"]
