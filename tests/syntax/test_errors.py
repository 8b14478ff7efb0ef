"""Every complaint of the parser: where it points, what it says and what it advises.

In the texts below ``¦`` marks the place the error must name; it is taken out before parsing.
"""

from __future__ import annotations

import pytest

from ptxlab.errors import PtxSyntaxError
from ptxlab.syntax import locate, parse
from ptxlab.syntax.tree import Position, SourceText
from tests.together import in_one_test

MARK = "¦"
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def refused(marked: str) -> PtxSyntaxError:
    """Parse the text without its mark; check that the error stands where the mark was."""
    before, _, after = marked.partition(MARK)
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    with pytest.raises(PtxSyntaxError) as caught:
        parse(before + after, "some.ptx")
    location = caught.value.location
    assert location is not None
    assert (location.path, location.line, location.column) == ("some.ptx", line, column)
    text = (before + after).split("\n")[line - 1]
    assert location.text == text
    if text:
        shown = str(caught.value).split("\n")
        caret = next(number for number, row in enumerate(shown) if row.strip() == "^")
        assert shown[caret].index("^") == 4 + column - 1
        assert shown[caret - 1] == "    " + text.expandtabs(1)
    return caught.value


def check(marked: str, message: str, hint: str | None = None) -> None:
    error = refused(marked)
    assert message in error.message
    assert error.hint == hint if hint is None else hint in (error.hint or "")


TEXT = [
    ("¦`", "unexpected character '`'", None),
    ("mov.u32 x, 1;\n\t ¦# 5", "unexpected character '#'", None),
    ("/* a\n * b */ ¦/* c\n", "this comment is never closed", "add */"),
    ('.pragma ¦"open\n";', "this string is not closed", 'add "'),
    ("mov.u32 x, ¦5abc;", "malformed number '5abc'", "0x1F"),
    ("mov.u32 x, ¦09;", "malformed number '09'", "017"),
    ("mov.u32 x, ¦0x;", "malformed number '0x'", "0x1F"),
    ("mov.f32 x, ¦0f3F80;", "malformed number '0f3F80'", "8 digits"),
    ("mov.u32 x, ¦99999999999999999999;", "does not fit in 64 bits", None),
]

STATEMENTS = [
    ("mov.u32 x, 1¦\nret;", "missing ';' after the instruction", "end it with ';'"),
    ("ret¦\n  mov.u32 x, 1;", "missing ';' after the instruction", "end it with ';'"),
    ("mov.u32\n  x,\n  y¦\n  ret;", "missing ';' after the instruction", "end it with ';'"),
    ("mov.u32 x, y¦ }", "missing ';' after the instruction", "end it with ';'"),
    ("ret¦\n}", "missing ';' after the instruction", "end it with ';'"),
    ("mov.u32 x, y ¦z;", "expected ',' or ';' after an operand, found 'z'", None),
    ("mov.u32 x ¦1;", "expected ',' or ';' after an operand, found '1'", None),
    ("mov.u32 x, ¦;", "expected an operand, found ';'", None),
    ("mov.u32 x,, y;".replace(",,", ",¦,"), "expected an operand, found ','", None),
    ("ld.b32 x, [y¦;", "expected ']' to close the address, found ';'", None),
    ("ld.b32 x, [y + ¦z];", "expected an operand, found 'z'", None),
    ("ld.b32 x, [y ¦z];", "expected ']' to close the address", "offset is a constant"),
    ("ld.b32 x, y[¦];", "expected an operand, found ']'", None),
    ("ld.b32 x, y[1¦;", "expected ']'", None),
    ("ld.b32 x, y[¦1.0];", "an index must be an integer", None),
    ("ld.b32 x, y[1]¦[2];", "expected ',' or ';' after an operand", None),
    ("ld.b32 x, [y + ¦1.0];", "an offset must be an integer", None),
    ("ld.b32 x, [¦1.0];", "an address must be an integer", None),
    ("mov.b64 {a, b¦;", "expected ',' or '}' in the list that '{' opens", None),
    ("mov.b64 {a b};".replace("a b", "a ¦b"), "expected ',' or '}' in the list", None),
    ("call (a, ¦;", "expected an operand", None),
    ("setp.eq.u32 p|¦1, a, b;", "expected the second destination after '|'", None),
    ("@¦1 bra x;", "expected a predicate after '@'", None),
    ("@p ¦{ }", "expected an instruction after its guard", None),
    ("@p ¦.reg .b32 x;", "expected an instruction after its guard", None),
    ("{ }¦;", "expected a statement, found ';'", "take no ';'"),
    ("¦5;", "expected a statement, found '5'", None),
    ("a.b¦: ret;".replace("a.b¦", "¦a.b"), "expected a label", "no '.'"),
    ("¦.branchtargets a;", ".branchtargets needs a label", "NAME: .branchtargets"),
    ("t: .branchtargets a, ¦1;", "expected a label, found '1'", None),
    ("t: .calltargets f¦\nret;", "missing ';' after .calltargets", "end it with ';'"),
    ("t: .callprototype (.param .b32 _) ¦f;", "expected '_' after .callprototype", None),
    ("¦.rag .b32 x;", "unknown directive '.rag'", "did you mean .reg?"),
    ("¦.qqqqqq;", "unknown directive '.qqqqqq'", None),
    (".loc 1 2 ¦x", "expected a column, found 'x'", None),
    (".loc 1 2 3, ¦somewhere x", "expected function_name or inlined_at", None),
    (".pragma ¦nounroll;", "expected a pragma in quotes", None),
    ('.pragma "nounroll"¦\nret;', "missing ';' after the pragma", "end it with ';'"),
]

