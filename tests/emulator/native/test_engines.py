"""The same program on both engines: the same bits, the same races, the same faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.emulator.native import engine
from ptxlab.emulator.native.segment import MOST_FAULTS
from ptxlab.emulator.native.writer import Writer
from ptxlab.errors import DeviceUnavailable, LaunchError, PtxlabError
from ptxlab.native import compiler
from ptxlab.syntax.parser import parse

needs_llvm = pytest.mark.skipif(not compiler.available(), reason="needs llvmlite")


def kernel(body: str) -> str:
    """Wrap a body in which d0 is the data, d1 the thread's word of it, r0 its number."""
    return f"""
.version 8.3
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data)
{{
    .reg .pred p<8>;
    .reg .b32 r<32>;
    .reg .b64 d<32>;
    .reg .f32 f<16>;
    .shared .align 16 .b8 s[4096];
    ld.param.u64 d0, [data];
    mov.u32 r0, %tid.x;
    mov.u32 r1, %ctaid.x;
    mov.u32 r2, %ntid.x;
    mad.lo.u32 r0, r1, r2, r0;
    mad.wide.u32 d1, r0, 4, d0;
{body}
}}
"""


RACES = {
    "the last of all wins": "st.global.u32 [d0], r0;",
    "the last of four wins": "and.b32 r3, r0, 63; mad.wide.u32 d2, r3, 4, d0; st.global.u32 [d2], r0;",
    "two stores, one after the other": """
        st.global.u32 [d0+4], r0; not.b32 r3, r0; xor.b32 r4, r0, 1; mad.wide.u32 d2, r4, 4, d0;
        st.global.u32 [d1], r3; st.global.u32 [d2], r0;""",
    "loads before the stores of all": """
        xor.b32 r4, r0, 7; mad.wide.u32 d2, r4, 4, d0; ld.global.u32 r5, [d2]; add.u32 r5, r5, r0;
        st.global.u32 [d1], r5; ld.global.u32 r6, [d2]; add.u32 r6, r6, r5; st.global.u32 [d1], r6;""",
    "through shared memory without a barrier": """
        and.b32 r3, r0, 31; shl.b32 r3, r3, 2; mov.u32 r4, s; add.u32 r3, r3, r4;
        st.shared.u32 [r3], r0; ld.shared.u32 r5, [r3]; st.global.u32 [d1], r5;""",
    "some threads only": """
        and.b32 r3, r0, 3; setp.eq.u32 p1, r3, 0; @p1 st.global.u32 [d0], r0;
        @!p1 st.global.u32 [d1], r3; @p1 ld.global.u32 r4, [d0]; @p1 st.global.u32 [d1], r4;""",
}  # fmt: skip


@needs_llvm
@pytest.mark.parametrize("body", RACES.values(), ids=RACES)
def test_threads_that_race_end_alike(both: Any, calls: list[bool], body: str) -> None:
    both(kernel(body), np.arange(512, dtype=np.uint32) * 17, grid=2)
    assert all(calls)


ACCESSES = {
    "all at one address that each has in a register": """
        mul.lo.u32 r3, r0, 0; mad.wide.u32 d2, r3, 4, d0; ld.global.u32 r4, [d2+8];
        st.global.u32 [d1], r4;""",
    "a register that is written between two accesses": """
        mov.b64 d2, d0; ld.global.u32 r3, [d2]; mov.b64 d2, d1; ld.global.u32 r4, [d2];
        xor.b32 r3, r3, r4; st.global.u32 [d2], r3;""",
    "one address, by some threads": """
        setp.gt.u32 p1, r0, 40; @p1 bra PAST; st.global.u32 [d0+4], r0;
        PAST: bar.sync 0;""",
    "bytes with a sign and without": """
        ld.global.u8 r3, [d1]; ld.global.s8 r4, [d1+1]; ld.global.u16 r5, [d1+2]; shl.b32 r5, r5, 3;
        mad.lo.u32 r3, r3, r4, r5; st.global.u32 [d1], r3;""",
    "a line that all go by together, and then some": """
        and.b32 r4, r0, 7; mov.u32 r3, 0; AGAIN: add.u32 r3, r3, 1;
        LEAVE: setp.le.u32 p1, r3, r4; @p1 bra AGAIN; st.global.u32 [d1], r3;""",
    "the same by some threads, of registers in another order": """
        and.b32 r3, r0, 3; setp.eq.u32 p1, r3, 0; ld.global.u32 r4, [d1];
        mov.u32 r5, 5; mov.u32 r6, 6; mov.u32 r7, 7; mov.u32 r8, 8;
        @p1 bra UP; add.u32 r5, r4, 1; xor.b32 r6, r4, r0;
        UP: @p1 bra DOWN; add.u32 r8, r4, 1; xor.b32 r7, r4, r0;
        DOWN: mad.lo.u32 r9, r5, 3, r6; mad.lo.u32 r9, r9, 3, r7; mad.lo.u32 r9, r9, 3, r8;
        st.global.u32 [d1], r9;""",
}  # fmt: skip


