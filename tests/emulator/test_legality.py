"""What a target or a version does not have, and what is not emulated, is refused by name and line."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from ptxlab.emulator.prepare.forms import REFUSED, opcodes, reason
from ptxlab.emulator.prepare.preparation import prepare
from ptxlab.emulator.prepare.program import Program
from ptxlab.errors import PtxSyntaxError, ToolchainError, Unsupported
from ptxlab.fragments.probe_kernel import collection, statement
from ptxlab.isa.targets import TARGETS, ptx_since
from ptxlab.matrix.catalog import forms
from ptxlab.syntax import parse
from ptxlab.toolchain import link_ptx
from tests.together import in_one_test

LINE = 8
VERSIONS = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "certify.py"))["VERSIONS"]


def kernel(instruction: str, target: str, version: str = "9.1") -> str:
    return f"""
.version {version}
.target {target}
.visible .entry k(.param .b64 p)
{{
    .reg .pred p<9>; .reg .b8 c<9>; .reg .b16 h<9>; .reg .b32 r<9>; .reg .b64 d<9>;
    .reg .b128 q<9>;
    {instruction}
    ret;
}}
"""


def counted(program: Program, kernel: str = "k") -> int:
    """Return how many instructions came out of a kernel that was taken, ``ret`` among them."""
    return sum(len(block.instructions) for block in program.functions[kernel].blocks)


def attempt(instruction: str, target: str, version: str = "9.1") -> Program:
    return prepare(parse(kernel(instruction, target, version)), TARGETS[target], "k")


@in_one_test(
    ("instruction", "without", "within", "hint"),
    [
        ("add.bf16 h1, h2, h3;", "sm_89", "sm_90", "sm_90 or newer"),
        ("min.NaN.f32 r1, r2, r3;", "sm_75", "sm_80", "sm_80 or newer"),
        ("min.f32 r1, r2, r3, r4;", "sm_90a", "sm_100", "sm_100 or newer"),
        ("max.xorsign.abs.f16 h1, h2, h3;", "sm_80", "sm_86", "sm_86 or newer"),
        ("fma.rn.f32x2 d1, d2, d3, d4;", "sm_90a", "sm_120", "sm_100 or newer"),
        ("cvt.rn.satfinite.e4m3x2.f32 h1, r1, r2;", "sm_86", "sm_89", "sm_89 or newer"),
        ("cvt.rn.satfinite.e2m1x2.f32 c1, r1, r2;", "sm_100", "sm_120a", "family"),
        ("cvt.rs.bf16x2.f32 r0, r1, r2, r3;", "sm_120a", "sm_103a", "sm_100f"),
        ("redux.sync.add.u32 r1, r2, r3;", "sm_75", "sm_80", "sm_80 or newer"),
        ("cp.async.wait_all;", "sm_75", "sm_80", "sm_80 or newer"),
        ("atom.add.noftz.bf16 h1, [d1], h2;", "sm_89", "sm_90", "sm_90 or newer"),
        ("fence.acq_rel.cluster;", "sm_89", "sm_90", "sm_90 or newer"),
        ("prefetch.global.L2::evict_last [d1];", "sm_75", "sm_80", "sm_80 or newer"),
        (
            "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {r1,r2}, [r3];",
            "sm_90a",
            "sm_100a",
            "s",
        ),
    ],
)
def test_a_target_without_an_instruction(
    instruction: str, without: str, within: str, hint: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        attempt(instruction, without)
    name = instruction.split()[0].rstrip(";")
    assert name in caught.value.message
    assert without in caught.value.message
    assert caught.value.location is not None
    assert caught.value.location.line == LINE
    assert hint in str(caught.value.hint)
    assert counted(attempt(instruction, within)) == 2


@in_one_test(
    ("instruction", "old", "new"),
    [
        ("bmsk.clamp.b32 r1, r2, r3;", "7.5", "7.6"),
        ("lop3.or.b32 r1|p1, r2, r3, r4, 0x96, p2;", "8.1", "8.2"),
        ("min.f32 r1, r2, r3, r4;", "8.7", "8.8"),
        ("cvt.rn.satfinite.e3m2x2.f16x2 h1, r1;", "9.0", "9.1"),
        ("mov.b128 q1, q2;", "8.2", "8.3"),
        ("ld.shared::cta.b32 r1, [r2];", "7.7", "7.8"),
        ("ld.global.L1::evict_last.b32 r1, [d2];", "7.3", "7.4"),
        ("bar.cta.sync 0;", "7.7", "7.8"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r1}, [r2];", "6.4", "6.5"),
        ("movmatrix.sync.aligned.m8n8.trans.b16 r1, r2;", "7.7", "7.8"),
    ],
)
def test_a_version_older_than_an_instruction(instruction: str, old: str, new: str) -> None:
    target = "sm_100a" if new > "8.6" else "sm_75"
    with pytest.raises(PtxSyntaxError, match=rf"\.version {old}") as caught:
        attempt(instruction, target, old)
    assert caught.value.location is not None
    assert caught.value.location.line == LINE
    assert new in str(caught.value.hint)
    assert counted(attempt(instruction, target, new)) == 2


def test_a_target_older_than_an_instruction() -> None:
    """What a module may use is what its .target has, on whatever GPU it runs."""
    text = kernel("redux.sync.add.u32 r1, r2, r3;", "sm_75")
    with pytest.raises(PtxSyntaxError, match=r"not in the module's \.target sm_75") as caught:
        prepare(parse(text), TARGETS["sm_90a"], "k")
    assert caught.value.location is not None
    assert caught.value.location.line == LINE
    assert caught.value.hint == "it needs sm_80 or newer"
    prepare(parse(text.replace("sm_75", "sm_80")), TARGETS["sm_90a"], "k")


@pytest.mark.parametrize(
    ("instruction", "without", "within"),
    [
        ("bmsk.clamp.b32 r1, r2, r3;", "sm_62", "sm_70"),
        ("nanosleep.u32 1;", "sm_62", "sm_70"),
        ("set.gtu.u32.f16 r1, h1, h2;", "sm_52", "sm_53"),
        ("abs.f16 h1, h2;", "sm_52", "sm_53"),
        ("cvt.pack.sat.u8.s32.b32 r1, r2, r3, r4;", "sm_70", "sm_72"),
        ("cvt.pack.sat.u4.s32.b32 r1, r2, r3, r4;", "sm_72", "sm_75"),
        ("tanh.approx.f32 r1, r2;", "sm_72", "sm_75"),
    ],
)
def test_modules_for_targets_that_no_longer_are(
    instruction: str, without: str, within: str
) -> None:
    """PTX for GPUs before Turing still runs on those that came later, and is held to what these had."""
    turing = TARGETS["sm_75"]
    with pytest.raises(PtxSyntaxError, match=rf"not in the module's \.target {without}"):
        prepare(parse(kernel(instruction, without)), turing, "k")
    assert counted(prepare(parse(kernel(instruction, within)), turing, "k")) == 2
    for target, takes in ((without, False), (within, True)):
        text = kernel(instruction, target).replace(".reg .b128 q<9>;", "")
        assert ptxas_takes(text, "sm_75") == takes


def ptxas_takes(text: str, arch: str) -> bool:
    try:
        link_ptx(text, arch=arch)
    except ToolchainError:
        return False
    return True


def test_a_target_that_was_given_an_instruction_later() -> None:
    """PTX ISA, "cvt": e4m3x2 came with PTX 7.8 to sm_90, and with 8.1 to sm_89, which is as old."""
    instruction = "cvt.rn.satfinite.e4m3x2.f32 h1, r1, r2;"
    with pytest.raises(PtxSyntaxError, match=r"\.version 8\.0") as caught:
        attempt(instruction, "sm_89", "8.0")
    assert caught.value.hint == "write .version 8.1 or newer"
    assert counted(attempt(instruction, "sm_89", "8.1")) == 2
    assert counted(attempt(instruction, "sm_90", "7.8")) == 2


# Where its target is as old there is no version before: of such forms every fourth always loads.
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_version_older_than_a_matrix_form(step: int) -> None:
    """Each loads at the version its table gives, and not at the one before.

    Of those that differ in n alone it is the first, which has the fewest registers.
    """
    refused = 0
    entries = {(form.line, form.variant): form for form in reversed(forms())}
    for number, entry in enumerate(entries.values()):
        target = TARGETS[entry.targets[0]]
        since = ptx_since(target.name)
        assert since is not None
        before = [v for v in VERSIONS if since <= v < entry.minimum_ptx][-1:]
        if reason(entry.name) is not None or (not before and number % step):
            continue
        program = prepare(
            parse(collection([entry], target.name, entry.minimum_ptx)), target, "probe0"
        )
        moves = any(operand.role == "address" for operand in entry.signature)
        assert counted(program, "probe0") == moves + 1
        for version in before:
            with pytest.raises(PtxSyntaxError, match="is newer than the module's") as caught:
                prepare(parse(collection([entry], target.name, version)), target, "probe0")
            assert caught.value.message.startswith(entry.name)
            assert caught.value.hint == "write .version {}.{} or newer".format(*entry.minimum_ptx)
            assert caught.value.location is not None
            assert caught.value.location.text.strip() == statement(entry)
            refused += 1
    assert refused > 200


REFUSALS = """
multimem.ld_reduce.global.add.u32 r0, [d0];
tex.1d.v4.f32.s32 {r0,r1,r2,r3}, [d0, {r4}];
tld4.r.2d.v4.f32.f32 {r0,r1,r2,r3}, [d0, {r4,r5}];
txq.width.b32 r0, [d0];
suld.b.1d.b32.trap r0, [d0, {r1}];
sust.b.1d.b32.trap [d0, {r1}], r0;
sured.b.add.1d.u32.trap [d0, {r1}], r0;
suq.width.b32 r0, [d0];
istypep.texref p0, d0;
alloca.u64 d0, 16;
stacksave.u64 d0;
stackrestore.u64 d0;
fma.rn.oob.f16 h0, h1, h2, h3;
fabric.submit;
cp.async.bulk.wait_group.sync_restrict::proxy::async 0;
fence.alias.sync_restrict::read.release.sys;
tensormap.query.alloc_class_large.global.b1024 p0, [d0];
mul.bf16x2.bf16x2.f16x2 r0, r1, r2;
mul.f16x2.f16x2.bf16x2 r0, r1, r2;
add.bf16x2.f32x2.f32x2 r0, d0, d1;
add.ftz.f16x2.f32x2.f32x2 r0, d0, d1;
sub.bf16x2.f32x2.f32x2 r0, d0, d1;
sub.ftz.f16x2.f32x2.f32x2 r0, d0, d1;
""".strip().splitlines()


@in_one_test("instruction", REFUSALS)
@in_one_test("target", ["sm_90a", "sm_100a"])
def test_what_is_not_emulated(instruction: str, target: str) -> None:
    with pytest.raises(Unsupported) as caught:
        attempt(instruction, target)
    name = instruction.split()[0].rstrip(";")
    assert caught.value.message.startswith(name)
    assert caught.value.location is not None
    assert caught.value.location.line == LINE
    assert caught.value.hint == reason(name)


def test_every_family_is_tried() -> None:
    names = [instruction.split()[0].rstrip(";") for instruction in REFUSALS]
    missing = [
        key
        for key in REFUSED
        if key.partition(".")[0] not in opcodes()
        and not any(f"{name}.".startswith(f"{key}.") for name in names)
    ]
    assert missing == []


def test_reasons_go_by_whole_parts_of_a_name() -> None:
    assert reason("multimem.red.relaxed.sys.global.add.u32")
    assert reason("cp.async.commit_group") is None
    assert reason("texture") is None
    assert reason("fma.rz.bf16x2")
    assert reason("fma.rz.f32") is None