DECLARATIONS = [
    (".reg .b32 x¦\n.reg .b32 y;", "missing ';' after the declaration", "end it with ';'"),
    (".reg ¦.b33 x;", "unknown qualifier '.b33'", "did you mean .b"),
    (".reg ¦x;", "this .reg declaration has no type", "for example .b32"),
    (".reg .b32 ¦.f32 x;", "a second type, after .b32", None),
    (".shared ¦.global .b32 x;", "a second state space, after .shared", None),
    (".weak ¦.extern .shared .b32 x[];", "a second linkage, after .weak", None),
    ("¦.weak .b32 x;", "a declaration needs a state space", "for example .reg"),
    (".reg .b32 ¦5;", "expected a name to declare, found '5'", None),
    (".reg .b32 ¦x.y;", "expected a name to declare, found 'x.y'", "no '.'"),
    (".reg .b32 x<¦n>;", "expected how many registers", None),
    (".reg .b32 x<5¦;", "expected '>' after the number of registers", None),
    (".shared .align ¦3 .b8 x[4];", "an alignment is a power of two", None),
    (".shared .align ¦0 .b8 x[4];", "an alignment is a power of two", None),
    (".shared .b8 x[¦-4];", "expected an array's size, a number, found '-'", None),
    (".shared .b8 x[4¦;", "expected ']' after the array's size", None),
    (".global .b8 x[2] = {1, 2¦;", "expected '}' after the initialiser", None),
    (".global .b8 x = ¦;", "expected an operand", None),
    (".global .u8 x = 0xFF(y¦;", "expected ')' after the masked address", None),
    (".global .u64 x = generic(¦5);", "expected a variable or function", None),
    (".global .attribute(¦managed) .u32 x;", "expected an attribute", None),
]

