"""Products of a warpgroup give the same bits as what ptxas makes of them, lifted: random registers and shared memory."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from ptxlab import open_device
from ptxlab.machine.image import read_image
from ptxlab.machine.lift import lift
from ptxlab.machine.lift.operations import products
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.wgmma import THREADS, TRANSPOSABLE, WGMMA
from ptxlab.syntax import parse
from ptxlab.syntax.tree import PtxModule
from ptxlab.toolchain import link_ptx
from tests.together import thorough

ARCH, N = "sm_90a", 16
SUMS = N // 2
SHARED_BYTES = 8192
DESCRIPTOR = 8 << 16 | 16 << 32
"""Cells of 8 rows of 16 bytes: the next along k 128 bytes further, the next along m or n 256."""
METADATA = 0x4444EEEE
"""Pairs of places that are in order, of which sparse matrices need some."""
SMALL = 0xBFBFBFBF
"""Without the highest bit of an exponent numbers of all types are small, and none is NaN."""


def _lines(form: MatrixInstruction, draw: random.Random) -> str:
    """Return an instruction with signs and transpositions by chance, and what stores its sums."""
    letter = {"f32": "f", "f16": "r"}.get(form.d_type, "n")
    sums = [f"{letter}{n}" for n in range(SUMS // 2 if form.d_type == "f16" else SUMS)]
    in_registers, halves = form.variant == "rs", form.a_type in TRANSPOSABLE
    parts = [f"{{{', '.join(sums)}}}", "{a0, a1, a2, a3}" if in_registers else "a", "b"]
    if form.metadata is not None:
        parts += ["e", str(draw.randrange(2) if halves or form.a_type == "tf32" else 0)]
    parts.append(draw.choice(["p", "q"]))
    if letter != "n":
        parts += [draw.choice(["1", "-1"]) for _ in range(2)]
    if halves:
        parts += [draw.choice("01") for _ in range(1 if in_registers else 2)]
    return f"""{" ".join(f"mov.b32 {name}, s{n};" for n, name in enumerate(sums))}
    wgmma.fence.sync.aligned; {form.name} {", ".join(parts)};
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    {" ".join(f"st.global.b32 [to + {4 * n}], {name};" for n, name in enumerate(sums))}
    add.u64 to, to, {4 * SUMS};"""


def program(forms: Sequence[MatrixInstruction]) -> str:
    draw = random.Random(3)
    lines = "\n    ".join(_lines(form, draw) for form in forms)
    words = SHARED_BYTES // THREADS // 16
    return f"""\
.version 8.4
.target {ARCH}
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 left)
.reqntid {THREADS}
{{
    .shared .align 128 .b8 tile[{SHARED_BYTES}];
    .reg .b32 t, at, e, a<4>, s<{SUMS}>, n<{SUMS}>, f<{SUMS}>, r<{SUMS}>; .reg .b64 from, to, a, b, x; .reg .pred p, q;
    ld.param.u64 from, [given]; ld.param.u64 to, [left]; mov.u32 t, %tid.x;
    mad.wide.u32 from, t, {16 * (words + 3)}, from; mad.wide.u32 to, t, {4 * SUMS * len(forms)}, to;
    mov.u32 at, tile; mad.lo.u32 at, t, {16 * words}, at;
    {" ".join(f"ld.global.v4.b32 {{s0, s1, s2, s3}}, [from + {16 * n}]; st.shared.v4.b32 [at + {16 * n}], {{s0, s1, s2, s3}};" for n in range(words))}
    ld.global.v4.b32 {{a0, a1, a2, a3}}, [from + {16 * words}];
    ld.global.v4.b32 {{s0, s1, s2, s3}}, [from + {16 * words + 16}]; ld.global.v4.b32 {{s4, s5, s6, s7}}, [from + {16 * words + 32}];
    fence.proxy.async; bar.sync 0;
    mov.u32 at, tile; shr.u32 at, at, 4; cvt.u64.u32 a, at; mov.b64 x, {DESCRIPTOR}; or.b64 a, a, x; add.u64 b, a, {SHARED_BYTES // 32};
    mov.b32 e, {METADATA}; setp.ne.u32 p, at, -1; setp.eq.u32 q, at, -1;
    {lines}
    ret;
}}
"""


def different(forms: Sequence[MatrixInstruction]) -> list[str]:
    """Return the forms whose results differ."""
    text = program(forms)
    tree, image = parse(text), read_image(link_ptx(text, arch=ARCH).image, ARCH)
    wanted, actual = (
        results(each, len(forms)) for each in (tree, lift(image, ["k"], "k.sass", tree))
    )
    assert all(np.unique(wanted[:, number]).size > 16 for number in range(len(forms)))
    return [
        f"{form.name} {form.variant}"
        for n, form in enumerate(forms)
        if (wanted[:, n] != actual[:, n]).any()
    ]


def results(module: PtxModule, forms: int) -> np.ndarray:
    device = open_device("emulator", arch=ARCH)
    words = (SHARED_BYTES // THREADS + 48) // 4 * THREADS
    random_bits = np.random.default_rng(5).integers(0, 2**32, words, np.uint32)
    given, left = device.upload(random_bits & SMALL), device.zeros((THREADS, forms, SUMS), "u32")
    device.load(module).kernel("k").launch(1, THREADS, [given, left])
    return left.numpy()


FORMS = [form for form in WGMMA if form.n == N]


@pytest.mark.parametrize("kept", [0, *thorough(range(1, 6))])
def test_both_engines_agree(kept: int) -> None:
    assert different(FORMS[kept::6]) == []


def test_another_product_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    [form] = [f for f in FORMS if f.variant == "ss" and f.name.endswith("k32.f32.e4m3.e5m2")]
    assert different([form]) == []
    monkeypatch.setitem(products._TYPES, "E5M2", "e4m3")
    assert different([form]) == [f"{form.name} ss"]
