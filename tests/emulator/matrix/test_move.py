"""ldmatrix, stmatrix and movmatrix against models that handle one lane and one byte at a time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.ldmatrix import LDMATRIX, STMATRIX, LdMatrix, StMatrix
from tests.together import one_of_each

ROWS = 96
SHARED = f".shared .align 128 .b8 tile[{16 * ROWS}];"

PROGRAM = """
.version 9.4
.target {arch}
.address_size 64
.visible .entry k(.param .u64 tile_in, .param .u64 rows_in, .param .u64 registers_in,
                  .param .u64 out)
{{
.reg .b32 r<40>; .reg .b64 d<20>; .reg .pred p<4>;
{shared}
mov.u32 r0, %tid.x;
ld.param.u64 d0, [tile_in];
ld.param.u64 d1, [rows_in];
ld.param.u64 d2, [registers_in];
ld.param.u64 d3, [out];
mad.wide.u32 d4, r0, 4, d1;
ld.global.u32 r1, [d4];
mov.u32 r2, tile;
mad.lo.u32 r3, r1, 16, r2;
mov.u32 r4, r0;
fill:
mad.wide.u32 d5, r4, 4, d0;
ld.global.u32 r5, [d5];
mad.lo.u32 r6, r4, 4, r2;
st.shared.u32 [r6], r5;
add.u32 r4, r4, 32;
setp.lt.u32 p0, r4, {words};
@p0 bra fill;
bar.sync 0;
mad.wide.u32 d6, r0, 16, d2;
ld.global.v4.u32 {{r10, r11, r12, r13}}, [d6];
{body}
bar.sync 0;
mad.wide.u32 d7, r0, 16, d3;
st.global.v4.u32 [d7], {{r20, r21, r22, r23}};
mov.u32 r4, r0;
drain:
mad.lo.u32 r6, r4, 4, r2;
ld.shared.u32 r5, [r6];
mad.wide.u32 d5, r4, 4, d3;
st.global.u32 [d5+512], r5;
add.u32 r4, r4, 32;
setp.lt.u32 p0, r4, {words};
@p0 bra drain;
}}
"""


class Bench:
    """A tile of rows in shared memory, a row number and four registers for each lane."""

    def __init__(self, devices: Any, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.devices = devices
        self.tile = random.integers(0, 256, (ROWS, 16)).astype(np.uint8)
        self.rows = random.permutation(ROWS)[:32].astype(np.uint32)
        self.registers = random.integers(0, 1 << 32, (32, 4), dtype=np.uint64).astype(np.uint32)

    def run(self, body: str, arch: str) -> tuple[Array, Array]:
        """Return r20 to r23, [32, 4], and the tile as the program left it, [rows, 16]."""
        device = self.devices(arch)
        text = PROGRAM.format(arch=arch, shared=SHARED, words=4 * ROWS, body=body)
        kernel = device.load(text).kernel("k")
        with (
            device.upload(self.tile) as tile,
            device.upload(self.rows) as rows,
            device.upload(self.registers) as registers,
            device.zeros((128 + 4 * ROWS,), "u32") as out,
        ):
            kernel.launch(1, 32, [tile, rows, registers, out])
            words = out.numpy()
        return words[:128].reshape(32, 4), words[128:].view(np.uint8).reshape(ROWS, 16)


@pytest.fixture
def bench(devices: Any) -> Callable[..., Bench]:
    return lambda seed=0: Bench(devices, seed)


def targets_of(form: LdMatrix | StMatrix) -> str:
    return next(name for name, target in TARGETS.items() if form.runs_on(target))


def loaded(form: LdMatrix, tile: Array, rows: Array) -> Array:
    """Return what each lane receives, a byte or a 16-bit element at a time."""
    height = 16 if form.shape == "m16n16" else 8
    words = np.zeros((32, 4), np.uint32)
    for lane in range(32):
        g, q = lane // 4, lane % 4
        for j in range(form.matrices):
            matrix = [
                elements(row_at(form, tile, rows, at), form.dtype)
                for at in range(height * j, height * (j + 1))
            ]
            if form.dtype == "b16":
                for half in range(2):
                    value = matrix[2 * q + half][g] if form.trans else matrix[g][2 * q + half]
                    words[lane, j] |= value << 16 * half
            elif form.shape == "m8n16":
                for byte in range(4):
                    words[lane, j] |= matrix[g][4 * q + byte] << 8 * byte
            else:
                for part in range(2):  # columns g and g + 8 of rows 4 q to 4 q + 3
                    for byte in range(4):
                        value = matrix[4 * q + byte][g + 8 * part]
                        words[lane, 2 * j + part] |= value << 8 * byte
    return words


def row_at(form: LdMatrix, tile: Array, rows: Array, lane: int) -> Array:
    """Return the row that a lane names; of ``.s8.s4`` odd lanes name the second half of 16 bytes."""
    row: Array = tile[rows[lane]]
    return row[8 * (lane % 2) :][:8] if form.dtype == "s8.s4" else row


def elements(row: Array, dtype: str) -> list[int]:
    """Return the elements of the bytes of a row."""
    number = int.from_bytes(row.tobytes(), "little")
    if dtype == "s8.s4":
        return [(n - 16 * (n > 7)) & 0xFF for n in (number >> 4 * i & 15 for i in range(16))]
    if dtype == "b16":
        return [number >> 16 * i & 0xFFFF for i in range(8)]
    width = {"b8": 8, "b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}[dtype]
    return [number >> width * i & (1 << width) - 1 for i in range(16)]


def group(first: int, count: int) -> str:
    return "{" + ", ".join(f"r{first + i}" for i in range(count)) + "}"


# Every form always runs, and each shape and type in every space.
@pytest.mark.parametrize(
    ("space", "form"),
    one_of_each(
        product((".shared", ".shared::cta", ""), LDMATRIX),
        itemgetter(1),
        lambda case: (case[0], case[1].shape, case[1].dtype),
    ),
    ids=lambda part: getattr(part, "name", part),
)
def test_ldmatrix(bench: Any, form: LdMatrix, space: str) -> None:
    count = form.matrices * (2 if form.shape == "m16n16" else 1)
    name = form.name.replace(".shared", space)
    generic = "cvt.u64.u32 d8, r3; cvta.shared.u64 d8, d8;" if not space else ""
    address = "d8" if not space else "r3"
    setup = bench(len(form.name))
    halves = "and.b32 r30, r0, 1; mad.lo.u32 r3, r30, 8, r3;" * (form.dtype == "s8.s4")
    body = f"{halves} {generic} {name} {group(20, count)}, [{address}];"
    registers, _ = setup.run(body, targets_of(form))
    assert (registers == loaded(form, setup.tile, setup.rows)).all()


@pytest.mark.parametrize("space", [".shared", ""])
@pytest.mark.parametrize("form", STMATRIX, ids=lambda form: form.name)
def test_stmatrix(bench: Any, form: StMatrix, space: str) -> None:
    setup = bench(form.matrices)
    name = form.name.replace(".shared", space)
    generic = "cvt.u64.u32 d8, r3; cvta.shared.u64 d8, d8;" if not space else ""
    address = "d8" if not space else "r3"
    body = f"{generic} {name} [{address}], {group(10, form.matrices)};"
    _, tile = setup.run(body, targets_of(form))
    wanted = setup.tile.copy()
    for j in range(form.matrices):
        rows = setup.rows[8 * j : 8 * j + 8]
        for lane in range(32):
            g, q = lane // 4, lane % 4
            word = int(setup.registers[lane, j])
            for i in range(4 if form.dtype == "b8" else 2):
                if form.dtype == "b8":  # m16n8 as an accumulator's, stored column by column
                    m, n = g + 8 * (i >> 1), 2 * q + (i & 1)
                    wanted[rows[n], m] = word >> 8 * i & 0xFF
                    continue
                row, col = (2 * q + i, g) if form.trans else (g, 2 * q + i)
                element = word >> 16 * i & 0xFFFF
                wanted[rows[row], 2 * col : 2 * col + 2] = (element & 0xFF, element >> 8)
    assert (tile == wanted).all()


def test_stmatrix_then_ldmatrix_brings_all_back(bench: Any) -> None:
    for trans in ("", ".trans"):
        setup = bench(3)
        body = f"""
        stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [r3], {group(10, 4)};
        ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {group(20, 4)}, [r3];"""
        registers, _ = setup.run(body, "sm_90a")
        assert (registers == setup.registers).all()


def test_movmatrix(bench: Any) -> None:
    setup = bench()
    registers, _ = setup.run("movmatrix.sync.aligned.m8n8.trans.b16 r20, r10;", "sm_75")
    matrix = np.zeros((8, 8), np.uint32)
    for lane in range(32):
        for i in range(2):
            matrix[lane // 4, 2 * (lane % 4) + i] = setup.registers[lane, 0] >> 16 * i & 0xFFFF
    for lane in range(32):
        low, high = matrix[2 * (lane % 4), lane // 4], matrix[2 * (lane % 4) + 1, lane // 4]
        assert registers[lane, 0] == low | high << 16


def test_movmatrix_is_not_the_identity_but_its_own_inverse(bench: Any) -> None:
    setup = bench()
    once = "movmatrix.sync.aligned.m8n8.trans.b16 r20, r10;"
    again = once + "movmatrix.sync.aligned.m8n8.trans.b16 r21, r20;"
    registers, _ = setup.run(again, "sm_80")
    assert (registers[:, 0] != setup.registers[:, 0]).any()
    assert (registers[:, 1] == setup.registers[:, 0]).all()


@pytest.mark.parametrize(
    ("statement", "arch", "needed"),
    [
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [r3], {r10};", "sm_80", "sm_90"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {r20, r21}, [r3];", "sm_90a", "sm_100f"),
        ("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [r3], {r10};", "sm_90a", "sm_120f"),
        ("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {r20}, [r3];", "sm_120", "sm_120f"),
    ],
)
def test_a_target_without_it_refuses(bench: Any, statement: str, arch: str, needed: str) -> None:
    with pytest.raises(Unsupported, match=f"does not exist on {arch}") as caught:
        bench().run(statement, arch)
    assert needed in (caught.value.hint or "")


@pytest.mark.parametrize(
    "statement",
    [
        "ldmatrix.sync.aligned.m8n8.x1.shared.b8 {r20}, [r3];",
        "ldmatrix.sync.aligned.m8n8.x8.shared.b16 {r20}, [r3];",
        "ldmatrix.sync.aligned.m16n16.x1.shared.b8 {r20, r21}, [r3];",
        "ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {r20, r21}, [r3];",
        "stmatrix.sync.aligned.m16n8.x1.shared.b8 [r3], {r10};",
        "movmatrix.sync.aligned.m8n8.b16 r20, r10;",
        "ldmatrix.sync.aligned.m8n8.x1.global.b16 {r20}, [d3];",
    ],
)
def test_forms_that_only_a_parser_would_take(bench: Any, statement: str) -> None:
    with pytest.raises((PtxSyntaxError, Unsupported)):
        bench().run(statement, "sm_120a")


@pytest.mark.parametrize(("arch", "fails"), [("sm_75", True), ("sm_80", False)])
def test_turing_needs_every_address(bench: Any, arch: str, fails: bool) -> None:
    """PTX ISA, ldmatrix: for sm_75 all threads must hold valid addresses, also of x1 and x2."""
    body = """
    setp.lt.u32 p1, r0, 8;
    @!p1 mov.u32 r3, 0x7fffff0;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r20}, [r3];"""
    setup = bench()
    if fails:
        with pytest.raises(LaunchError, match="outside shared memory"):
            setup.run(body, arch)
    else:
        registers, _ = setup.run(body, arch)
        assert (registers[:, 0] == loaded(LDMATRIX[0], setup.tile, setup.rows)[:, 0]).all()


def test_turing_reads_the_same_rows(bench: Any) -> None:
    setup = bench()
    registers, _ = setup.run("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r20, r21}, [r3];", "sm_75")
    assert (registers == loaded(LDMATRIX[1], setup.tile, setup.rows)).all()


@pytest.mark.parametrize("name", ["stmatrix.sync.aligned.m8n8.x1.shared.b16 [r3], {r10};",
                                  "movmatrix.sync.aligned.m8n8.trans.b16 r20, r10;"])  # fmt: skip
def test_a_partial_warp_is_an_error(bench: Any, name: str) -> None:
    with pytest.raises(LaunchError, match="needs all 32 threads of the warp, 5 are active"):
        bench().run(f"setp.lt.u32 p1, r0, 5; @!p1 exit; {name}", "sm_90a")
    waiting = (
        "deadlock: 5 threads wait for the rest of their warp .* 27 threads wait at the barrier"
    )
    with pytest.raises(LaunchError, match=waiting):
        bench().run(f"setp.lt.u32 p1, r0, 5; @p1 {name}", "sm_90a")


def test_stmatrix_rows_are_aligned(bench: Any) -> None:
    with pytest.raises(LaunchError, match=r"stmatrix row write.* is misaligned"):
        bench().run(
            "add.u32 r3, r3, 8; stmatrix.sync.aligned.m8n8.x1.shared.b16 [r3], {r10};", "sm_90a"
        )