MODULES = [
    ("¦", "a module begins with .version, found the end of the file", "add .version 8.0"),
    ("¦.target sm_90a", "a module begins with .version", "add .version 8.0"),
    (".version ¦8\n", "expected a version such as 8.0", None),
    (".version ¦1e5\n", "expected a version such as 8.0", None),
    (".version ¦5.0\n", "PTX version 5.0 is not supported", "6.0 and later"),
    (".version ¦73.1\n", "PTX version 73.1 is not supported", "6.0 and later"),
    (".version ¦8.123\n", "PTX version 8.123 is not supported", "6.0 and later"),
    (".version 8.0\n¦.entry k() { ret; }", ".version is followed by .target", "add .target"),
    (".version 8.0\n.target ¦90", "expected a target such as sm_90a", None),
    (".version 8.0\n.target sm_90a\n.address_size ¦16", "an address size is 32 or 64", None),
    (f"{HEAD}¦.version 8.0", ".version is not at the top of the file", "order: .version"),
    (f"{HEAD}¦.vissible .entry k() {{ ret; }}", "unknown directive", "did you mean .visible?"),
    (f"{HEAD}¦entry k() {{ ret; }}", "expected a function or a variable, found 'entry'", None),
    (f"{HEAD}.entry k() {{ ret; }}\n¦}}", "found '}'", "one '}' too many"),
    (f"{HEAD}.entry k()\n¦{{\n  {{ ret; }}\n", "this '{' is never closed", "add '}'"),
    (f"{HEAD}.entry k()\n{{\n  ¦{{ ret;\n", "this '{' is never closed", "add '}'"),
    (f"{HEAD}.entry ¦(.param .u32 x) {{ ret; }}", "expected the name of a kernel", None),
    (f"{HEAD}.func (.reg .b32 x) ¦5", "expected the name of a function", None),
    (f"{HEAD}.entry k(.param .u32 x¦ .param .u32 y)".replace("x¦ ", "x ¦"), "expected ')'", None),
    (f"{HEAD}.entry k(¦.shared .u32 x) {{ ret; }}", "a parameter is .param or .reg", None),
    (f"{HEAD}.entry k() ¦ret;", "expected '{' or ';' after the head of k", None),
    (f"{HEAD}.entry k() ¦.maxntd 3 {{ ret; }}", "unknown directive", "did you mean .maxntid?"),
    (f"{HEAD}.entry k() .maxntid ¦x {{ ret; }}", "expected the value of .maxntid", None),
    (f"{HEAD}.file 1 ¦x", "expected a path in quotes", None),
    (f"{HEAD}.section ¦debug {{ }}", "expected the name of a section", None),
    (f"{HEAD}.section .debug_str\n¦{{\n .b8 1\n", "this '{' is never closed", "add '}'"),
    (f"{HEAD}.alias a ¦b;", "expected ',' after the alias", None),
]


@in_one_test(("marked", "message", "hint"), TEXT + STATEMENTS + DECLARATIONS)
def test_in_a_function(marked: str, message: str, hint: str | None) -> None:
    check(f"{HEAD}.func f\n{{\n  {marked}\n}}\n", message, hint)


@in_one_test(("marked", "message", "hint"), MODULES)
def test_in_a_module(marked: str, message: str, hint: str | None) -> None:
    check(marked, message, hint)


@pytest.mark.parametrize(
    "nested",
    [
        "{" * 5000,
        "mov.u32 x, " + "(" * 5000,
        "mov.u32 x, " + "-" * 5000 + "1;",
        "mov.b32 x, " + "{" * 5000,
        ".global .b32 x = " + "{" * 5000,
    ],
)
def test_endless_nesting_is_an_error(nested: str) -> None:
    with pytest.raises(PtxSyntaxError, match="nest too deeply"):
        parse(f"{HEAD}.func f {{ {nested}")


def test_shown_as_a_user_sees_it() -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(f"{HEAD}.vissible .entry k() {{ ret; }}", "k.ptx")
    assert str(caught.value) == (
        "k.ptx:4:1: unknown directive '.vissible'\n"
        "    .vissible .entry k() { ret; }\n"
        "    ^\n"
        "hint: did you mean .visible?"
    )
    assert caught.value.exit_status == 4


def test_locate_counts_only_newlines_as_lines() -> None:
    source = SourceText("// a\x0bb\x0cc\u2028d\r\n\tret;\r\n", "x.ptx")
    location = locate(source, Position(2, 2))
    assert (str(location), location.text) == ("x.ptx:2:2", "\tret;")
    assert locate(source, Position(99, 1)).text == ""


@pytest.mark.parametrize("before", [0, 50, 5000])
def test_a_long_line_is_cut_around_the_caret(before: int) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(HEAD + ".func f { " + "x;" * (before // 2) + "mov.u32 " + "y" * 9000 + " ` ; }")
    message, line, caret, *_ = str(caught.value).split("\n")
    assert len(message) < 200
    assert len(line) < 180
    assert line[len(caret) - 1] == "`"


def test_a_long_name_is_cut() -> None:
    with pytest.raises(PtxSyntaxError, match=r"found 'y{59}…'"):
        parse(HEAD + ".func f(.reg .b32 a) " + "y" * 9000)
