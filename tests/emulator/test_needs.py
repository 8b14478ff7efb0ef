"""What instructions need, as the notes of the PTX ISA say: the least target and the least version."""

from __future__ import annotations

from ptxlab.emulator.prepare.forms import find
from ptxlab.isa.legality import Needs
from ptxlab.isa.targets import TARGETS
from tests.together import in_one_test

BEFORE = {
    "sm_80": "sm_75",
    "sm_86": "sm_80",
    "sm_89": "sm_87",
    "sm_90": "sm_89",
    "sm_100": "sm_90a",
}
"""The newest target without what the key brings."""


def needs(opcode: str, modifiers: tuple[str, ...], sources: int | None = None) -> Needs:
    return find(opcode, modifiers, sources).needs


@in_one_test(
    ("name", "sources", "target", "version"),
    [
        ("redux.sync.add.u32", 2, "sm_80", (7, 0)),
        ("redux.sync.max.s32", 2, "sm_80", (7, 0)),
        ("redux.sync.xor.b32", 2, "sm_80", (7, 0)),
        ("cp.async.wait_all", 0, "sm_80", (7, 0)),
        ("fma.rn.bf16x2", 3, "sm_80", (7, 0)),
        ("min.NaN.f32", 2, "sm_80", (7, 0)),
        ("min.xorsign.abs.f32", 2, "sm_86", (7, 2)),
        ("max.f32", 3, "sm_100", (8, 8)),
        ("add.bf16", 2, "sm_90", (7, 8)),
        ("atom.global.add.noftz.bf16", 2, "sm_90", (7, 8)),
        ("add.u16x2", 2, "sm_90", (8, 0)),
        ("fma.rn.f32x2", 3, "sm_100", (8, 6)),
        ("cvt.f32.bf16", 1, "sm_80", (7, 1)),
        ("cvt.ftz.f32.bf16", 1, "sm_90", (7, 8)),
        ("cvt.rn.satfinite.tf32.f32", 1, "sm_100", (8, 6)),
    ],
)
def test_the_least_target_and_version(
    name: str, sources: int, target: str, version: tuple[int, int]
) -> None:
    opcode, *modifiers = name.split(".")
    need = needs(opcode, tuple(modifiers), sources)
    assert need.missing(TARGETS[BEFORE[target]]) == (target,)
    assert need.missing(TARGETS[target]) == ()
    assert need.missing(TARGETS["sm_120a"]) == ()
    assert need.ptx == version


@in_one_test("target", TARGETS)
def test_what_every_target_has(target: str) -> None:
    for name in ("xor.b32", "fma.rn.f32", "cvt.rn.f16.f32", "max.f32", "min.s32", "atom.add.u32"):
        opcode, *modifiers = name.split(".")
        assert needs(opcode, tuple(modifiers), 2).missing(TARGETS[target]) == (), name


def test_families_are_alternatives() -> None:
    need = needs("cvt", ("rn", "satfinite", "e2m1x2", "f32"), 2)
    having = [name for name, target in TARGETS.items() if not need.missing(target)]
    assert having == ["sm_100a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a"]
    assert need.missing(TARGETS["sm_100"]) == ("sm_100f", "sm_110f", "sm_120f")


def test_the_strictest_rule_decides() -> None:
    """Both those of tf32 and of .satfinite speak of it."""
    need = needs("cvt", ("rn", "satfinite", "tf32", "f32"))
    assert need.targets[0] == ("sm_100",)
    assert need.ptx == (8, 6)
    assert needs("xor", ("b32",)).ptx < (6, 3)
