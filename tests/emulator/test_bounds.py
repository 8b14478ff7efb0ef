"""Where memory begins and ends, to the byte, in every space, and whom a wrong address is blamed on."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.emulator.run.memory import GlobalMemory
from ptxlab.errors import LaunchError
from tests.together import in_one_test, one_of_each

# Thread AT of two warps is the only one whose address is not the beginning of the memory.
AT = 37
TEXT = """
.version 8.3
.target sm_80
.address_size 64
{before}
.visible .entry k(.param .u64 buffer, .param .u64 offset)
{{
    .reg .pred p; .reg .b16 h<5>; .reg .b32 t, r<5>; .reg .b64 d, o, x<5>;
    {inside}
    mov.u32 t, %tid.x;
    setp.eq.u32 p, t, {at};
    ld.param.u64 d, [buffer];
    ld.param.u64 o, [offset];
    {address}
    @p add.u64 d, d, o;
    {access}
}}
"""
SPACES = {
    "global": ("", "", "", ".global"),
    "generic global": ("", "", "", ""),
    "variable": (".global .align 16 .b8 v[{size}];", "", "mov.u64 d, v;", ".global"),
    "const": (".const .align 16 .b8 v[{size}];", "", "mov.u64 d, v;", ".const"),
    "shared": ("", ".shared .align 16 .b8 v[{size}];", "mov.u64 d, v;", ".shared"),
    "generic shared": ("", ".shared .align 16 .b8 v[{size}];", "cvta.shared.u64 d, v;", ""),
    "local": ("", ".local .align 16 .b8 v[{size}];", "mov.u64 d, v;", ".local"),
    "generic local": ("", ".local .align 16 .b8 v[{size}];", "cvta.local.u64 d, v;", ""),
}
TYPES = {
    "u8": "r0",
    "u16": "h0",
    "u32": "r0",
    "u64": "x0",
    "v2.u32": "{r0, r1}",
    "v4.u16": "{h0, h1, h2, h3}",
    "v4.u32": "{r0, r1, r2, r3}",
    "v2.u64": "{x0, x1}",
}


def width_of(kind: str) -> int:
    count, _, bits = kind.rpartition(".u") if "." in kind else ("v1", "", kind[1:])
    return int(count[1:]) * int(bits) // 8


ACCESSES = [
    (verb, space, kind)
    for verb in ("ld", "st")
    for space in SPACES
    for kind in TYPES
    if (verb, space) != ("st", "const")
]


# Loads and stores of every type always run, and those of every space, by one number and by vectors.
@pytest.mark.parametrize(
    ("verb", "space", "kind"),
    one_of_each(ACCESSES, itemgetter(0, 2), lambda access: (*access[:2], "." in access[2])),
)
def test_the_first_and_the_last_byte(emulator: Device, space: str, kind: str, verb: str) -> None:
    width = width_of(kind)
    before, inside, address, suffix = SPACES[space]
    operands = f"{TYPES[kind]}, [d]" if verb == "ld" else f"[d], {TYPES[kind]}"
    for size in (16, 22, 39):  # no multiples of most widths
        text = TEXT.format(
            before=before.format(size=size),
            inside=inside.format(size=size),
            address=address,
            access=f"{verb}{suffix}.{kind} {operands};",
            at=AT,
        )
        kernel = emulator.load(text).kernel("k")
        with emulator.zeros(size, "u8") as buffer:
            for offset in {-width, -1, 0, 1, size - width, size - width + 1, size - 1, size, 48}:
                contained = 0 <= offset <= size - width
                arguments = [buffer, offset % (1 << 64)]
                if contained and offset % width == 0:
                    kernel.launch(1, 64, arguments)
                    continue
                with pytest.raises(LaunchError) as caught:
                    kernel.launch(1, 64, arguments)
                said = "is misaligned" if contained else "is out of bounds|is outside"
                assert re.search(
                    rf"thread \({AT}, 0, 0\) of CTA \(0, 0, 0\) ({said})", str(caught.value)
                )


@in_one_test("mine", [16, 20, 400])
@in_one_test("size", [4, 16, 100])
def test_local_memory_ends_with_the_deepest_call(emulate: Any, mine: int, size: int) -> None:
    before = f"""
.func f(.reg .b64 at) {{ .local .align 4 .b8 v[{size}]; .reg .b64 d; mov.u64 d, v; add.u64 d, d, at;
    st.local.u32 [d], 7; ret; }}
"""
    body = f".local .align 4 .b8 w[{mine}]; st.local.u32 [w+{mine - 4}], 1; call f, (%d);"
    for _ in range(2):
        emulate(body.replace("%d", str(size - 4)), before=before)
        with pytest.raises(LaunchError, match="outside local memory"):
            emulate(body.replace("%d", str(size)), before=before)


@pytest.mark.parametrize("mine", [1, 4, 12, 20])
def test_the_variables_of_a_called_function_are_aligned(run: Any, mine: int) -> None:
    before = """
.func f(.reg .b64 out) { .local .align 16 .b8 v[16]; .reg .b32 a, b, c, e; .reg .b64 d; mov.u64 d, v;
    st.local.v4.u32 [d], {5, 6, 7, 8}; ld.local.v4.u32 {a, b, c, e}, [d]; st.global.u32 [out], e; ret; }
