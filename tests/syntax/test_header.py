import pytest

from ptxlab.errors import PtxlabError
from ptxlab.syntax.header import Header, read_header

PROGRAM = """\
// A title.
//
// Prose of two
// lines: with a colon.
//
// Note: not a field.
//
// Instruction: ldmatrix
// PTX ISA:     A section
// Launch:      one warp;
//              no shared memory
// Parameters:  a     first
//              b, c  others,
//                    at length
// Macros:      BM  rows
// Run:         ptxlab run x.ptx --kernel one --arg "a=zeros(2x2, f32)"
//              --arg b=1
// Run:         ptxlab run x.ptx --kernel two
// Expect:      nothing
//              much
.version 7.0
// Launch:      not in the header
"""


def test_every_part_is_found() -> None:
    assert read_header(PROGRAM) == Header(
        title="A title.",
        idea="Prose of two\nlines: with a colon.\n\nNote: not a field.",
        instruction="ldmatrix",
        section="A section",
        launch="one warp; no shared memory",
        parameters={"a": "first", "b": "others, at length", "c": "others, at length"},
        macros={"BM": "rows"},
        runs=(
            (
                "ptxlab",
                "run",
                "x.ptx",
                "--kernel",
                "one",
                "--arg",
                "a=zeros(2x2, f32)",
                "--arg",
                "b=1",
            ),
            ("ptxlab", "run", "x.ptx", "--kernel", "two"),
        ),
        expect="nothing much",
    )


@pytest.mark.parametrize("text", ["", ".version 7.0\n", "\n// too late\n", "/* other */"])
def test_a_program_without_a_header(text: str) -> None:
    assert read_header(text) == Header()


def test_any_comment_is_a_title() -> None:
    assert read_header("// saxpy\n__global__ void f() {}\n") == Header(title="saxpy")


def test_open_quotes_are_an_error_with_a_place() -> None:
    with pytest.raises(PtxlabError) as caught:
        read_header('// Title\n//\n// Run: ptxlab run x.ptx --arg "a=1\n', "x.ptx")
    assert caught.value.location is not None
    assert (caught.value.location.path, caught.value.location.line) == ("x.ptx", 3)
    assert "no closing quotation" in caught.value.message
    assert caught.value.hint
