"""Which target and which ``.version`` an instruction needs at least.

One table of rules. An instruction needs what every rule that fits it asks for; what no rule fits
runs on every target from sm_75 and in every ``.version`` from 6.3 on. Matrix instructions are not
here: their own tables say it (``ptxlab.matrix.catalog``). Source: the "PTX ISA Notes" and "Target ISA
Notes" of each instruction in the PTX ISA; where those and ptxas differ, what ptxas does, which
``scripts/certify_operations.py`` asks for every form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ptxlab.isa.targets import Target

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """What instructions of ``opcodes`` need that have all modifiers ``having`` and fitting ``types``.

    ``targets`` are alternatives, any one of which is enough; ``types`` is a regular expression for
    the whole of the type modifiers, joined by dots. ``sources``, where given, is the number of
    source operands.
    """

    opcodes: tuple[str, ...]
    targets: tuple[str, ...]
    ptx: Version
    having: frozenset[str] = frozenset()
    types: str = ".*"
    sources: int | None = None

    def fits(self, modifiers: Sequence[str], types: str, sources: int | None) -> bool:
        """Say whether the rule speaks of an instruction of one of its opcodes."""
        return (
            self.having.issubset(modifiers)
            and self.sources in (None, sources)
            and re.fullmatch(self.types, types) is not None
        )


@dataclass(frozen=True, slots=True)
class Needs:
    """What an instruction needs: for each group of targets one of them, and the ``.version``."""

    targets: tuple[tuple[str, ...], ...] = ()
    ptx: Version = (0, 0)

    def __add__(self, other: Needs) -> Needs:
        """Return what needs both, the newest targets first."""
        targets = sorted({*self.targets, *other.targets}, key=_capability, reverse=True)
        return Needs(tuple(targets), max(self.ptx, other.ptx))

    def missing(self, target: Target) -> tuple[str, ...]:
        """Return the targets one of which ``target`` would have to be; empty where it runs."""
        for alternatives in self.targets:
            if not any(target.runs(name) for name in alternatives):
                return alternatives
        return ()


ANYWHERE = Needs()
"""What every target and version has."""


def parse_needs(text: str) -> Needs:
    """Read "sm_80 7.0", or "sm_100f sm_120f 8.6" where either target will do."""
    *targets, version = text.split()
    major, minor = version.split(".")
    return Needs((tuple(targets),), (int(major), int(minor)))


def _rule(
    opcodes: str,
    targets: str,
    ptx: str,
    having: str = "",
    types: str = ".*",
    sources: int | None = None,
) -> Rule:
    major, minor = ptx.split(".")
    return Rule(
        tuple(opcodes.split()),
        tuple(targets.split()),
        (int(major), int(minor)),
        frozenset(having.split()),
        types,
        sources,
    )


_FP8 = "e4m3x2|e5m2x2"
_SMALL = "e2m3x2|e3m2x2|e2m1x2|ue8m0x2"
_BLACKWELL = "sm_100f sm_120f"

RULES: tuple[Rule, ...] = (
    # conversions
    _rule("cvt", "sm_75", "6.5", "pack"),
    _rule("cvt", "sm_80", "7.0", "relu"),
    _rule("cvt", "sm_80", "7.0", types="b?f16x2.f32"),
    _rule("cvt", "sm_80", "7.0", types="bf16.f32"),
    _rule("cvt", "sm_80", "7.1", types="f32.bf16"),
    _rule("cvt", "sm_90", "7.8", "ftz", "f32.bf16"),
    _rule("cvt", "sm_90", "7.8", types=r"bf16\.(?!f32).*|(?!f32).*\.bf16"),
    _rule("cvt", "sm_75", "8.1", "satfinite", r"b?f16(x2)?\.f32|tf32.f32"),
    _rule("cvt", "sm_80", "7.0", types="tf32.f32"),
    _rule("cvt", "sm_90", "7.8", "rn", "tf32.f32"),
    _rule("cvt", "sm_90", "7.8", "rz", "tf32.f32"),
    _rule("cvt", "sm_100", "8.6", "rn satfinite", "tf32.f32"),
    _rule("cvt", "sm_100", "8.6", "rz satfinite", "tf32.f32"),
    _rule("cvt", "sm_89", "7.8", types=rf"f16x2\.({_FP8})|({_FP8})\.(f32|f16x2)"),
    _rule("cvt", _BLACKWELL, "8.6", types=rf".*\.({_SMALL})|({_SMALL})\..*"),
    _rule("cvt", _BLACKWELL, "9.1", types=r"(e2m3x2|e3m2x2|e2m1x2)\.f16x2"),
    _rule("cvt", "sm_100f", "8.7", "rs"),
)

_BY_OPCODE: dict[str, tuple[Rule, ...]] = {
    opcode: tuple(rule for rule in RULES if opcode in rule.opcodes)
    for rule in RULES
    for opcode in rule.opcodes
}
_TYPE = re.compile(r"(pred|[busf]\d+(x2)?|b?f16(x2)?|tf32|e\dm\d(x\d)?|ue8m0(x2)?)")


def types_of(modifiers: Sequence[str]) -> str:
    """Return the type modifiers, joined by dots."""
    return ".".join(name for name in modifiers if _TYPE.fullmatch(name))


@lru_cache(maxsize=4096)
def needs(opcode: str, modifiers: tuple[str, ...], sources: int | None = None) -> Needs:
    """Return what an instruction needs, which need not be one that exists."""
    rules = _BY_OPCODE.get(opcode)
    if rules is None:
        return ANYWHERE
    types = types_of(modifiers)
    fitting = [rule for rule in rules if rule.fits(modifiers, types, sources)]
    if not fitting:
        return ANYWHERE
    return Needs(tuple(_strictest(fitting)), max(rule.ptx for rule in fitting))


def _strictest(rules: Sequence[Rule]) -> Iterator[tuple[str, ...]]:
    """Give the targets the rules ask for, the newest first, each once."""
    yield from sorted({rule.targets for rule in rules}, key=_capability, reverse=True)


def _capability(targets: tuple[str, ...]) -> int:
    return min(int(name.removeprefix("sm_").rstrip("af")) for name in targets)
