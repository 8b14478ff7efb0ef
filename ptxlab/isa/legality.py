"""What an instruction needs at least: a target, or one of several, and the ``.version``.

What needs nothing runs on every target from sm_75 and in every ``.version`` from 6.3 on. The operations
say what they need in their rows, matrix instructions in their tables. Source: the "PTX ISA Notes" and
"Target ISA Notes" of each instruction in the PTX ISA; where those and ptxas differ, what ptxas does,
which ``scripts/certify_operations.py`` asks for every form.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.isa.targets import Target

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Needs:
    """What an instruction needs: for each group of targets one of them, and the ``.version``.

    Targets that were given it ``later`` than others have it in the versions from theirs on.
    """

    targets: tuple[tuple[str, ...], ...] = ()
    ptx: Version = (0, 0)
    later: tuple[tuple[str, Version], ...] = ()

    def __add__(self, other: Needs) -> Needs:
        """Return what needs both, the newest targets first."""
        targets = sorted({*self.targets, *other.targets}, key=_capability, reverse=True)
        return Needs(tuple(targets), max(self.ptx, other.ptx), self.later + other.later)

    def version(self, target: Target) -> Version:
        """Return the least ``.version`` of modules for ``target``."""
        own = (since for name, since in self.later if name == target.name)
        return max((self.ptx, *own))

    def missing(self, target: Target) -> tuple[str, ...]:
        """Return the targets one of which ``target`` would have to be; empty where it runs."""
        for alternatives in self.targets:
            if not any(target.runs(name) for name in alternatives):
                return alternatives
        return ()


ANYWHERE = Needs()
"""What every target and version has."""


def parse_needs(text: str) -> Needs:
    """Read "sm_80 7.0", or "sm_100f sm_120f 8.6" where either target will do.

    In "sm_89:8.1 7.8" all have it from 7.8 on, but sm_89 from 8.1 on.
    """
    *targets, version = text.split()
    named = [target.partition(":") for target in targets]
    later = tuple((name, _version(since)) for name, _, since in named if since)
    return Needs((tuple(name for name, _, _ in named),), _version(version), later)


def _version(text: str) -> Version:
    major, minor = text.split(".")
    return int(major), int(minor)


def _capability(targets: tuple[str, ...]) -> int:
    return min(int(name.removeprefix("sm_").rstrip("af")) for name in targets)
