"""Hazards in machine code: none in what ptxas makes, and in what is broken those of some path, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.device.loading import load_assembled
from ptxlab.isa.targets import TARGETS
from ptxlab.machine import uses
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.control import Control
from ptxlab.machine.decode import decode
from ptxlab.machine.flow import NotFollowed
from ptxlab.machine.hazards import Hazard, HazardCheck
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.latencies import Latencies
from ptxlab.toolchain import link_ptx
from tests.machine.changed_bits import flips, reuses, with_control
from tests.machine.paths import Found, a_path, every_path, hazards
from tests.machine.test_operations import instruction

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
OF_PATHS, OF_LOOPS = "sm_86", "sm_90a"
"""Whose latencies the paths of two tests always have: Ampere's and Hopper's."""
Code = Sequence[DecodedInstruction]

MIXED = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry mixed(.param .u64 data, .param .u32 limit)
{
    .reg .b32 i, n, at, x<8>;
    .reg .b64 p, q;
    .reg .f64 d;
    .reg .pred few, odd;
    .shared .align 16 .b32 tile[512];
    ld.param.u64 p, [data]; ld.param.u32 n, [limit];
    mov.u32 i, %tid.x; mad.wide.u32 q, i, 16, p; mov.u32 at, tile;
    ld.global.v4.b32 {x0, x1, x2, x3}, [q];
    setp.ge.u32 few, i, n;
    ex2.approx.ftz.f32 x4, x0;
    fma.rn.f32 x5, x4, x1, x2;
    mad.lo.u32 at, i, 16, at;
    @few bra.uni ELSE;
    st.shared.v4.b32 [at], {x0, x1, x2, x5};
    bar.sync 1, 32;
    ld.shared.v2.b32 {x6, x7}, [at];
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {x0, x1, x2, x3}, [at];
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {x4, x5, x6, x7}, {x0, x1, x2, x3}, {x0, x1}, {x4, x5, x6, x7};
    shfl.sync.bfly.b32 x0, x6, 4, 31, -1;
    cvt.f64.f32 d, x0; fma.rn.f64 d, d, d, d; cvt.rn.f32.f64 x1, d;
    bra.uni END;
ELSE:
    and.b32 x6, x5, 1; setp.eq.u32 odd, x6, 0;
    @odd atom.global.add.u32 x1, [q], x5;
    @!odd mov.u32 x1, x3;
    popc.b32 x7, x1; mul.wide.u32 q, x7, 48; add.u64 q, q, p;
    ld.global.b32 x0, [q];
    setp.gt.u32 few, x6, 3;
    @few ld.global.b32 x0, [q+4];
END:
    st.global.v2.b32 [q+8], {x0, x1};
    st.global.v2.b32 [q+64], {x6, x7};
    ret;
}
"""


@cache
def kernels(file: str, arch: str) -> list[list[DecodedInstruction]]:
    assembly = Assembly(*load_assembled(resources.path(file), TARGETS[arch]))
    return [
        decode(assembly.cubin, assembly.functions, function.name)
        for function in assembly.functions.values()
        if function.kernel
    ]


@cache
def mixed(arch: str) -> list[DecodedInstruction]:
    cubin = link_ptx(MIXED, arch=arch)
    return decode(cubin, Assembly(None, cubin).functions, "mixed")


def latencies(arch: str) -> Latencies:
    return Latencies(TARGETS[arch].capability)


def check(code: Code, arch: str) -> list[Hazard]:
    return HazardCheck(code, latencies(arch)).run()


def numbers(every: Sequence[Hazard]) -> set[Found]:
    return {(hazard.kind, hazard.earlier.number, hazard.later.number) for hazard in every}


