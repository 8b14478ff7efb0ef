"""Which words mean a program with a main, and which the launch of a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxlab.errors import PtxlabError
from ptxlab.verbs.exec.program import as_exec

KERNEL = "__global__ void k(int* a) { *a = 1; }\n"
MAIN = "int main(int, char**) { k<<<1, 1>>>(0); }\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "whole.cu").write_text(KERNEL + MAIN)
    (tmp_path / "whole.ptx").write_text(KERNEL + MAIN)
    (tmp_path / "kernel.cu").write_text(KERNEL + "struct S { int main(); };\n// int main() {}\n")
    (tmp_path / "told.cu").write_text("// A title.\n//\n// Run: ptxlab run FILE --block 1\n" + MAIN)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("whole.cu", "exec -- whole.cu"),
        ("--arch sm_80 whole.cu -I x --check", "exec --arch sm_80 -I x --check -- whole.cu"),
        (
            "-o whole.json whole.cu -- 1 --block -- 2",
            "exec -o whole.json -- whole.cu 1 --block -- 2",
        ),
        ("told.cu -- 1", "exec -- told.cu 1"),
        ("whole.cu --block 3 --", "exec --block 3 -- whole.cu"),  # which exec has not
        ("whole.cu --kernel k", None),
        ("whole.cu --arg a=zeros(1,s32) --arch sm_80", None),
        ("whole.cu --arch", None),
        ("whole.cu other.cu", None),
        ("told.cu", None),
        ("kernel.cu", None),
        ("absent.cu", None),
        ("whole.ptx", None),
    ],
)
def test_a_program_is_run_by_its_main(words: str, command: str | None) -> None:
    assert as_exec(["run", *words.split()]) == (None if command is None else command.split())


def test_verbs_that_launch_look_at_all_that_a_program_does() -> None:
    for verb, told in (("check", "--check"), ("profile", "--profile --counts -")):
        expected = ["exec", *told.split(), "--arch", "sm_80", "--", "whole.cu", "1"]
        assert as_exec([verb, "--arch", "sm_80", "whole.cu", "--", "1"]) == expected
        assert as_exec([verb, "kernel.cu"]) is None
    for words in ("check whole.cu --sass", "check --sass whole.cu", "lab whole.cu -- 1"):
        assert as_exec(words.split()) is None


@pytest.mark.parametrize(
    ("verb", "option"),
    [("trace", "--trace trace.html"), ("predict", "--predict h100"), ("sass", "--sass -")],
)
def test_verbs_for_one_launch_say_how_it_is_looked_at(verb: str, option: str) -> None:
    assert as_exec([verb, "whole.cu"]) is None
    with pytest.raises(PtxlabError, match=rf"ptxlab {verb} is for one launch") as caught:
        as_exec([verb, "--arch", "sm_80", "whole.cu", "--", "256", "x"])
    assert caught.value.hint == f"ptxlab exec {option} --launch 1 -- whole.cu 256 x"


def test_arguments_are_for_a_main() -> None:
    with pytest.raises(PtxlabError, match=r"kernel\.cu has no main to be given what follows --"):
        as_exec(["run", "kernel.cu", "--", "1"])
    with pytest.raises(PtxlabError, match=r"there is no file absent\.cu"):
        as_exec(["check", "absent.cu", "--", "1"])
