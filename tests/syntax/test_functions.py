from __future__ import annotations

from ptxlab.syntax.functions import SourceLine, call_lines, parameters, source_lines
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import SourceText

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


def test_inlined_lines_know_the_calls_that_led_there() -> None:
    """As nvcc writes them: each .loc names one call, and calls of calls are found by their places."""
    module = parse(
        """.version 8.0
.target sm_80
.address_size 64
.visible .entry f()
{
    .reg .b32 r;
    .loc 1 9 3
    mov.b32 r, 0;
    .loc 2 20 5, function_name $L1, inlined_at 1 9 3
    mov.b32 r, 1;
    .loc 3 30 7, function_name $L2, inlined_at 2 20 5
    mov.b32 r, 2;
    .loc 1 10 3
    ret;
}
.file 1 "k.cu"
.file 2 "a.cuh"
.file 3 "b.cuh"
"""
    )
    kernel, a = SourceLine("k.cu", 9), SourceLine("a.cuh", 20)
    assert call_lines(module, module.functions[0]) == ((), (kernel,), (a, kernel), ())


def test_lines_of_inline_assembly_are_none_of_the_source() -> None:
    """As LLVM writes them: it repeats the .loc, one line further for each line of the assembly."""
    module = parse(
        """.version 8.0
.target sm_80
.address_size 64
.visible .entry f()
{
    .reg .b32 r;
    .loc 1 9 3
    // begin inline asm
    .loc 1 9 3
    mov.b32 r, 0;
    .loc 1 10 3
    mov.b32 r, 1;
    // end inline asm
    mov.b32 r, 2;
    .loc 1 11 3
    ret;
}
.file 1 "kernel.py"
"""
    )
    lines = [position and position.line for position in source_lines(module, module.functions[0])]
    assert lines == [9, 9, 9, 11]


def test_a_parameter_that_was_added_to_a_compiled_kernel_has_its_own_name() -> None:
    """As what dumps registers adds one, where the source knows of those before it."""
    text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f(.param .u64 f_param_0, .param .u64 dump) { ret; }"
    source = SourceText(text, arguments={"f": ("x",)})
    assert [each.name for each in parameters(parse(text).functions[0], source)] == ["x", "dump"]