FILES = [
    ("kernels/naive.cu", ARCHS), ("kernels/block_tiled_vectorized.cu", ARCHS), ("kernels/warp_tiled.cu", ARCHS),
    ("kernels/tensor_core.cu", ARCHS), ("kernels/tiled_register.cu", ARCHS), ("kernels/thread_tiled.cu", ARCHS),
    ("ptx/fragment_mappers.ptx", ARCHS), ("ptx/gemm_m16n8k16_bf16_f32.ptx", ARCHS), ("ptx/ldmatrix.ptx", ARCHS),
    ("ptx/mbarrier.ptx", ARCHS[3:]), ("ptx/cluster_exchange.ptx", ARCHS[3:]),
    ("kernels/wgmma_specialised.cu", ("sm_90a",)), ("kernels/wgmma_persistent.cu", ("sm_90a",)),
    ("kernels/tcgen05_pair.cu", ("sm_100a",)), ("kernels/tcgen05_persistent.cu", ("sm_100a",)),
    ("kernels/block_scaled.cu", ("sm_100a",)), ("ptx/tma_load_swizzle.ptx", ("sm_90a",)),
]  # fmt: skip
ALWAYS = {
    ("kernels/naive.cu", "sm_86"), ("kernels/tensor_core.cu", "sm_80"), ("ptx/ldmatrix.ptx", "sm_89"),
    ("ptx/gemm_m16n8k16_bf16_f32.ptx", "sm_120a"), ("kernels/wgmma_specialised.cu", "sm_90a"),
    ("kernels/tcgen05_pair.cu", "sm_100a"), ("ptx/mbarrier.ptx", "sm_90a"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "arch"),
    [
        pytest.param(file, arch, marks=() if (file, arch) in ALWAYS else (pytest.mark.thorough,))
        for file, archs in FILES
        for arch in archs
    ],
)
def test_what_ptxas_makes_has_no_hazard(file: str, arch: str) -> None:
    for code in kernels(file, arch):
        assert check(code, arch) == []


@pytest.mark.parametrize(
    "arch", [pytest.param(a, marks=[pytest.mark.thorough] * (a != OF_PATHS)) for a in ARCHS]
)
def test_a_changed_bit_is_found_where_a_path_suffers_and_nowhere_else(arch: str) -> None:
    """Every wait, scoreboard and cycle of stall is taken away, and every reuse flag changed, one at a time; all paths are walked."""
    code = mixed(arch)
    harmful = harmless = 0
    for i in code:
        for control in (*flips(i.control), *reuses(i.control)):
            broken = with_control(code, i.number, control)
            walked = set().union(
                *(hazards(path, latencies(arch)) for path in every_path(broken, 20))
            )
            assert numbers(check(broken, arch)) == walked, (i.sass.text, control)
            harmful, harmless = harmful + bool(walked), harmless + (not walked)
    assert min(harmful, harmless) > 30


RARE = """\
.version 8.7
.target sm_100a
.address_size 64
.visible .entry rare(.param .u64 data)
{
    .reg .b32 r<8>, at; .reg .f32 f<4>; .reg .b64 q, d<4>; .reg .f64 g<12>; .shared .b64 barrier;
    ld.param.u64 q, [data]; mov.u32 at, barrier;
    ld.global.v2.b64 {d0, d1}, [q]; ld.global.v4.b32 {r0, r1, r2, r3}, [q + 16];
    ld.global.v2.f64 {g0, g1}, [q + 32]; ld.global.v2.f64 {g2, g3}, [q + 48];
    fma.rn.f32x2 d2, d0, d1, d0; add.rn.f32x2 d2, d2, d1; mov.b64 {f0, f1}, d2;
    set.gt.f32.f32 f2, f0, f1; fma.rn.f32 f3, f2, f1, f0;
    dp4a.u32.u32 r4, r0, r1, r2; cvt.sat.s8.s32 r5, r4; set.lt.f16x2.f16x2 r6, r5, r3;
    mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {g4, g5, g6, g7}, {g0, g1, g2, g3}, {g0, g1}, {g0, g1, g2, g3};
    mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {g4, g5, g6, g7}, {g0, g1, g2, g3}, {g0, g1}, {g4, g5, g6, g7};
    cp.async.bulk.prefetch.L2.global [q], 256; add.u64 q, q, 64;
    mad.lo.u32 r1, r0, 8, at; mbarrier.arrive.noComplete.shared.b64 d3, [r1], 2; mbarrier.pending_count.b64 r1, d3;
    st.global.b32 [q + 32], r1;
    st.global.v2.b32 [q], {f3, r6}; st.global.v2.f64 [q + 16], {g4, g7};
    ret;
}
"""


def test_a_changed_bit_of_what_is_rare_is_found() -> None:
    """As that of what is common is: no finding where nothing is changed, and all that its one path suffers."""
    cubin = link_ptx(RARE, arch="sm_100a")
    code = decode(cubin, Assembly(None, cubin).functions, "rare")
    rare = {"FFMA2", "FADD2", "FSET", "IDP", "I2I", "HSET2", "DMMA", "UBLKPF", "RPCMOV"}
    assert rare <= {i.sass.opcode for i in code}
    assert all(i.row for i in code)
    assert check(code, "sm_100a") == []
    noticed = set()
    for i in (i for i in code if i.sass.opcode in rare):
        for control in flips(i.control):
            broken = with_control(code, i.number, control)
            walked = hazards(broken, latencies("sm_100a"))
            assert numbers(check(broken, "sm_100a")) == walked, (i.sass.text, control)
            if walked:
                noticed.add(i.sass.opcode)
    assert {"FFMA2", "IDP", "HSET2", "DMMA", "RPCMOV"} <= noticed


