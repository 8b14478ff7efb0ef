"""Certify the tables of matrix instructions with nvJitLink, form by form.

python scripts/certify.py            every form on every target nvJitLink knows, and on its least
                                     targets at every PTX version; three minutes

Forms that a table gives to a target and version must assemble for it, all others must not. A line a
difference; exit status 1 when there is any. Needs no GPU.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.fragments.probe_kernel import KERNEL, collection
from ptxlab.isa.legality import Version
from ptxlab.isa.targets import TARGETS, Target, ptx_since
from ptxlab.matrix.catalog import forms
from ptxlab.matrix.form import Form
from ptxlab.toolchain.nvjitlink import link_ptx

NUMBERS = (75, 80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121)
NEWEST = (9, 4)
VERSIONS = (
    *((6, minor) for minor in range(3, 6)),
    *((7, minor) for minor in range(9)),
    *((8, minor) for minor in range(9)),
    *((9, minor) for minor in range(4)),
    NEWEST,
)
LEAST = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a")
"""The least targets of forms."""
LINKED = {"sm_70": "sm_75", "sm_72": "sm_75"}
"""What nvJitLink has in place of the lowest target of a form."""
EARLIER = re.compile(r"tcgen05\.mma.*\.block_scale(\.block\d+)?\.[st]s")
"""Forms that ptxas takes before their version since 13.5; before, it did not."""

_REJECTED = re.compile(r"input, line (\d+); error")


def since(target: str) -> Version:
    """Return the PTX version that brought a target, below which none of its forms can be tried."""
    first = ptx_since(target)
    assert first is not None
    return first


def least(entry: Form) -> tuple[str, Version]:
    """Return the lowest target and version at which nvJitLink can try a form."""
    first = entry.minimum_targets[0]
    target = LINKED.get(first, f"{first[:-1]}a" if first.endswith("f") else first)
    return target, max(entry.minimum_ptx, since(target))


def rejected(entries: Sequence[Form], target: str, version: Version = NEWEST) -> set[str]:
    """Return the keys of those that ptxas does not take, each in a kernel of its own.

    ptxas reads a whole module before it gives up, and makes machine code where nothing is wrong.
    """
    text = collection(entries, target, version)
    try:
        link_ptx(text, arch=target)
    except ToolchainError as error:
        kernels = list(accumulate(f" {KERNEL}" in line for line in text.splitlines()))
        wrong = {kernels[int(number) - 1] for number in _REJECTED.findall(error.log)}
        if not wrong or 0 in wrong:
            raise
        return {entries[kernel - 1].key for kernel in wrong}
    return set()


def differences(
    entries: Sequence[Form], target: str, version: Version, legal: Iterable[Form]
) -> Iterator[str]:
    """Say where ptxas and the table differ for ``target``, of which ``legal`` are the forms it has."""
    without = rejected(entries, target, version)
    keys = {entry.key for entry in legal}
    for key in sorted(entry.key for entry in entries):
        if (key in keys) == (key in without):
            verb = "refuses" if key in keys else "takes"
            yield f"{target} {verb} {key} in PTX {version[0]}.{version[1]}"


def _targets() -> list[Target]:
    """Return all targets of these numbers that nvJitLink knows."""
    plain = TARGETS["sm_75"]
    targets = []
    for number in NUMBERS:
        for suffix in ("", "a", "f"):
            name = f"sm_{number}{suffix}"
            try:
                link_ptx(collection([], name, _version(number)), arch=name)
            except ToolchainError:
                continue
            targets.append(Target(name, number, 0, plain.arithmetic, suffix))
    return targets


def _version(number: int) -> Version:
    return max(NEWEST, since(f"sm_{number}"))


def _check_targets() -> list[str]:
    wrong: list[str] = []
    for target in _targets():
        version = _version(target.capability)
        legal = [entry for entry in forms() if entry.runs_on(target)]
        wrong += differences(forms(), target.name, version, legal)
        failed = rejected(legal, target.name, version)
        wrong += [f"{target.name} does not compile {key}" for key in sorted(failed)]
        print(f"{target.name}: {len(legal)} forms, {len(forms()) - len(legal)} refused")
    return wrong


def _check_versions() -> list[str]:
    wrong: list[str] = []
    for target in LEAST:
        first = since(target)
        entries = [entry for entry in forms() if least(entry)[0] == target]
        newest = max(entry.minimum_ptx for entry in entries)
        for version in VERSIONS:
            if first <= version <= newest:
                asked = [
                    e for e in entries if e.minimum_ptx <= version or not EARLIER.search(e.key)
                ]
                legal = [entry for entry in asked if entry.minimum_ptx <= version]
                wrong += differences(asked, target, version, legal)
        print(f"{target}: {len(entries)} forms from PTX {first[0]}.{first[1]} on")
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
    print("\n".join(wrong) or f"{len(forms())} forms are as the tables say")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
