"""What a check found: its findings, and the verdict they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ptxlab.observe.check_rules import RULES
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.tree import SourceText

CHECKS = tuple(RULES)
"""Every kind of finding, which is also what can be chosen to check."""

_BEYOND = {
    "race": "races in global memory inside a warp, and between CTAs where there are fences and flags "
    "but not those that order them",
    "async": "copies from global memory of what threads wrote there, the scopes of waits, and arrivals at "
    "mbarriers of other CTAs that name no scope",
    "bounds": "overruns of a shared variable whose address is loaded, or made of several variables",
}
"""What checks do not see, by their names."""

SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule broken by one instruction, or by two of them, any number of times.

    ``rule`` says which rule of its ``kind``, such as "RAW". ``line`` is that of the PTX where it shows,
    ``other_line`` that of an instruction before with which it clashes. ``source`` and ``other_source``
    are the lines of CUDA C these come from, where the PTX says so. ``count`` is in ``unit``: "bytes" of
    memory accessed, as often as they are, "threads", or "faults".
    """

    kind: str
    rule: str
    severity: str
    line: int
    message: str
    hint: str
    count: int
    unit: str
    other_line: int | None = None
    source: SourceLine | None = None
    other_source: SourceLine | None = None

    def __repr__(self) -> str:
        return f"<{self.severity}: {self.kind} in line {self.line}, {self.message}>"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A launch checked for ``checks``; ``kernel`` is None where none could be loaded.

    ``findings`` are sorted, the worst first. ``unchecked`` says what of the launch the checks could not
    see, and why, ``caveats`` what they do not look at in this program. ``source`` is the PTX.
    """

    kernel: str | None
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    source: SourceText
    caveats: tuple[str, ...] = ()

    def __repr__(self) -> str:
        found = {"errors": self.errors, "warnings": self.warnings}
        told = "".join(f", {count} {what}" for what, count in found.items() if count)
        return f"<check of {self.kernel}: {self.verdict}{told}>"

    @property
    def verdict(self) -> str:
        """ "findings", "incomplete" where part was not seen and the rest has no error, or "clean"."""
        if self.errors or (self.warnings and not self.unchecked):
            return "findings"
        return "incomplete" if self.unchecked else "clean"

    @property
    def not_looked_at(self) -> tuple[str, ...]:
        """What the checks do not look at, in any launch or one of this program."""
        always = (words for name, words in _BEYOND.items() if name in self.checks)
        return (*always, *self.caveats)

    @property
    def errors(self) -> int:
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def warnings(self) -> int:
        return sum(finding.severity == "warning" for finding in self.findings)

    def failed(self, *, strict: bool = False) -> bool:
        """Say whether the launch has not passed; warnings alone count only if ``strict``."""
        if self.verdict == "findings":
            return bool(self.errors) or strict
        return self.verdict == "incomplete"


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings: by severity, then by kind, then as they stand in the text."""
    return tuple(
        sorted(
            findings,
            key=lambda f: (
                SEVERITIES.index(f.severity),
                CHECKS.index(f.kind),
                f.line,
                f.other_line or 0,
                f.message,
            ),
        )
    )