@pytest.mark.parametrize(
    "arch", [pytest.param(a, marks=[pytest.mark.thorough] * (a != OF_LOOPS)) for a in ARCHS]
)
def test_what_any_path_through_loops_suffers_is_found(arch: str) -> None:
    """Waits, scoreboards and stalls are taken away at random, and paths are walked by chance."""
    random = np.random.default_rng(1)
    (code,) = kernels("kernels/naive.cu", arch)
    suffered = 0
    for _ in range(12):
        broken = list(code)
        for number in random.integers(0, len(code), 12).tolist():
            control = code[number].control
            changes = [control, *flips(control), *reuses(control)]
            broken[number] = replace(code[number], control=changes[random.integers(len(changes))])
        walked = hazards(a_path(broken, random, 150), latencies(arch))
        assert walked <= numbers(check(broken, arch))
        suffered += bool(walked)
    assert suffered


def test_a_hazard_across_the_back_edge_of_a_loop_is_found() -> None:
    """What a turn leaves in flight meets the next one: each load is waited for, but by its own turn."""
    (code,) = kernels("kernels/naive.cu", "sm_86")
    assert any(
        hazard.earlier.number > hazard.later.number
        for i in reversed(code)  # the loops are at the end
        for control in flips(i.control)
        for hazard in check(with_control(code, i.number, control), "sm_86")
    )


IN_ORDER = {
    # What holds no scoreboard, a later one that does, what waits for it and uses both; one that says nothing instead.
    "shuffles": ("LDSM.16.MT88.4 R4, [R1]", "SHFL.BFLY PT, R8, R9, 0x1, 0x1f", "IADD3 R10, R4, R8, RZ", "MUFU.EX2 R8, R9"),
    "reductions": ("REDUX UR4, R2", "REDUX.MIN UR5, R2", "IADD3 R3, RZ, UR4, UR5", "S2UR UR5, SR_CTAID.X"),
    "doubles": ("DMUL R4, R2, R12", "DMUL R8, R2, R14", "FADD R4, R8, R9", "MUFU.EX2 R8, R9"),
    "halves of Tensor Memory": (
        "LDTM.16dp32bit_t0_t15.x4 R4, tmem[UR4]", "LDTM.16dp32bit_t16_t31.x4 R4, tmem[UR4+0x4]", "FADD R8, R4, R5",
        "MUFU.EX2 R8, R9",
    ),
    "stores there": ("STTM.x4 tmem[UR4], R4", "LDTM.x4 R4, tmem[UR5]", "MOV R5, R3", "MUFU.EX2 R8, R9"),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_ORDER)
def test_the_scoreboard_of_a_later_one_tells_of_those_before_whose_results_come_in_order(
    name: str,
) -> None:
    """As LeetCUDA's gelu and attention have it on sm_120a, Triton's attention on sm_80 and sm_100a, and cuda-samples."""

    def found(*texts: str) -> set[str]:
        bits = Control(6, None, None, (), ())
        held = (bits, replace(bits, writes=0), replace(bits, waits=(0,)), bits)
        code = [
            replace(instruction(text, number), control=control)
            for number, (text, control) in enumerate(zip((*texts, "EXIT"), held, strict=True))
        ]
        kinds: set[str] = {hazard.kind for hazard in check(code, "sm_120a")}
        assert kinds == {kind for kind, *_ in hazards(code, latencies("sm_120a"))}
        return kinds

    first, later, user, other = IN_ORDER[name]
    assert not found(first, later, user)
    assert found(first, other, user)


@pytest.mark.parametrize(("arch", "cycles"), [("sm_80", 6), ("sm_90a", 8)])
def test_half_of_an_f64_that_a_product_of_halves_moves_there(arch: str, cycles: int) -> None:
    """HFMA2.MMA moves constants, as in the division of llm.c's softmax_forward_online_kernel1: as late as ptxas has it."""
    for stall, missing in ((cycles, []), (cycles - 1, [1])):
        code = [
            replace(instruction(text, number), control=Control(stall, 0, None, (), ()))
            for number, text in enumerate(
                ("HFMA2.MMA R4, -RZ, RZ, 0, 0", "DFMA R6, R4, -R22, 1", "EXIT")
            )
        ]
        code[0] = replace(code[0], control=Control(stall, None, None, (), ()))
        assert [hazard.missing for hazard in check(code, arch)] == missing


