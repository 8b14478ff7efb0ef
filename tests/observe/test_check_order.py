"""Random programs of loads, stores and barriers, judged a second time in plain Python.

The judge knows of no granules, clocks in arrays or numpy: every thread has a dictionary of what it has heard
of every other one, every byte a list of all its accesses, and every pair of them is looked at.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe import check, history
from tests.together import thorough

WARPS = 3
EVERYONE = frozenset(range(32 * WARPS))
ACTORS = (0, 1, 5, 31, 32, 40, 64, 95)
BYTES = 32
NOTHING = 0xFFFFFFFF
ROUNDS = 10

Rules = Counter[tuple[int, str, str]]
"""The bytes accessed against a rule, by step, rule and severity."""


@dataclass(frozen=True)
class Step:
    """What threads do together: access ``addresses``, or meet at a barrier.

    At a barrier each of ``arrived`` tells ``released`` what it knows, within its warp if ``by_warp``.
    """

    text: str
    addresses: dict[int, int] = field(default_factory=dict)
    nbytes: int = 0
    kind: str = ""
    arrived: frozenset[int] = frozenset()
    released: frozenset[int] = frozenset()
    by_warp: bool = False

    @property
    def writes(self) -> bool:
        return self.kind not in ("ld", "volatile ld")

    @property
    def strong(self) -> bool:
        return self.kind not in ("ld", "st")


def access(chance: random.Random) -> Step:
    nbytes = chance.choice((1, 1, 2, 4, 4, 8, 16))
    actors = chance.sample(ACTORS, chance.choice((1, 2, 3, len(ACTORS))))
    places = chance.sample(range(0, BYTES, nbytes), min(2, BYTES // nbytes))
    kind = chance.choice(("ld", "ld", "st", "st", "volatile ld", "volatile st", "atom"))
    if kind == "atom":
        nbytes = max(4, min(nbytes, 8))
    register = {1: "h", 2: "h", 4: "r", 8: "d", 16: "{d, d}"}[nbytes]
    volatile = ".volatile" if "volatile" in kind else ""
    name = f"{volatile}.shared" + (".v2.b64" if nbytes == 16 else f".b{8 * nbytes}")
    text = {
        "ld": f"ld{name} {register.replace('d, d', 'y, z')}, [at]",
        "st": f"st{name} [at], {register}",
        "atom": f"atom.shared.exch.b{8 * nbytes} {register}, [at], {register}",
    }[kind.split()[-1]]
    addresses = {actor: chance.choice(places) // nbytes * nbytes for actor in sorted(actors)}
    return Step(text, addresses, nbytes, kind)


def barrier(chance: random.Random, number: int, *, whole: bool) -> Step:
    if chance.random() < 0.3:
        return Step("bar.sync 0", arrived=EVERYONE, released=EVERYONE)
    if whole or chance.random() < 0.4:
        mask = 0xFFFFFFFF if whole else chance.getrandbits(32) | 1
        named = frozenset(thread for thread in EVERYONE if mask >> thread % 32 & 1)
        return Step(f"bar.warp.sync {mask:#x}", arrived=named, released=named, by_warp=True)
    warps = chance.sample(range(WARPS), chance.choice((2, WARPS)))
    first = chance.randrange(1, len(warps))
    both = frozenset(thread for thread in EVERYONE if thread // 32 in warps)
    wait = frozenset(thread for thread in both if thread // 32 in warps[first:])
    if chance.random() < 0.5:
        return Step(f"bar.sync {number}, {len(both)}", arrived=both, released=both)
    return Step(f"bar.arrive {number}, {len(both)}", arrived=both, released=wait)


def random_steps(seed: int, *, whole: bool) -> list[Step]:
    chance = random.Random(seed)
    steps: list[Step] = []
    for number in range(1, ROUNDS + 1):
        steps += [access(chance) for _ in range(chance.randint(1, 3))]
        steps.append(barrier(chance, number, whole=whole))
    return steps


HEAD = f"""\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 table)
{{
    .reg .b32 i, at, r;
    .reg .b64 p, d, y, z;
    .reg .b16 h;
    .reg .pred here, there;
    .shared .align 16 .b8 memory[{BYTES}];
    ld.param.u64 p, [table];
    mov.u32 i, %tid.x;
    mad.wide.u32 p, i, 4, p;
    mov.b16 h, 0;
    mov.b64 d, 0;
"""


def program(steps: list[Step]) -> tuple[str, dict[int, int], np.ndarray[Any, Any]]:
    """Return PTX that does the steps, the step of each of its lines, and the table it reads.

    An entry of the table says where a thread accesses memory, and what each byte it stores is: no
    byte is stored twice, so that no two stores are of the same value.
    """
    table = np.full((len(steps), len(EVERYONE)), NOTHING, np.uint32)
    lines = HEAD.splitlines()
    of_line: dict[int, int] = {}
    value = 0
    for index, step in enumerate(steps):
        for thread, address in step.addresses.items():
            value += 1
            table[index, thread] = value << 16 | address
        for thread in step.arrived:
            table[index, thread] = thread not in step.released
        lines += [
            f"    ld.global.u32 at, [p+{4 * len(EVERYONE) * index}];",
            f"    setp.ne.u32 here, at, {NOTHING:#x};",
        ]
        if step.addresses:
            lines += [
                "    shr.u32 r, at, 16;",
                "    mul.lo.u32 r, r, 0x01010101;",
                "    cvt.u16.u32 h, r;",
                "    mov.b64 d, {r, r};",
                "    and.b32 at, at, 0xffff;",
            ]
        if step.arrived != step.released:
            lines += [
                "    setp.eq.u32 there, at, 1;",
                f"    @there {step.text};",
                "    setp.eq.u32 here, at, 0;",
            ]
        lines.append(f"    @here {step.text.replace('arrive', 'sync')};")
        of_line[len(lines)] = index
    assert value < 0xFF
    return "\n".join([*lines, "    ret;", "}", ""]), of_line, table


@dataclass(frozen=True)
class Event:
    """One thread accesses one byte, having done ``clock`` steps."""

    thread: int
    clock: int
    writes: bool
    strong: bool


def judge(steps: list[Step]) -> Rules:
    """Count the bytes accessed against a rule, by step."""
    heard: dict[int, dict[int, int]] = {thread: defaultdict(int) for thread in EVERYONE}
    events: dict[int, list[Event]] = defaultdict(list)
    rules: Rules = Counter()
    for clock, step in enumerate(steps, 1):
        groups = [step.arrived] if step.arrived else []
        if step.by_warp:
            groups = [frozenset(t for t in step.arrived if t // 32 == w) for w in range(WARPS)]
        for group in groups:
            joined: dict[int, int] = defaultdict(int)
            for thread in group:
                heard[thread][thread] = clock
                for other, time in heard[thread].items():
                    joined[other] = max(joined[other], time)
            for thread in group & step.released:
                heard[thread].update(joined)
        now = {
            byte: [
                Event(thread, clock, step.writes, step.strong)
                for thread, address in step.addresses.items()
                if address <= byte < address + step.nbytes
            ]
            for byte in range(BYTES)
        }
        for byte, mine in now.items():
            for event in mine:
                before = events[byte] + [other for other in mine if other is not event]
                index = clock - 1
                for (rule, _), severity in races(event, before, heard[event.thread]).items():
                    rules[index, rule, severity] += 1
                known = any(e.writes for e in events[byte]) or any(
                    e.writes and e.thread <= event.thread for e in mine if not step.strong
                )
                if not known and (not step.writes or step.kind == "atom"):
                    # What atomics read they store again; what loads read is dropped here.
                    severity = "error" if step.kind == "atom" else "info"
                    rules[index, "unwritten", severity] += 1
            events[byte] += mine
    return rules


def races(event: Event, before: list[Event], heard: dict[int, int]) -> dict[tuple[str, bool], str]:
    """Return the worst race of an access with those before, by rule and by how strong these are."""
    rules: dict[tuple[str, bool], str] = {}
    for other in before:
        if other.thread == event.thread or other.clock < heard[other.thread]:
            continue
        if not (event.writes or other.writes) or (event.strong and other.strong):
            continue
        rule = "R"[: not event.writes] + "W"[: event.writes]
        rule = {("R", True): "RAW", ("W", False): "WAR", ("W", True): "WAW"}[rule, other.writes]
        across = other.thread // 32 != event.thread // 32
        if across or (rule, other.strong) not in rules:
            rules[rule, other.strong] = "error" if across else "warning"
    return rules


def checked(steps: list[Step]) -> Rules:
    """Count what the checker finds."""
    text, of_line, table = program(steps)
    device = EmulatorDevice(TARGETS["sm_80"])
    report = check(
        device.load(text).kernel("k"), LaunchConfig.of(1, len(EVERYONE)), [device.upload(table)]
    )
    assert not report.unchecked, report.unchecked
    rules: Rules = Counter()
    for finding in report.findings:
        rule = "unwritten" if finding.kind == "uninitialized" else finding.rule
        rules[of_line[finding.line], rule, finding.severity] += finding.count
    return rules


@pytest.mark.parametrize("seed", [*range(6), *thorough(range(6, 12))])
def test_barriers_of_whole_ctas_and_warps(seed: int) -> None:
    steps = random_steps(seed, whole=True)
    assert checked(steps) == judge(steps)


@pytest.mark.parametrize("seed", [*range(10), *thorough(range(10, 20))])
def test_barriers_of_any_kind(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(
            history, "FEW", 0
        )  # what many threads are held by in few steps finds the same
    steps = random_steps(seed, whole=False)
    assert checked(steps) == judge(steps)


def test_the_random_programs_show_all_there_is() -> None:
    for whole in (True, False):
        total: Rules = Counter()
        for seed in range(20):
            total += judge(random_steps(seed, whole=whole))
        shown = {(rule, severity) for _, rule, severity in total}
        assert shown == {
            *(
                (rule, severity)
                for rule in ("RAW", "WAR", "WAW")
                for severity in ("error", "warning")
            ),
            ("unwritten", "error"),
            ("unwritten", "info"),
        }