@needs_llvm
@pytest.mark.parametrize("body", ACCESSES.values(), ids=ACCESSES)
def test_what_threads_access_is_the_same(both: Any, calls: list[bool], body: str) -> None:
    both(kernel(body), np.random.default_rng(4).integers(0, 1 << 32, 512, np.uint32), block=250)
    assert all(calls)


@needs_llvm
def test_a_choice_between_a_number_and_one_of_another_sign(both: Any) -> None:
    """LLVM makes a single instruction of it that chooses bits, and with AVX-512 a wrong one."""
    body = """ld.global.f32 f1, [d1]; ld.global.f32 f2, [d1+4]; bar.sync 0;
        abs.f32 f3, f2; setp.gtu.f32 p1, f3, 0f7F800000; copysign.f32 f4, f1, f2; selp.f32 f5, f2, f4, p1;
        bar.sync 0; st.global.f32 [d1], f5;"""
    words = np.random.default_rng(2).integers(0, 1 << 32, 640, np.uint32)
    both(kernel(body), words, grid=2)


FAULTS = {
    "out of bounds": "ld.global.u32 r3, [d1+1020]; st.global.u32 [d1], r3;",
    "misaligned": "add.u64 d2, d1, 2; st.global.u32 [d1], r0; ld.global.u32 r3, [d2];",
    "misaligned by an offset": "st.global.u32 [d1], r0; ld.global.u32 r3, [d0+2];",
    "misaligned for all": "st.global.u32 [d1], r0; add.u64 d2, d0, 4; ld.global.v2.u32 {r3, r4}, [d2];",
    "null": "st.global.u32 [d1], r0; mov.u64 d2, 0; ld.global.u32 r3, [d2];",
    "shared": "st.global.u32 [d1], r0; mov.u32 r3, s; ld.shared.u32 r4, [r3+4096];",
    "after a store": """
        st.global.u32 [d1], r0; st.global.u32 [d1+2048], r0; ld.global.u32 r3, [d1];
        st.global.u32 [d1], 7;""",
    "of those whose guard holds": """
        setp.gt.u32 p1, r0, 500; @p1 ld.global.u32 r3, [d1+1024]; setp.gt.u32 p1, r0, 5;
        @p1 st.global.u32 [d1+-24], r0; @!p1 st.global.u32 [d1+-24], r0;""",
}  # fmt: skip


@needs_llvm
@pytest.mark.parametrize("body", FAULTS.values(), ids=FAULTS)
def test_faults_are_the_same_and_so_is_the_memory_then(both: Any, body: str) -> None:
    assert isinstance(both(kernel(body), np.zeros(512, np.uint32), grid=2), str)