"""
    body = f".local .align 1 .b8 w[{mine}]; st.local.u8 [w+{mine - 1}], 1; call f, (d1);"
    assert (run(body, before=before) == 8).all()


@pytest.mark.parametrize("size", [0, 1, 6, 15, 16, 17, 100])
def test_the_host_stays_inside_an_allocation(size: int) -> None:
    memory = GlobalMemory()
    memory.allocate(64)
    address = memory.allocate(size)
    data = bytes(range(1, size + 1))
    memory.write(address, data)
    assert memory.read(address, size).tobytes() == data
    for begin in range(size + 1):
        assert memory.read(address + begin, size - begin).tobytes() == data[begin:]
        with pytest.raises(ValueError, match="are not inside one allocation"):
            memory.read(address + begin, size - begin + 1)
        with pytest.raises(ValueError, match="are not inside one allocation"):
            memory.write(address + begin, bytes(size - begin + 1))
    for outside in (address - 1, address + size + 1):
        with pytest.raises(ValueError, match="are not inside one allocation"):
            memory.read(outside, 1)
    assert memory.read(address, size).tobytes() == data


def test_machine_code_is_told_of_every_allocation_and_of_no_other() -> None:
    memory = GlobalMemory()

    def told() -> list[list[int]]:
        count = int(memory.table[0])
        words: list[list[int]] = memory.table[1 : 1 + 4 * count].reshape(count, 4).tolist()
        return [[begin, size, writable] for begin, size, _, writable in words]

    first, second, third = (memory.allocate(size) for size in (16, 6, 100))
    constant = memory.allocate(8, space="const")
    assert told() == [[first, 16, 1], [second, 6, 1], [third, 100, 1], [constant, 8, 0]]
    mine = np.zeros(40, np.uint8)
    memory.map(mine.ctypes.data, 40, "mine", mine, writable=True)  # below all others
    memory.free(second)
    left = [[mine.ctypes.data, 40, 1], [first, 16, 1], [third, 100, 1], [constant, 8, 0]]
    assert told() == left
    with memory.kept():
        memory.free(first)
        others = [[memory.allocate(4), 4, 1] for _ in range(9)]
        assert told() == [left[0], *left[2:], *others]
    assert told() == left
    memory.free(constant)
    assert told() == left[:-1]
    for distance, allocation in zip(memory.table[3::4], memory.allocations, strict=False):
        assert (allocation.address + int(distance)) % (1 << 64) == allocation.data.ctypes.data


@pytest.mark.parametrize("past", [0, 16, 496, 512, 4096, 1 << 16, (1 << 20) - 16])
def test_the_next_allocation_is_far_away(emulator: Device, past: int) -> None:
    text = TEXT.format(before="", inside="", address="", access="ld.global.u32 r0, [d];", at=AT)
    kernel = emulator.load(text).kernel("k")
    with emulator.zeros(16, "u8") as first, emulator.zeros(16, "u8") as second:
        low, high = sorted((first.address, second.address))
        kernel.launch(1, 64, [low, high - low])
        with pytest.raises(LaunchError, match="out of bounds"):
            kernel.launch(1, 64, [low, 16 + past])


# ---- who is blamed ------------------------------------------------------------------------------

# Even threads use their own word of a buffer, odd ones that of a variable.
SPREAD = """
    mov.u64 d2, cells;
    mad.wide.u32 d2, r0, 4, d2;
    and.b32 r3, r0, 1;
    setp.eq.u32 p1, r3, 1;
    @p1 mov.u64 d1, d2;
"""


@in_one_test("space", [".global", ""])
@in_one_test("access", ["st{}.u32 [d1], r0;", "ld{}.u32 r4, [d1];"])
@in_one_test(
    ("wrong", "first", "others"),
    [
        ({3: "mov.u64 d1, 64;"}, 3, 0),
        ({3: "add.u64 d1, d1, 2;", 6: "mov.u64 d1, 64;"}, 3, 1),
        ({4: "add.u64 d1, d1, 2;", 5: "mov.u64 d1, 32;", 9: "mov.u64 d1, 64;"}, 4, 2),
        ({1: "add.u64 d1, d1, 2;", 2: "add.u64 d1, d1, 2;"}, 1, 1),
        ({0: "mov.u64 d1, 64;", 31: "add.u64 d1, d1, 1;"}, 0, 1),
    ],
)
def test_the_first_thread_is_named_and_the_others_are_counted(
    emulate: Any, space: str, access: str, wrong: dict[int, str], first: int, others: int
) -> None:
    changes = "".join(
        f"setp.eq.u32 p1, r0, {thread};\n@p1 {change}\n" for thread, change in wrong.items()
    )
    before = ".global .b32 cells[32];"
    emulate(SPREAD + access.format(space), before=before)
    with pytest.raises(LaunchError) as caught:
        emulate(SPREAD + changes + access.format(space), before=before)
    more = {0: "", 1: r" \(and 1 more thread\)", 2: r" \(and 2 more threads\)"}[others]
    said = "is out of bounds" if "mov" in wrong[first] else "is misaligned"
    pattern = rf"by thread \({first}, 0, 0\) of CTA \(0, 0, 0\){more} {said}"
    assert re.search(pattern, str(caught.value))


@pytest.mark.parametrize("address", ["[d0+128]", "[d2+128]"])
def test_an_address_that_all_threads_share_is_wrong_for_all(emulate: Any, address: str) -> None:
    # The same number in every thread, d2, is as wrong as one number for all of them, d0.
    body = (
        f"sub.u64 d2, d1, d0; shr.u64 d2, d2, 32; add.u64 d2, d2, d0; st.global.u32 {address}, r0;"
    )
    emulate(body.replace("+128]", "+124]"))
    with pytest.raises(LaunchError, match=r"thread \(0, 0, 0\) .*\(and 31 more threads\) is out"):
        emulate(body)
