"""What a check can find and what it has found: rules, findings, and the verdict they add up to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ptxlab.observe.computed import Computed
from ptxlab.pictured import Readable
from ptxlab.syntax.functions import SourceLine
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import SourceText

RULES: dict[str, tuple[str, dict[str, str]]] = {
    "race": (
        "accesses that nothing orders: in shared memory of a CTA or cluster an error between warps, a warning "
        "within one, and where both write the same value information; in global memory between CTAs or warps",
        {
            "RAW|WAR|WAW": "a read after a write, a write after a read, a write after a write",
            "global RAW|global WAR|global WAW": "the same in global memory, with no fence and flag between",
            "twice": "two threads that cp.async to one place, information where both bring the same",
            "grid": "information: an access before griddepcontrol.wait",
        },
    ),
    "async": (
        "memory and registers that asynchronous work still has, and how it is handed over",
        {
            "RAW|WAR|WAW": "an access to what a bulk or tensor copy, wgmma or tcgen05 reads or writes until it is waited for, "
            "a warning where it has been by a warp of the warpgroup, but not by each",
            "reads|overwrites|source": "the same for cp.async, and for what a bulk copy writes to global memory",
            "proxy": "work on what a thread accessed, with no fence.proxy.async between",
            "registers": "a register of wgmma touched before its wgmma.wait_group",
            "fence": "wgmma with no wgmma.fence after its registers were touched, or at first",
            "makes|unmakes": "an mbarrier used before its init is known, or while it is taken away",
            "object|again": "a plain access to an mbarrier; an init where there is one, by several threads at once "
            "information",
            "bytes|early": "bytes expected and copied that do not come out even; a phase that ends before its copies",
            "phase": "a phase that can end before a thread has seen the one before",
            "unheeded": "an mbarrier.try_wait, or test_wait, that may give up, and nothing looks at its answer",
            "scope": "information: an arrival at another CTA's mbarrier of the scope of its own CTA",
            "not started|ended": "an access to a CTA of the cluster that may not have begun, or is over",
            "end": "a CTA, or kernel, that can end before such an access or before its own work (a warning for a bulk store)",
            "gives back": "Tensor Memory of a pair given back before the other CTA's tcgen05.alloc is known to be done",
            "thread sync": "information: no tcgen05.fence where threads hand Tensor Memory to each other",
            "pair": "information: tcgen05.alloc for a pair before the other CTA is known to have begun",
            "quarter": "information: an address that names another warp's lanes of Tensor Memory, which are not meant",
            "map release|map acquire": "a tensor map that was changed, without that fence.proxy.tensormap",
            "swizzle": "a warning: a tensor map fills what a wgmma descriptor of another swizzle reads",
        },
    ),
    "barrier": (
        "barriers and warp instructions that threads do not reach as they must",
        {
            "absent from warp|absent from CTA": "some have ended without coming to the barrier",
            "apart in warp|apart in CTA": "they come to it at two instructions",
            "divergent": "a part of a warp at an .aligned barrier.cluster, of a warpgroup at wgmma",
        },
    ),
    "deadlock": ("threads that wait for each other for ever", {}),
    "bounds": (
        "accesses outside every allocation, or to read-only memory",
        {
            "overrun": "from one variable in shared memory into another",
            "outside": "a warning: a tensor of which all boxes copied lie wholly outside it",
        },
    ),
    "alignment": (
        "addresses that are no multiple of the access, rows of ldmatrix among them",
        {"swizzle": "a warning: a tile that begins in the middle of the pattern of its swizzle"},
    ),
    "uninitialized": (
        "reads before the write, of registers (by their names), local and shared memory: an error where the value "
        "reaches a store, an address, a branch or a returned value, else information",
        {
            "shared": "of shared memory",
            "lane": "of a lane that takes no part in a shuffle",
        },
    ),
}
"""Of each kind of finding what it is about, and its rules: names apart by bars."""


def rules(kind: str) -> list[str]:
    """Return the names of the rules of a kind of finding, as ``Finding.rule`` has them."""
    return [name for names in RULES[kind][1] for name in names.split("|")]


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
    memory accessed, as often as they are, "threads", or "faults". ``computed`` has what the address is made of,
    as the thread has it that the message names first.
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
    computed: tuple[Computed, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.severity}: {self.kind} in line {self.line}, {self.message}>"


@dataclass(frozen=True, slots=True)
class CheckReport(Readable):
    """A launch checked for ``checks``; ``kernel`` is None where none could be loaded.

    ``findings`` are sorted, the worst first. ``unchecked`` says what of the launch the checks could not
    see, and why, ``caveats`` what they do not look at in this program. ``source`` is the PTX, of whose lines
    ``unverified`` nobody has measured the bits. ``schedules`` say when asynchronous work landed.
    """

    kernel: str | None
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    source: SourceText
    caveats: tuple[str, ...] = ()
    unverified: tuple[int, ...] = ()
    schedules: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = {"errors": self.errors, "warnings": self.warnings}
        told = "".join(f", {count} {what}" for what, count in counts.items() if count)
        return f"<check of {called(self.kernel)}: {self.verdict}{told}>"

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


def together(reports: Sequence[CheckReport], schedules: Sequence[str]) -> CheckReport:
    """Return what launches of one program with several schedules show, each finding once."""
    findings: list[Finding] = []
    for report in reports:
        known = {(each.kind, each.rule, each.line, each.other_line) for each in findings}
        findings += [
            each
            for each in report.findings
            if (each.kind, each.rule, each.line, each.other_line) not in known
        ]
    return replace(
        reports[0],
        findings=ordered(findings),
        unchecked=tuple(dict.fromkeys(each for report in reports for each in report.unchecked)),
        schedules=tuple(schedules),
    )


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