@needs_llvm
def test_faults_of_one_program_leave_another_its_machine_code(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    monkeypatch.setenv("PTXLAB_ENGINE", "native")
    device: Any = open_device("emulator", arch="sm_90a")
    first, other = (kernel(f"ld.global.u32 r3, [d1+4]; {then}") for then in ("", "bar.sync 0;"))
    module = device.load(first)
    for _ in range(MOST_FAULTS):
        with pytest.raises(LaunchError, match="out of bounds"):
            module.kernel("k").launch(1, 32, [device.zeros(32, "u32")])
    calls.clear()
    device.load(other).kernel("k").launch(1, 32, [device.zeros(33, "u32")])
    assert calls == [True]


@needs_llvm
@pytest.mark.parametrize("beyond", [16, 64, -16])
def test_shared_memory_that_is_smaller_than_what_a_block_moves(both: Any, beyond: int) -> None:
    """All is checked at once from the first byte to the last: together they are more than there is."""
    body = f"""
        mov.u32 r3, s; st.global.u32 [d1], r0; st.shared.u32 [r3+4], r0; ld.shared.u32 r4, [r3+8];
        add.u32 r4, r4, r0; ld.shared.v2.u32 {{r5, r6}}, [r3+{beyond}]; st.global.u32 [d1], r4;"""
    text = kernel(body).replace("s[4096]", "s[16]")
    assert "shared load of 8 bytes" in both(text, np.zeros(256, np.uint32))


@needs_llvm
def test_memory_that_is_read_only_is_not_written(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    words, messages = np.arange(256, dtype=np.uint32), []
    words.flags.writeable = False
    for engine_ in ("array", "native"):
        monkeypatch.setenv("PTXLAB_ENGINE", engine_)
        device: Any = open_device("emulator", arch="sm_90a")
        out, address = device.zeros(256, "u32"), device.map(words)
        read = kernel(
            f"add.u64 d2, d1, {address - out.address}; ld.global.u32 r3, [d2]; st.global.u32 [d1], r3;"
        )
        loaded = device.load(read).kernel("k")
        loaded.launch(1, 256, [out])
        assert out.numpy().tolist() == words.tolist()
        with pytest.raises(LaunchError) as caught:
            device.load(kernel("st.global.u32 [d1], r2;")).kernel("k").launch(1, 256, [address])
        messages.append(caught.value.message)
    assert messages[0] == messages[1]
    assert "writes to array uint32[256]" in messages[0]
    assert words.tolist() == list(range(256))
    assert calls


@needs_llvm
def test_a_nan_that_is_only_moved_keeps_its_bits(both: Any) -> None:
    nan = np.full(256, 0x7FC00001, np.uint32)
    outputs = both(
        kernel("""
        ld.global.f32 f1, [d1]; mov.f32 f2, f1; setp.lt.u32 p1, r0, 9; @p1 add.f32 f2, f1, f1;
        st.global.f32 [d1], f2;"""),
        nan,
    )
    assert outputs.view(np.uint32).tolist() == [0x7FFFFFFF] * 9 + [0x7FC00001] * 247


@needs_llvm
def test_text_that_llvm_refuses_is_told_to_who_asked_for_machine_code(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise RuntimeError("LLVM IR parsing error")

    monkeypatch.setenv("PTXLAB_ENGINE", "auto")
    monkeypatch.setattr(compiler, "compile", refused)
    for name in ("HOT", "COMPILING"):
        monkeypatch.setattr(engine, name, 1)
    device: Any = open_device("emulator")
    module = device.load(kernel("add.u32 r3, r0, 5; st.global.u32 [d1], r3;"))
    buffer = device.zeros(32, "u32")
    for _ in range(3):
        module.kernel("k").launch(1, 32, [buffer])
    assert buffer.numpy().tolist() == list(range(5, 37))
    assert calls
    assert not any(calls)
    monkeypatch.setenv("PTXLAB_ENGINE", "native")
    with pytest.raises(RuntimeError, match="LLVM IR"):
        device.load(kernel("st.global.u32 [d1], r0;")).kernel("k").launch(1, 32, [buffer])


@needs_llvm
def test_a_watched_launch_runs_as_arrays(
    monkeypatch: pytest.MonkeyPatch, calls: list[bool]
) -> None:
    from ptxlab.emulator import Watcher

    monkeypatch.setenv("PTXLAB_ENGINE", "native")
    device: Any = open_device("emulator")
    loaded = device.load(kernel("st.global.u32 [d1], r0;")).kernel("k")
    buffer = device.zeros(32, "u32")
    loaded.watch(Watcher()).launch(1, 32, [buffer])
    assert calls == []
    loaded.launch(1, 32, [buffer])
    assert calls
    monkeypatch.setenv("PTXLAB_ENGINE", "array")
    calls.clear()
    device.load(kernel("st.global.u32 [d1], r0;")).kernel("k").launch(1, 32, [buffer])
    assert calls == []


def test_a_program_is_known_again_but_not_a_tree_that_was_rewritten() -> None:
    device: Any = open_device("emulator", arch="sm_90a")
    buffer, outputs, programs = device.zeros(32, "u32"), [], []
    module, other = (parse(kernel(f"st.global.u32 [d1], {word};")) for word in (5, 6))
    for tree in (module, parse(module.source.text), replace(other, source=module.source)):
        loaded = device.load(tree).kernel("k")
        loaded.launch(1, 32, [buffer])
        programs.append(loaded.program)
        outputs.append(buffer.numpy()[0])
    assert outputs == [5, 5, 6]
    assert programs[1] is programs[0]


def test_an_engine_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device("emulator")
    loaded = device.load(kernel("")).kernel("k")
    monkeypatch.setenv("PTXLAB_ENGINE", "steam")
    with pytest.raises(PtxlabError, match="'steam', which is no engine"):
        loaded.launch(1, 32, [0])
    monkeypatch.setenv("PTXLAB_ENGINE", "native")
    monkeypatch.setattr(compiler, "available", lambda: False)
    with pytest.raises(DeviceUnavailable, match="needs llvmlite") as caught:
        loaded.launch(1, 32, [0])
    assert "native" in str(caught.value.hint) or "llvmlite" in str(caught.value.hint)
    monkeypatch.delenv("PTXLAB_ENGINE")
    loaded.launch(1, 32, [0])


@needs_llvm
def test_blocks_of_one_line_are_not_taken_for_each_other(both: Any) -> None:
    """They read and write the same registers, and more than one is an instruction long."""
    steps = " ".join(
        f"{op}.u32 r3, r3, r0; {op}.u32 r3, r3, r1; @p1 bra L{i}; L{i}:"
        for i, op in enumerate(("add", "sub", "mul.lo", "min", "max"))
    )
    body = f"setp.gt.u32 p1, r0, 100000; mov.u32 r3, r2; {steps} st.global.u32 [d1], r3;"
    both(kernel(body), np.zeros(512, np.uint32), grid=2)


@needs_llvm
def test_blocks_that_only_name_other_registers_have_one_machine_code(
    monkeypatch: pytest.MonkeyPatch, both: Any
) -> None:
    blocks = (
        "add.u32 r5, r3, 5; xor.b32 r5, r5, r4;",
        "add.u32 r6, r4, 5; xor.b32 r6, r6, r3;",  # as the first
        "add.u32 r7, r3, 6; xor.b32 r7, r7, r4;",
        "add.u32 r8, r3, 5; xor.b32 r8, r8, r3;",
        "add.u32 r9, r3, 5; xor.b32 r10, r9, r4;",
        "add.u32 r11, r3, 5; xor.b32 r12, r11, r4;",  # of which r11 is not read again
        "sub.u32 r13, r3, 5; xor.b32 r13, r13, r4;",
        "ld.global.u32 r14, [d0+8]; not.b32 r14, r14;",
        "ld.global.u32 r15, [d0+12]; not.b32 r15, r15;",
    )
    apart = "@p1 bra L{0}; L{0}: "
    sums = " ".join(f"mad.lo.u32 r0, r0, 31, r{r};" for r in (5, 6, 7, 8, 9, 10, 12, 13, 14, 15))
    body = "mul.lo.u32 r3, r0, 77; not.b32 r4, r0; setp.gt.u32 p1, r0, 100000;" + " ".join(
        apart.format(number) + block for number, block in enumerate((*blocks, sums))
    )
    written: list[int] = []
    write = Writer.written

    def noting(self: Writer) -> Any:
        written.append(len(self.steps))
        return write(self)

    monkeypatch.setattr(Writer, "written", noting)
    both(kernel(body + "st.global.u32 [d1], r0;"), np.arange(512, dtype=np.uint32), grid=2)
    assert written.count(2) == len(blocks) - 1
