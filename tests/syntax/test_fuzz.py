"""Damaged PTX is refused with a place in the text, or read; nothing else happens, and soon."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st

from ptxlab.errors import PtxSyntaxError
from ptxlab.syntax import parse, to_text
from tests.fuzzed import fuzzed

PROGRAMS = sorted((Path(__file__).parents[2] / "ptx").glob("*.ptx"))
TEXTS = [
    *(path.read_text() for path in PROGRAMS[:3]),
    """.version 8.0
.target sm_90a
.address_size 64
.global .u8 t[3] = {0xFF(v), generic(v)+4, -(1+2)*3};
.section .debug_str { a: .b8 1, 2 }
.file 1 "x"
.alias a, b;
.visible .entry k(.param .u64 .ptr .global .align 8 p) .maxntid 32, 1 .pragma "x"; {
.reg .pred p<3>; .loc 1 2 3, function_name s+4, inlined_at 1 2 3
t: .branchtargets a, b; c: .callprototype (.param .b32 _) _ (.param .b8 _[4]);
@!p0 setp.eq.and.u32 p1|_, %r1, WARP_SZ ? 0x1F : 1U << 3, !p2; /* x */
ld.global.L1::no_allocate.v2.b32 {a, -b}, [m+-8, {c, 0f3F800000}].unified;
{ call (r), f, (1.5, x+4); } ret; }
""",
]
PIECES = st.sampled_from(
    [
        *"{}()[]<>,;:@!|&+-*/%=?\"'\\._$0Ux\n\t \0é",
        *("/* */ // :: .b32 .reg 0f 0x .section .entry generic( .ptr WARP_SZ " + "9" * 20).split(),
    ]
)


def check(text: str) -> None:
    try:
        module = parse(text)
    except PtxSyntaxError as error:
        location = error.location
        assert location is not None
        lines = text.split("\n")
        assert 1 <= location.line <= len(lines)
        assert 1 <= location.column <= len(lines[location.line - 1]) + 1
    else:
        assert parse(to_text(module)) == module


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_sound_text_is_read(text: str) -> None:
    assert parse(to_text(parse(text))) == parse(text)


@fuzzed(st.sampled_from(TEXTS), st.floats(0, 1, exclude_max=True))
def test_truncated(text: str, part: float) -> None:
    check(text[: int(part * len(text))])


@fuzzed(
    st.sampled_from(TEXTS),
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 12), PIECES),
        min_size=1,
        max_size=4,
    ),
)
def test_mutated(text: str, edits: list[tuple[float, int, str]]) -> None:
    for part, removed, inserted in edits:
        at = int(part * len(text))
        text = text[:at] + inserted + text[at + removed :]
    check(text)


@fuzzed(st.lists(PIECES, max_size=60))
def test_rubble_in_a_body(pieces: list[str]) -> None:
    check(f".version 8.0\n.target sm_90a\n.func f {{ mov.b32 {''.join(pieces)}; }}")


@fuzzed(st.text(max_size=80))
def test_any_text(text: str) -> None:
    check(text)
    check(f".version 8.0\n.target sm_90a\n{text}")


@fuzzed(st.sampled_from(TEXTS), st.integers(0, 400), st.integers(0, 12), PIECES)
def test_skimming_finds_the_same(text: str, at: int, removed: int, inserted: str) -> None:
    """A module whose bodies are read later is the same module, or refused as well."""
    text = text[:at] + inserted + text[at + removed :]
    try:
        whole = parse(text)
    except PtxSyntaxError:
        with pytest.raises(PtxSyntaxError):
            to_text(parse(text, skim=True))
    else:
        assert parse(text, skim=True) == whole