MEETING = (
    ("IADD3 R0, R1, R2, RZ", 1), ("@P0 BRA `(.L_1)", 1), ("MOV R5, R6", 8), ("FADD R4, R0, R0", 5), ("EXIT", 5),
)  # fmt: skip


def test_stalls_are_counted_along_the_shortest_way() -> None:
    """Whoever branches past the move comes three cycles too early, and whoever does not comes late enough."""
    code = [
        replace(instruction(text, number, {".L_1": 3}), control=Control(stall, None, None, (), ()))
        for number, (text, stall) in enumerate(MEETING)
    ]
    (hazard,) = check(code, "sm_86")
    assert (hazard.kind, hazard.missing) == ("RAW", 3)
    assert (hazard.earlier.number, hazard.later.number) == (0, 3)
    assert uses.names(hazard.bits) == ["R0"]


@pytest.mark.parametrize(
    ("between", "kinds"),
    [("BAR.SYNC 0x0", []), ("BAR.ARV 0x0, 0x40", ["WAR"]), ("@P0 BAR.SYNC 0x0", ["WAR"])],
)
def test_a_barrier_comes_behind_what_shared_memory_was_asked_for(
    between: str, kinds: list[str]
) -> None:
    """As llm.c's softmax_autoregressive_backward_kernel6 has it on sm_80: the store holds no scoreboard."""
    texts = ("STS [R1], R0", between, "MOV R0, R2", "EXIT")
    code = [
        replace(instruction(text, number), control=Control(6, None, None, (), ()))
        for number, text in enumerate(texts)
    ]
    assert [hazard.kind for hazard in check(code, "sm_80")] == kinds
    assert {kind for kind, *_ in hazards(code, latencies("sm_80"))} == {*kinds}


@pytest.mark.parametrize(
    ("wait", "kinds"),
    [
        ("DEPBAR {5,4,3,2,1,0}", []),
        ("DEPBAR {2}", []),
        ("DEPBAR {3,1}", ["RAW"]),
        ("DEPBAR.LE SB2, 0x0", []),
        ("DEPBAR.LE SB2, 0x1", ["RAW"]),
        ("DEPBAR.LE SB0, 0x1, {4,2}", []),
    ],
)
def test_an_instruction_waits_for_scoreboards_that_it_names(wait: str, kinds: list[str]) -> None:
    """As CuTe DSL's compiler has it on sm_100a: for all of a set."""
    texts = ("LDG.E R0, [R2.64]", wait, "MOV R1, R0", "EXIT")
    bits = Control(6, None, None, (), ())
    code = [replace(instruction(text, number), control=bits) for number, text in enumerate(texts)]
    code[0] = replace(code[0], control=replace(bits, writes=2))
    assert [hazard.kind for hazard in check(code, "sm_100a")] == kinds


@pytest.mark.parametrize(
    ("later", "kinds"), [("LDL.LU.64 R2, [R1+0x8]", []), ("MOV R3, R0", ["WAR"])]
)
def test_what_is_loaded_of_local_memory_comes_behind_what_memory_reads(
    later: str, kinds: list[str]
) -> None:
    """As flash-linear-attention's chunk_bwd_kernel_dv has it on sm_90a, where registers are spilled."""
    bits = Control(6, None, None, (), ())
    code = [
        replace(instruction(text, number), control=bits)
        for number, text in enumerate(("LDGSTS.E.BYPASS.128 [R4], [R2.64]", later, "EXIT"))
    ]
    code[0] = replace(code[0], control=replace(bits, reads=0))
    assert [hazard.kind for hazard in check(code, "sm_90a")] == kinds
    assert {kind for kind, *_ in hazards(code, latencies("sm_90a"))} == {*kinds}


