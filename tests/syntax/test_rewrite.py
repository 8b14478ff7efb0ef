"""Register dumps: what is inserted where, that ptxas takes it, and what a device then stores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.instrument.rewrite import Probe, dump_nth, dump_registers
from ptxlab.instrument.sites import instructions
from ptxlab.syntax import parse, to_text
from ptxlab.syntax.tree import (
    NOWHERE,
    Block,
    Declaration,
    Function,
    Instruction,
    Position,
    PtxModule,
)
from tests.together import in_one_test

Assemble = Callable[[str], dict[str, bytes]]

TEXT = """.version 8.3
.target sm_80
.address_size 64
.func other { ret; }
.visible .entry k(.param .u64 out, .param .f32 scale)
{
    .reg .pred p<2>; .reg .b8 byte; .reg .s16 short; .reg .f16 half; .reg .f16x2 packed;
    .reg .b32 r<9>; .reg .s32 s; .reg .f32 f; .reg .b64 d; .reg .f64 g; .reg .v2 .f32 v;
    ld.param.u64 d, [out]; ld.param.f32 f, [scale];
    mov.u32 r0, %tid.x; mov.u32 r1, %tid.y; mov.u32 r2, %tid.z;
    mov.u32 r3, %ctaid.x; mov.u32 r4, %ctaid.y; mov.u32 r5, %ctaid.z;
    setp.eq.u32 p0, r0, 1;
    cvt.u8.u32 byte, 0x1F5; mov.b16 short, -2; mov.b16 half, 0xBC00; mov.b32 packed, 0x3C00BC00;
    mov.b32 s, -5; mov.b64 g, 0xC000000000000001; mov.b32 v.x, 7; mov.b32 v.y, 9;
    mov.u32 r6, 0;
again:
    add.u32 r6, r6, 1;
    setp.lt.u32 p1, r6, 3;
    @p1 bra again;
    @p0 add.u32 r6, r6, 100;
    {
        .reg .b64 r6;
        mov.u64 r6, 0x123456789ABCDEF0;
    }
    ret;
}
"""


def kernel(module: PtxModule) -> Function:
    return module.entries[0]


def place(module: PtxModule, opcode: str, number: int = 0) -> Position:
    """Return where the ``number``-th instruction called ``opcode`` stands, counted from the end if < 0."""
    matching = [
        s.instruction for s in instructions(kernel(module)) if s.instruction.opcode == opcode
    ]
    return matching[number].position


# ---- finding instructions -------------------------------------------------------------------


def test_instructions_and_what_they_see() -> None:
    module = parse(TEXT)
    sites = list(instructions(kernel(module)))
    lines = [site.instruction.position.line for site in sites]
    assert lines == sorted(lines)
    assert [s.instruction.opcode for s in sites].count("mov") == TEXT.count("mov.")
    assert sites[-1].instruction.opcode == "ret"
    inner = next(s for s in sites if s.instruction.name == "mov.u64")
    assert inner.type_of("r6") == "b64"
    assert sites[-1].type_of("r6") == "b32"
    assert [s.instruction.name for s in instructions(module.functions[0])] == ["ret"]
    assert list(instructions(parse(TEXT.split(".func")[0] + ".func g;").functions[0])) == []


@in_one_test(
    ("name", "expected"),
    [
        ("r0", "b32"),
        ("r8", "b32"),
        ("r9", None),
        ("r00", None),
        ("r", None),
        ("r" + "1" * 30, None),
        ("p1", "pred"),
        ("half", "f16"),
        ("v.x", "f32"),
        ("v", None),
        ("f.x", None),
        ("out", None),
        ("%tid", None),
    ],
)
def test_register_type(name: str, expected: str | None) -> None:
    site = list(instructions(kernel(parse(TEXT))))[-1]
    assert site.type_of(name) == expected


def test_a_variable_hides_a_register() -> None:
    text = TEXT.replace("mov.u64 r6, 0x123456789ABCDEF0;", "").replace(
        ".reg .b64 r6;", ".shared .b64 r6; bar.sync 0;"
    )
    site = next(s for s in instructions(kernel(parse(text))) if s.instruction.opcode == "bar")
    assert site.type_of("r6") is None


# ---- what is inserted -----------------------------------------------------------------------


def test_the_rest_is_untouched() -> None:
    module = parse(TEXT)
    at = place(module, "setp", 1)
    probes = [Probe(at, ("r6",), False), Probe(at, ("r6", "p1"), True), Probe(at, ("r0",), False)]
    dumped = dump_registers(module, "k", probes)
    assert dumped.items[0] is module.items[0]
    assert dumped.source is module.source
    before, after = kernel(module), kernel(dumped)
    assert [p.names[0].name for p in after.parameters] == ["out", "scale", "ptxlab_dump"]
    assert before.body is not None
    assert after.body is not None
    added = [s for s in after.body if s not in before.body]
    assert [s for s in after.body if s in before.body] == list(before.body)
    assert all(isinstance(s, Block | Declaration) and s.position == NOWHERE for s in added)
    order = [s.name if isinstance(s, Instruction) else type(s).__name__ for s in after.body]
    here = order.index("setp.lt.u32")
    assert order[here - 3 : here + 3] == [
        "add.u32",
        "Block",
        "Block",
        "setp.lt.u32",
        "Block",
        "bra",
    ]


def test_declarations_of_the_kernel_follow() -> None:
    text = TEXT.replace(
        ".func other", ".visible .entry k(.param .u64 out, .param .f32 scale);\n.func other"
    )
    module = parse(text)
    dumped = dump_registers(module, "k", [Probe(place(module, "ret"), ("r0",), False)])
    counts = [len(f.parameters) for f in dumped.functions if f.name == "k"]
    assert counts == [3, 3]


ALL = ("p0", "p1", "byte", "short", "half", "packed", "r6", "s", "f", "d", "g", "v.x", "v.y")


@pytest.mark.parametrize("opcode", ["ld", "mov", "setp", "bra", "add", "ret"])
@pytest.mark.parametrize("after", [False, True])
def test_assembles(opcode: str, after: bool, assemble: Assemble) -> None:
    module = parse(TEXT)
    dumped = dump_registers(module, "k", [Probe(place(module, opcode, -1), ALL[:-1], after)])
    text = to_text(dumped)
    assert parse(text) == dumped
    assert assemble(text)


def test_dumps_the_values(device: Device) -> None:
    module = parse(TEXT)
    probes = [
        Probe(place(module, "ret"), ALL, False),
        Probe(place(module, "add", -1), ("r6", "p0"), True),
        Probe(place(module, "add", -1), ("r6",), False),
        Probe(place(module, "mov", -1), ("r6",), True),
        Probe(place(module, "setp"), ("r0", "r1", "r2", "r3", "r4", "r5"), False),
    ]
    dumped = dump_registers(module, "k", probes)
    grid, block = (3, 2, 2), (4, 3, 2)
    threads, slots = 12 * 24, len(ALL) + 2 + 1 + 1 + 6
    words = device.zeros((threads, slots), "u64")
    loaded = device.load(to_text(dumped)).kernel("k")
    loaded.launch(grid=grid, block=block, args=[0x1234567890, 1.5, words], shared=0)
    got = words.numpy()

    index = np.arange(threads)
    x, y, z = index % 4, index // 4 % 3, index // 12 % 2
    cta = index // 24
    taken = x == 1
    expected = [
        *(taken, 0, 0xF5, 0xFFFE, 0xBC00, 0x3C00BC00, np.where(taken, 103, 3), 2**32 - 5),
        *(0x3FC00000, 0x1234567890, 0xC000000000000001, 7, 9),
        *(np.where(taken, 103, 3), taken, 3, 0x123456789ABCDEF0),
        *(x, y, z, cta % 3, cta // 3 % 2, cta // 6),
    ]
    for slot, values in enumerate(expected):
        wanted = np.broadcast_to(np.asarray(values).astype(np.uint64), (threads,))
        np.testing.assert_array_equal(got[:, slot], wanted, err_msg=f"slot {slot}")


@pytest.mark.parametrize(
    ("nth", "r6"),
    [(1, [1, 1, 1]), (3, [3, 3, 3]), (4, [3, 103, 3]), (5, [777, 777, 777])],
)
def test_dumps_the_nth_time(device: Device, nth: int, r6: list[int]) -> None:
    """The add of the loop is passed three times, and then the guarded one."""
    module = parse(TEXT)
    probes = [Probe(place(module, "add", i), ("r6", "r0"), True) for i in (0, 1)]
    text = to_text(dump_nth(module, "k", probes, nth))
    words = device.upload(np.full((3, 3), 777, np.uint64))
    device.load(text).kernel("k").launch(1, 3, [0, 1.5, words])
    threads = [777] * 3 if nth > 4 else [0, 1, 2]
    assert words.numpy().T.tolist() == [[4] * 3, r6, threads]


# ---- what is refused ------------------------------------------------------------------------


def test_no_such_kernel() -> None:
    with pytest.raises(PtxlabError, match="no kernel named other") as caught:
        dump_registers(parse(TEXT), "other", [])
    assert caught.value.hint == "its kernels: k"


def test_no_such_instruction() -> None:
    with pytest.raises(PtxlabError, match="no instruction of k starts here") as caught:
        dump_registers(parse(TEXT), "k", [Probe(Position(10, 6), ("r0",), True)])
    assert caught.value.location is not None
    assert (caught.value.location.line, caught.value.location.column) == (10, 6)


def test_no_such_register() -> None:
    module = parse(TEXT)
    with pytest.raises(PtxlabError, match="no register named r9 is declared here") as caught:
        dump_registers(module, "k", [Probe(place(module, "ret"), ("r9",), True)])
    assert caught.value.hint == "did you mean r<9>?"
    assert caught.value.location is not None
    assert caught.value.location.text == "    ret;"


def test_no_wide_register() -> None:
    module = parse(TEXT.replace(".reg .f32 f;", ".reg .f32 f; .reg .b128 wide;"))
    with pytest.raises(Unsupported, match="cannot dump wide"):
        dump_registers(module, "k", [Probe(place(module, "ret"), ("wide",), True)])


@pytest.mark.parametrize("name", ["ptxlab_dump", "%ptxlab_w0"])
def test_reserved_names(name: str) -> None:
    module = parse(TEXT.replace(".reg .f32 f;", f".reg .f32 f; .reg .b32 {name};"))
    with pytest.raises(PtxlabError, match="is needed for the dump"):
        dump_registers(module, "k", [Probe(place(module, "ret"), ("r0",), True)])


def test_no_second_dump() -> None:
    module = parse(TEXT)
    probes = [Probe(place(module, "ret"), ("r0",), False)]
    with pytest.raises(PtxlabError, match="ptxlab_dump is needed for the dump"):
        dump_registers(dump_registers(module, "k", probes), "k", probes)


def test_coordinates_of_a_tensor_copy_are_registers_of_it() -> None:
    module = parse("""
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k() {
    .reg .b32 to, x, y, bar; .reg .b64 map; .reg .b16 mask;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [to+8], [map, {x, y}], [bar], mask;
    ret;
}
""")
    copy, _ = instructions(module.entries[0])
    named = [copy.registers(operand) for operand in copy.instruction.operands]
    assert named == [["to"], ["map", "x", "y"], ["bar"], ["mask"]]
