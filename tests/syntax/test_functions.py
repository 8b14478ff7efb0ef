from __future__ import annotations

from ptxlab.syntax.functions import SourceLine, source_lines
from ptxlab.syntax.parser import parse

TEXT = """\
.version 8.0
.target sm_90a
.address_size 64
.file 1 "my.cu"
.visible .entry f()
{
    .reg .b32 a;
    mov.b32 a, 1;
    .loc 1 10 5
    mov.b32 a, 2;
    { mov.b32 a, 3;
      .loc 2 7 1, function_name $L__info_string0, inlined_at 1 11 3
      mov.b32 a, 4; }
    mov.b32 a, 5;
    .loc 3 1 1
    mov.b32 a, 6;
    .loc 1 0 0
    ret;
}
.file 2 "inc/my.cuh"
"""


def test_where_instructions_come_from() -> None:
    module = parse(TEXT)
    outer, inner = SourceLine("my.cu", 10), SourceLine("inc/my.cuh", 7)
    assert source_lines(module, module.functions[0]) == (
        None,
        outer,
        outer,
        inner,
        inner,
        None,
        None,
    )


def test_without_line_info_nothing_is_known() -> None:
    module = parse("\n".join(line for line in TEXT.splitlines() if ".loc" not in line))
    assert set(source_lines(module, module.functions[0])) == {None}