@pytest.mark.parametrize(
    ("store", "kinds"), [("STS [R14.X4+0x10], R15", []), ("STG.E [R2.64], R15", []), ("MUFU.EX2 R8, R15", ["WAR"])]
)  # fmt: skip
def test_a_shuffle_gives_nothing_before_what_was_asked_first_has_read(
    store: str, kinds: list[str]
) -> None:
    """As CUB's scan has it on sm_80, where the store holds no scoreboard."""
    texts = (store, "SHFL.UP PT, R15, R15, 0x1, RZ", "EXIT")
    code = [
        replace(instruction(text, number), control=Control(4, None, None, (), ()))
        for number, text in enumerate(texts)
    ]
    assert [hazard.kind for hazard in check(code, "sm_80")] == kinds
    assert {kind for kind, *_ in hazards(code, latencies("sm_80"))} == {*kinds}


@pytest.mark.parametrize(
    ("told", "writes", "kinds"),
    [
        ("UTCHMMA gdesc[UR6], gdesc[UR8], tmem[UR4], tmem[UR10], idesc[UR11], UP1", "UR4", ["WAR"]),
        ("UTCHMMA gdesc[UR6], gdesc[UR8], tmem[UR4], tmem[UR10], idesc[UR11], UP1", "UP1", []),
        ("UGETNEXTWORKID.BROADCAST [UR4], [UR5]", "UR4", []),
    ],
)
def test_what_one_thread_has_done_reads_its_predicate_at_once(
    told: str, writes: str, kinds: list[str]
) -> None:
    """As CuTe DSL's tutorials fp16_gemm_3 and 5 have it; who asks for the next work has read all then."""
    after = "UMOV UR4, 0x1" if writes == "UR4" else "UISETP.NE.U32.AND UP1, UPT, UR46, 0x6, UPT"
    code = [
        replace(instruction(text, number), control=Control(12, None, None, (), ()))
        for number, text in enumerate((told, after, "EXIT"))
    ]
    code[0] = replace(code[0], control=Control(12, None, 1 if "UTC" in told else None, (), ()))
    assert [hazard.kind for hazard in check(code, "sm_100a")] == kinds


KEPT = (
    ("IMAD R0, R0, R2, R4", 5),
    ("IADD3 R6, R4, R2, RZ", 5),
    ("IADD3 R7, R0, R2, RZ", 5),
    ("EXIT", 5),
)


def test_what_is_kept_of_a_register_that_is_written_is_found() -> None:
    """The product writes R0, and what it keeps of it in slot 0 is replaced by the R4 of the sum, or else is read."""

    def found(slot: int, texts: Sequence[tuple[str, int]]) -> list[Hazard]:
        code = [
            replace(instruction(text, number), control=Control(stall, None, None, (), ()))
            for number, (text, stall) in enumerate(texts)
        ]
        code[0] = replace(code[0], control=replace(code[0].control, reuse=(slot,)))
        return check(code, "sm_86")

    assert found(0, KEPT) == found(1, KEPT) == found(2, KEPT) == []
    (hazard,) = found(0, (KEPT[0], *KEPT[2:]))
    assert (hazard.kind, hazard.earlier.number, hazard.later.number) == ("REUSE", 0, 1)
    assert uses.names(hazard.bits) == ["R0"]


def test_paths_that_nobody_knows_are_not_followed() -> None:
    code = mixed("sm_86")
    unknown = replace(instruction("BRX R4 -0x40", 3, {}), control=code[3].control)
    with pytest.raises(NotFollowed, match="is not told"):
        check([*code[:3], unknown, *code[4:]], "sm_86")


WIDE = """\
.version 9.0
.target sm_100a
.address_size 64
.visible .entry wide(.param .u64 data)
{
    .reg .b32 a, b, c, d, e, f, g, h; .reg .b64 x;
    ld.param.u64 x, [data]; cvta.to.global.u64 x, x;
    ld.global.v8.b32 {a, b, c, d, e, f, g, h}, [x];
    st.global.b32 [x + 32], b; st.global.b32 [x + 64], g;
    ret;
}
"""


def test_both_halves_of_a_load_of_256_bits_are_waited_for() -> None:
    """Of eight words the second and the seventh are stored: without waits both stores come too early."""
    cubin = link_ptx(WIDE, arch="sm_100a")
    code = decode(cubin, Assembly(None, cubin).functions, "wide")
    assert check(code, "sm_100a") == []
    hasty = [replace(i, control=replace(i.control, waits=())) for i in code]
    stores = {i.number for i in code if i.sass.opcode == "STG"}
    early = [h for h in check(hasty, "sm_100a") if h.earlier.sass.opcode == "LDG"]
    assert {(hazard.kind, hazard.later.number) for hazard in early} == {("RAW", n) for n in stores}
    assert len(stores) == 2
