"""Blackwell's instructions about Tensor Memory become those of PTX again that ptxas made them of."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from ptxlab.device.loading import load_assembled
from ptxlab.isa.targets import target_named
from ptxlab.machine.image import read_image
from ptxlab.machine.lift import lift
from ptxlab.main import main
from ptxlab.syntax.functions import statements
from ptxlab.syntax.tree import Instruction

DENSE = "[t], a, b, i, p"
FORMS = [
    ("tcgen05.mma.cta_group::1.kind::f16", DENSE),
    ("tcgen05.mma.cta_group::1.kind::f16", "[t], a, b, i, {r0, r1, r2, r3}, p"),
    ("tcgen05.mma.cta_group::1.kind::f16", "[t], [s], b, i, p, 3"),
    ("tcgen05.mma.cta_group::1.kind::tf32", DENSE),
    ("tcgen05.mma.cta_group::1.kind::f8f6f4.collector::a::fill", DENSE),
    ("tcgen05.mma.cta_group::1.kind::f8f6f4.collector::a::use", DENSE),
    ("tcgen05.mma.cta_group::1.kind::i8.collector::a::lastuse", DENSE),
    ("tcgen05.mma.cta_group::1.kind::f16.ashift", "[t], [s], b, i, p"),
    ("tcgen05.mma.sp.cta_group::1.kind::f16", "[t], a, b, [u], i, p"),
    ("tcgen05.mma.ws.cta_group::1.kind::f16.collector::b1::fill", DENSE),
    ("tcgen05.mma.ws.cta_group::1.kind::f8f6f4.collector::b3::use", DENSE),
    ("tcgen05.mma.ws.cta_group::1.kind::tf32.collector::b0::lastuse", "[t], [s], b, i, p, x"),
    ("tcgen05.mma.ws.sp.cta_group::1.kind::i8", "[t], a, b, [u], i, p"),
    ("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X", "[t], a, b, i, [s], [u], p"),
    ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X", "[t], a, b, i, [s], [u], p"),
    ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X", "[t], a, b, i, [s], [u], p"),
    ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64", "[s]"),
    ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64", "[s], m"),
    *(
        (f"tcgen05.cp.cta_group::1.{shape}", "[t], a")
        for shape in (
            "128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23",
            "32x128b.warpx4", "128x256b.b8x16.b6x16_p32", "128x256b.b8x16.b4x16_p64",
        )
    ),
    ("tcgen05.shift.cta_group::1.down", "[t]"),
    *(
        (f"tcgen05.st.sync.aligned.{shape}.b32", "[t], {r0, r1, r2, r3}")
        for shape in ("32x32b.x4", "16x64b.x4", "16x128b.x2", "16x256b.x1")
    ),
    *(
        (f"tcgen05.ld.sync.aligned.{shape}.b32", f"{{r0, r1, r2, r3}}, [t]; st.global.v4.b32 [x + {at}], {{r0, r1, r2, r3}}")
        for at, shape in ((16, "32x32b.x4"), (32, "16x64b.x4"), (48, "16x128b.x2"), (64, "16x256b.x1"))
    ),
    ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "[s], [x], 1024, [u]"),
    ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster", "[s], [x], 1024, [u], m"),
    ("cp.async.bulk.global.shared::cta.bulk_group", "[x], [s], 1024"),
    ("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", "[s], [t], 1024, [u]"),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2", "[s], [x, {i, t}], [u]"),
    ("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128", "[s], [u]"),
    (
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128",
        "[s], [u]",
    ),
    ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32", "[s], t, [u]"),
]  # fmt: skip
PROGRAM = """\
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 px, .param .u32 pt, .param .u32 pi, .param .u64 pa, .param .u64 pb, .param .u32 ps)
{{
    .reg .b32 t, i, s, u, r<4>; .reg .b64 a, b, x; .reg .pred p; .reg .b16 m;
    ld.param.u32 t, [pt]; ld.param.u32 i, [pi]; ld.param.u64 a, [pa]; ld.param.u64 b, [pb];
    ld.param.u64 x, [px]; ld.param.u32 s, [ps]; add.u32 u, s, 64; setp.ne.u32 p, s, 0; cvt.u16.u32 m, s;
    ld.global.v4.b32 {{r0, r1, r2, r3}}, [x];
    {lines}
    ret;
}}
"""


def lifted(*forms: tuple[str, str]) -> list[str]:
    """Return the names of the instructions that the machine code of some forms became."""
    text = PROGRAM.format(lines="\n    ".join(f"{name} {operands};" for name, operands in forms))
    target = target_named("sm_100a")
    module, cubin = load_assembled(text, target)
    [function] = lift(read_image(cubin.image, cubin.arch), ["k"], "k.sass", module).entries
    return [each.name for each in statements(function) if isinstance(each, Instruction)]


def test_every_form_comes_back() -> None:
    names = lifted(*FORMS)
    assert [name for name, _ in FORMS if name not in names] == []


def test_a_form_that_is_not_there_does_not_come_back() -> None:
    names = lifted(*(form for form in FORMS if "kind" not in form[0]))
    assert not any("kind::" in name for name in names)


def test_halves_of_the_lanes_load_and_store_rows_of_their_own(tmp_path: Path) -> None:
    """Of one load or store of PTX two become, each for 16 lanes, and both engines leave what was there."""
    shipped = Path("ptx/tcgen05_alloc_ld_st.ptx").read_text(encoding="utf-8")
    for row in ("4", "0x100004"):
        shipped = re.sub(
            rf"16x256b\.x1\.b32 (\{{.*?\}}), \[memory \+ {row}\]",
            rf"16x32bx2.x4.b32 \1, [memory + {row}], 4",
            shipped,
        )
    stored = "tcgen05.st.sync.aligned.16x32bx2.x4.b32 [memory + 4], 4, {x4, x0, x1, x5};"
    shipped = shipped.replace("tcgen05.wait::st", f"{stored} tcgen05.wait::st")
    assert shipped.count("16x32bx2.x4") == 3
    file = tmp_path / "halves.ptx"
    file.write_text(shipped, encoding="utf-8")
    left = []
    for engine in ("auto", "sass"):
        save = tmp_path / f"{engine}.npz"
        words = ["run", str(file), "--device", "emulator", "--arch", "sm_100a"]
        assert main([*words, "--engine", engine, "--save", str(save)]) == 0
        left.append(np.load(save)["out"].tolist())
    assert left[0] == left[1]
    assert len(np.unique(left[0])) > 100


def test_what_machine_code_notes_of_columns_is_its_own_matter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is in shared memory that is reserved, which nobody writes first, and threads of a warp change it together."""
    file = "ptx/tcgen05_alloc_ld_st.ptx"
    assert main(["check", file, "--arch", "sm_100a", "--engine", "sass", "--strict"]) == 0
    assert capsys.readouterr().out.startswith("clean")
