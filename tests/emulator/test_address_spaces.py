"""Names without a state space, isspacep, and registers put together and taken apart, in kernels."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxlabError, PtxSyntaxError, ToolchainError
from ptxlab.toolchain import disassemble, link_ptx
from tests.emulator.conftest import functions, kernel_text, module_text
from tests.together import in_one_test

BEFORE = """
.global .align 4 .b8 somewhere[16];
.const .align 4 .b8 constant[16];
"""
SPACES = ("global", "const", "local", "shared", "shared::cta", "param")


VARIABLES = """
.shared .align 16 .b8 in_shared[64];
.global .align 16 .b32 in_global[4] = {1, 2, 3, 4};
.const .align 16 .b32 in_const[4];
.extern .shared .align 16 .b8 dynamic[];
"""
IN_LOCAL = "    .local .align 16 .b8 in_local[64];\n"

# Each leaves what 4 + 5 is in r3. In machine code the access is one of the space, or none is left.
NAMED = {
    "ld": "st.{space}.u32 [{name}+4], 9; bar.sync 0; ld.u32 r3, [{name}+4];",
    "st": "st.u32 [{name}+4], 9; bar.sync 0; ld.{space}.u32 r3, [{name}+4];",
    "a vector": "st.v2.u32 [{name}+8], {{4, 5}}; ld.v2.u32 {{r4, r5}}, [{name}+8]; add.u32 r3, r4, r5;",
    "volatile": "st.volatile.u32 [{name}+4], 9; ld.volatile.u32 r3, [{name}+4];",
    "in order": "st.release.cta.u32 [{name}+4], 9; ld.acquire.cta.u32 r3, [{name}+4];",
}
ATOMS = {
    "atom": "st.u32 [{name}], 4; atom.add.u32 r4, [{name}], 5; ld.u32 r3, [{name}];",
    "red": "st.u32 [{name}], 4; red.add.u32 [{name}], 5; ld.u32 r3, [{name}];",
    "mbarrier": """
        mbarrier.init.b64 [{name}], 1; mbarrier.arrive.b64 d3, [{name}];
        mbarrier.test_wait.b64 p1, [{name}], d3; selp.u32 r3, 9, 0, p1;""",
    "cp.async": """
        cp.async.ca.shared.global [{name}], [in_global], 16, 12; cp.async.wait_all;
        ld.b32 r3, [{name}+8]; ld.b32 r4, [{name}+12]; add.u32 r4, r4, 6; add.u32 r3, r3, r4;""",
}


CASES = [
    *((what, name) for what in NAMED for name in ("in_shared", "dynamic", "in_local", "in_global")),
    *((what, name) for what in ATOMS for name in ("in_shared", "dynamic")),
]


def accesses(what: str, name: str) -> str:
    space = name.removeprefix("in_").replace("dynamic", "shared")
    body = (NAMED | ATOMS)[what].format(name=name, space=space)
    return IN_LOCAL + body + "\n    st.global.u32 [d1], r3;"


@cache
def assembled() -> dict[str, str]:
    """Return the machine code of all cases, each a kernel of one module, by their numbers."""
    bodies = {f"k{i}": accesses(*case).replace("d1", "d0") for i, case in enumerate(CASES)}
    return functions(disassemble(link_ptx(module_text(bodies, VARIABLES), arch="sm_80")))


@in_one_test(("what", "name"), CASES)
def test_a_name_without_a_space_is_in_its_own(run: Any, what: str, name: str) -> None:
    """As ptxas has it, which makes STS and LDS, STL and LDL, ATOMS of such instructions."""
    result = run(accesses(what, name), before=VARIABLES, shared=64, block=1)
    assert result.tolist() == [[9]]
    if name != "in_global":
        sass = assembled()[f"k{CASES.index((what, name))}"]
        assert "EXIT" in sass
        assert not re.search(r"\b(LD|ST|ATOM)(\.\S+)? ", sass)


def test_local_memory_takes_volatile_from_ptx_9_1_on(device: Device) -> None:
    """As NVRTC makes of a volatile variable since CUDA 13.1; ptxas takes it no sooner."""
    body = accesses("volatile", "in_local").replace("volatile.u32", "volatile.local.u32")
    text = kernel_text(body.replace("d1", "d0"), VARIABLES)
    older, newer = (text.replace(".version 8.3", f".version {v}") for v in ("9.0", "9.1"))
    assert "STL" in disassemble(link_ptx(newer, arch="sm_80"))
    with device.zeros(1, "u32") as out:
        with pytest.raises(PtxlabError, match=r"\.version 9\.[01]"):
            device.load(older).kernel("k").launch(1, 1, [out], shared=64)
        device.load(newer).kernel("k").launch(1, 1, [out], shared=64)
        assert out.numpy().tolist() == [9]


@pytest.mark.parametrize(
    ("register", "name"), [("r4", "in_shared"), ("d4", "in_shared"), ("d4", "in_local")]
)
def test_the_offset_of_a_variable_is_no_generic_address(
    emulate: Any, register: str, name: str
) -> None:
    """ptxas makes LD of it: what a register holds is not looked into, and below the windows is nothing."""
    mov = f"mov.u{32 if register == 'r4' else 64} {register}, {name};"
    sass = disassemble(
        link_ptx(
            kernel_text(IN_LOCAL + f"{mov} ld.volatile.u32 r3, [{register}+4];", VARIABLES),
            arch="sm_80",
        )
    )
    assert re.search(r"\bLD[. ]", sass)
    with pytest.raises(LaunchError, match=r"load of 4 bytes at 0x4(04)? .* is out of bounds"):
        emulate(f"{IN_LOCAL} {mov} ld.u32 r3, [{register}+4];", before=VARIABLES, shared=64)
    within = (
        f"cvta.{name[3:]}.u64 d4, d4; st.u32 [d4+4], 9; ld.u32 r3, [d4+4]; st.global.u32 [d1], r3;"
    )
    if register == "d4":
        assert emulate(f"{IN_LOCAL} {mov} {within}", before=VARIABLES, shared=64)[0] == 9


def ptxas_takes(text: str) -> bool:
    try:
        link_ptx(text, arch="sm_80")
    except ToolchainError as error:
        if "ptxas rejected this PTX" not in error.message:
            raise
        return False
    return True


@in_one_test(
    "line",
    [
        "ld.u32 r3, [in_const];",
        "ldu.u32 r3, [in_const];",
        "st.u32 [in_const], 3;",
        "atom.add.u32 r3, [in_const], 3;",
        "prefetch.L1 [in_const];",
        "ld.u64 d3, [out];",
        "ld.volatile.u64 d3, [out];",
        "cp.async.ca.shared.global [in_shared], [in_shared], 16;",
        "cp.async.ca.shared.global [in_global], [in_global], 16;",
    ],
)
def test_a_name_in_another_space_is_refused(emulate: Any, line: str) -> None:
    with pytest.raises(PtxSyntaxError, match=r"lies in \.(const|param|shared|global), not in"):
        emulate(line, before=VARIABLES)
    assert not ptxas_takes(kernel_text(line, VARIABLES))


PACKED = ".reg .v2 .b16 v<3>; .reg .v2 .b16 a; .reg .v2 .u32 b; .reg .v4 .b16 c; .reg .v2 .f32 e; .reg .v4 .b32 q; "


@in_one_test(
    ("moves", "words"),
    [
        ("mov.b32 a, 0x70005; mov.b32 r4, a;", 0x70005),
        ("mov.b32 a, 0x70005; mov.b32 r4, {a.y, a.x};", 0x50007),
        ("mov.b32 v0, 0x70005; mov.b32 v2, {v0.y, v0.r}; mov.b32 r4, v2;", None),
        ("mov.b32 v0, 0x70005; mov.b32 v2, 0x90008; mov.b32 r4, {v2.x, v0.g};", 0x70008),
        ("mov.b32 r4, v3;", None),
        ("mov.b32 r4, r1.x;", None),
        (
            "mov.b32 b.x, 3; mov.b32 b.y, 4; mov.b64 d3, b; shr.u64 d3, d3, 31; cvt.u32.u64 r4, d3;",
            8,
        ),
        ("mov.b64 c, 0x4000300020001; mov.b32 r4, {c.w, c.x};", 0x10004),
        ("mov.b64 e, 0x400000003F800000; mov.b32 r4, e.y;", 0x40000000),
        ("mov.b64 d3, 7; mov.b64 b, d3; mov.b32 r4, b.x;", 7),
        ("mov.b32 r3, 5; mov.b32 {r4}, {r3};", None),
        ("mov.b32 r3, 5; mov.b32 {r4}, r3;", 5),
        ("mov.b32 r3, 5; mov.b32 r4, {r3};", 5),
        ("mov.u64 d3, b;", None),
        ("mov.b64 d3, a;", None),
        ("mov.b64 b, b;", None),
        ("mov.b32 r4, h1;", None),
        ("mov.b32 h1, r4;", None),
        ("mov.u32 r4, {r3};", None),
    ],
)
def test_mov_packs_a_register_that_is_a_vector(emulate: Any, moves: str, words: int | None) -> None:
    """What it takes ptxas takes, and nothing else."""
    body = PACKED + moves + " st.global.u32 [d1], r4;"
    assert ptxas_takes(kernel_text(body)) == (words is not None)
    if words is None:
        with pytest.raises(PtxSyntaxError):
            emulate(body)
    else:
        assert (emulate(body) == words).all()


def test_each_address_is_in_its_own_space(run: Any) -> None:
    tests = "\n".join(
        f"isspacep.{space} p1, d3; selp.u32 r3, {1 << bit}, 0, p1; or.b32 r4, r4, r3;"
        for bit, space in enumerate(SPACES)
    )
    body = """
    .shared .align 4 .b8 tile[64];
    .local .align 4 .b8 own[64];
    mov.u32 r5, %tid.x;
    cvta.global.u64 d3, somewhere;
    cvta.const.u64 d4, constant;
    mov.u64 d5, tile;
    cvta.shared.u64 d5, d5;
    mov.u64 d6, own;
    cvta.local.u64 d6, d6;
    setp.eq.u32 p2, r5, 1;
    selp.b64 d3, d4, d3, p2;
    setp.eq.u32 p2, r5, 2;
    selp.b64 d3, d5, d3, p2;
    setp.eq.u32 p2, r5, 3;
    selp.b64 d3, d6, d3, p2;
    mov.u32 r4, 0;
    """
    out = run(
        body + tests + "\nst.global.u32 [d1], r4;", before=BEFORE.replace("\n\n", "\n"), block=4
    )
    assert out.reshape(-1).tolist() == [0b000001, 0b000010, 0b011000, 0b000100]


def test_of_an_address_of_shared_memory_32_bits_count(run: Any) -> None:
    """So a generic one is one too: machine code has a register of 32 bits, whatever PTX has."""
    body = """
    .shared .align 16 .b8 tile[64];
    mov.u64 d5, tile;
    cvta.shared.u64 d6, d5;
    st.shared.u32 [d6+4], 7;
    atom.shared.add.u32 r3, [d6+4], 2;
    ld.shared.u32 r4, [d5+4];
    ld.shared.u32 r5, [d6+4];
    add.u32 r3, r3, r4;
    add.u32 r3, r3, r5;
    st.global.u32 [d1], r3;
    """
    assert run(body, block=1).reshape(-1)[0] == 7 + 9 + 9


def test_128_bits_in_two_and_in_four_parts(run: Any) -> None:
    body = """
    .reg .b128 q<2>;
    mov.b64 d3, 0x1122334455667788;
    mov.b64 d4, 0x99AABBCCDDEEFF00;
    mov.b128 q0, {d3, d4};
    mov.b128 {r3, r4, r5, r6}, q0;
    mov.b128 q1, {r6, r5, r4, r3};
    mov.b128 {_, d5}, q1;
    st.global.v4.u32 [d1], {r3, r4, r5, r6};
    st.global.u64 [d1+16], d5;
    """
    words = run(body, words=8).astype(np.uint32)
    assert words[0, :6].tolist() == [
        0x55667788, 0x11223344, 0xDDEEFF00, 0x99AABBCC, 0x11223344, 0x55667788,
    ]  # fmt: skip


def test_bytes_of_a_word(run: Any) -> None:
    body = """
    .reg .b8 c<5>;
    mov.b32 r3, 0x80FF017F;
    mov.b32 {c1, c2, c3, c4}, r3;
    mov.b32 r4, {c4, c3, c2, c1};
    st.global.u32 [d1], r4;
    """
    assert run(body)[0].tolist() == [0x7F01FF80]
