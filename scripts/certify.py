"""Certify the tables of warp-level matrix instructions with nvJitLink, form by form.

python scripts/certify.py            every form, on every target nvJitLink knows, and at its least
                                     PTX version and the one before; about a minute

Forms that a table gives to a target must assemble for it, all others must not. A line a difference;
exit status 1 when there is any. Needs no GPU.
"""

from __future__ import annotations

import sys
from functools import cache

from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.isa import (
    INSTRUCTIONS,
    LDMATRIX,
    MOVMATRIX,
    STMATRIX,
    TARGETS,
    WMMA_MOVES,
    MatrixInstruction,
    Requires,
    Target,
)
from ptxlab.toolchain.nvjitlink import link_ptx

NUMBERS = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
NEWEST = "9.1"
VERSIONS = (
    *((6, minor) for minor in range(3, 6)),
    *((7, minor) for minor in range(9)),
    *((8, minor) for minor in range(9)),
    (9, 0),
    (9, 1),
)
FIRST_VERSION = {"sm_75": (6, 3), "sm_80": (7, 0), "sm_89": (7, 8), "sm_90": (7, 8)}
FIRST_VERSION |= {"sm_100a": (8, 6), "sm_120a": (8, 7)}
"""The PTX version that brought a target, below which no form can be tried."""
LINKED = {"sm_70": "sm_75", "sm_72": "sm_75", "sm_100f": "sm_100a", "sm_120f": "sm_120a"}
"""What nvJitLink has in place of the lowest target of a form."""

Requirement = tuple[tuple[str, ...], tuple[int, int]]


@cache
def requirements() -> dict[str, Requirement]:
    """Return the lowest targets and PTX version of every form of the tables, by name."""
    forms: tuple[Requires, ...]
    forms = (*INSTRUCTIONS, *LDMATRIX, *STMATRIX, *WMMA_MOVES, MOVMATRIX)
    return {form.name: (form.minimum_targets, form.minimum_ptx) for form in forms}


@cache
def statements() -> dict[str, str]:
    """Return a statement for every form, by name, with the registers that ``module`` declares."""
    found = {form.name: f"{form.name} {_operands(form)};" for form in INSTRUCTIONS}
    for load in LDMATRIX:
        found[load.name] = f"{load.name} {_group('r', load.registers)}, [s];"
    for store in STMATRIX:
        found[store.name] = f"{store.name} [s], {_group('r', store.registers)};"
    found[MOVMATRIX.name] = f"{MOVMATRIX.name} r0, r1;"
    for move in WMMA_MOVES:
        layout = move.layout
        group = _group(_letter(layout.dtype), layout.registers_per_lane)
        first, second = ("[s]", group) if layout.operand == "D" else (group, "[s]")
        found[move.name] = f"{move.name} {first}, {second};"
    return found


def _operands(form: MatrixInstruction) -> str:
    layouts = (form.operand(name) for name in "DABC")
    text = ", ".join(_group(_letter(o.dtype), o.registers_per_lane) for o in layouts)
    if form.metadata is not None:
        text += f", r20, {form.metadata.selectors[-1]}"
    for scale in form.scales:
        text += f", r21, {{{scale.byte_ids[-1]}, {scale.thread_ids[-1]}}}"
    return text


def _letter(dtype: str) -> str:
    return {"f32": "f", "f64": "g"}.get(dtype, "r")


def _group(letter: str, count: int) -> str:
    return "{" + ", ".join(f"{letter}{i}" for i in range(count)) + "}"


def module(lines: list[str], target: str, version: str) -> str:
    """Return PTX with a kernel of ``lines``."""
    body = "\n".join(lines)
    return f"""
.version {version}
.target {target}
.address_size 64
.visible .entry k()
{{
.reg .b32 r<24>; .reg .f32 f<8>; .reg .f64 g<8>;
.shared .align 128 .b8 s[4096];
{body}
}}
"""


def assembles(lines: list[str], target: str, version: str = NEWEST) -> bool:
    """Say whether all of ``lines`` assemble, as one kernel."""
    try:
        link_ptx(module(lines, target, version), arch=target)
    except ToolchainError:
        return False
    return True


def least(needed: Requirement) -> tuple[str, tuple[int, int]]:
    """Return the lowest target and version at which nvJitLink can try a form."""
    targets, version = needed
    target = LINKED.get(targets[0], targets[0])
    return target, max(version, FIRST_VERSION[target])


def _targets() -> list[Target]:
    """Return all targets of these numbers that nvJitLink knows."""
    plain = TARGETS["sm_75"]
    found = []
    for number in NUMBERS:
        for suffix in ("", "a", "f"):
            name = f"sm_{number}{suffix}"
            if assembles([], name):
                found.append(Target(name, number, 0, plain.arithmetic, suffix))
    return found


def _check_targets() -> list[str]:
    wrong = []
    for target in _targets():
        legal = {n for n, (least, _) in requirements().items() if any(map(target.runs, least))}
        lines = [statements()[name] for name in sorted(legal)]
        if not assembles(lines, target.name):
            wrong += [
                f"{target.name} refuses {name}"
                for name in sorted(legal)
                if not assembles([statements()[name]], target.name)
            ]
        wrong += [
            f"{target.name} takes {name}"
            for name in requirements()
            if name not in legal and assembles([statements()[name]], target.name)
        ]
        print(f"{target.name}: {len(legal)} forms, {len(requirements()) - len(legal)} refused")
    return wrong


def _check_versions() -> list[str]:
    wrong = []
    for name, needed in requirements().items():
        target, version = least(needed)
        line = [statements()[name]]
        if not assembles(line, target, "{}.{}".format(*version)):
            wrong.append(f"PTX {version} refuses {name} for {target}")
        earlier = [v for v in VERSIONS if FIRST_VERSION[target] <= v < version]
        if earlier and assembles(line, target, "{}.{}".format(*earlier[-1])):
            wrong.append(f"PTX {earlier[-1]} takes {name} for {target}")
    return wrong


def main() -> int:
    """Check everything and print what differs."""
    if len(sys.argv) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        wrong = _check_targets() + _check_versions()
    except PtxlabError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    print("\n".join(wrong) or f"{len(requirements())} forms are as the tables say")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
