"""What a program launched, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptxlab.clients.session import Usage
from ptxlab.syntax.names import brief
from ptxlab.view.fidelity import unverified
from ptxlab.view.json import members
from ptxlab.view.text import aligned, counted

SCHEMA = "ptxlab.exec/1"


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """How a program ended on ``arch``: its exit ``status``, what its kernels took, and failed ``checks``.

    ``checks`` have the text and the data of each, None where nothing was checked. ``wanted`` is the launch that was to
    be looked into, "" for none, and ``looked`` what verbs said of it, None where there was no such launch. Some launch
    ``began``, if it did not end.
    """

    arch: str
    command: Sequence[str]
    status: int
    usage: Mapping[str, Usage]
    checks: Sequence[Mapping[str, Any]] | None
    wanted: str = ""
    looked: Mapping[str, Any] | None = None
    began: bool = False

    @property
    def launches(self) -> int:
        return sum(used.launches for used in self.usage.values())

    @property
    def seconds(self) -> float:
        return sum(used.seconds for used in self.usage.values())


def text(outcome: ProgramOutcome, *, table: bool) -> str:
    blocks = [str(check["text"]) for check in outcome.checks or ()]
    if outcome.wanted:
        if outcome.looked is None:
            blocks.append(_missing(outcome))
        else:
            blocks += [str(said["text"]) for said in outcome.looked["verbs"].values()]
    if table and outcome.usage:
        blocks.append("\n".join(_table(outcome)))
    return "\n\n".join([*blocks, "\n".join([*_unverified(outcome), _summary(outcome)])])


def _missing(outcome: ProgramOutcome) -> str:
    """Say that there was no launch as wanted, and which there were."""
    by_first = sorted(outcome.usage.items(), key=lambda entry: entry[1].first)
    made = ", ".join(f"{brief(name)} from {used.first} on" for name, used in by_first)
    number = counted(outcome.launches, "launch", "launches", form=",")
    hint = f"\nhint: it made {number}: {made}" if made else ""
    return f"ptxlab: the program made no launch {outcome.wanted}{hint}"


def _unverified(outcome: ProgramOutcome) -> Iterator[str]:
    for name, used in outcome.usage.items():
        yield from (f"{name} is {line}" for line in unverified(used.unverified))


def _table(outcome: ProgramOutcome) -> Iterator[str]:
    """Yield the kernels, the one that took longest first."""
    rows = [("kernel", "launches", "seconds", "share", "thread instructions")]
    for name, used in sorted(outcome.usage.items(), key=lambda entry: -entry[1].seconds):
        share = used.seconds / outcome.seconds if outcome.seconds else 0.0
        numbers = (f"{used.launches:,}", f"{used.seconds:.3f}", f"{share:.1%}")
        rows.append((brief(name), *numbers, f"{used.instructions:,}"))
    names = aligned([(row[0],) for row in rows], "<")
    numbers_ = aligned([row[1:] for row in rows])
    width = max(map(len, names))
    for name, line in zip(names, numbers_, strict=True):
        yield f"{name:<{width}}  {line}"
    yield "seconds are those of the emulation, which say nothing about a GPU"


def _summary(outcome: ProgramOutcome) -> str:
    if not outcome.launches:
        made = "no launch came to its end" if outcome.began else "no kernel was launched"
        return f"ptxlab: {made} on the emulator, {outcome.arch}"
    kernels = len(outcome.usage)
    what = (
        f"ptxlab: {counted(outcome.launches, 'launch', 'launches', form=',')} of "
        f"{counted(kernels, 'kernel')} on the emulator, {outcome.arch}, in "
        f"{outcome.seconds:.2f} s"
    )
    if outcome.checks is None:
        return what
    if outcome.wanted and outcome.looked is None:
        return what
    which = f" launch {outcome.wanted}" if outcome.wanted else ""
    failed = len({str(check["json"]["kernel"]) for check in outcome.checks})
    verdict = f"findings in {counted(failed, 'kernel')}" if failed else "nothing found"
    return f"{what}; checked{which}: {verdict}"


def as_json(outcome: ProgramOutcome) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **members(outcome, "arch", "command", "status", "launches", "seconds"),
        "kernels": [
            {
                "kernel": name,
                **members(used, "launches", "seconds"),
                "thread_instructions": used.instructions,
                **members(used, "unverified", "first"),
            }
            for name, used in outcome.usage.items()
        ],
        "checks": None if outcome.checks is None else [check["json"] for check in outcome.checks],
        **({"looked": _looked(outcome.looked)} if outcome.wanted else {}),
    }


def _looked(looked: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if looked is None:
        return None
    said = {verb: told["json"] for verb, told in looked["verbs"].items()}
    return {"number": looked["number"], "kernel": looked["kernel"], **said}
