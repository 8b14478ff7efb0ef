"""The machine code that a GPU runs of a file: a cubin, a fatbin, or a program of the host with fatbins inside.

CUDA C++ Programming Guide, "Binary Compatibility": a cubin runs on GPUs of its own major version and no lower minor
one; one for ``sm_90a`` runs on nothing else, and one for ``sm_100f`` on its family.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import TARGETS, Target
from ptxlab.machine.sass import read_target
from ptxlab.toolchain.cubin import Cubin
from ptxlab.toolchain.fatbin import Member, is_cubin, members
from ptxlab.toolchain.nvdisasm import disassemble


def machine_code(image: bytes, target: Target, name: str) -> Cubin:
    """Return the cubin for ``target`` in a file of that ``name``: that of its own, or the nearest it runs.

    Raises PtxlabError where there is none, Unsupported where it is compressed, ToolchainError for what is damaged.
    """
    inside = compiled(image)
    able = [member for member in inside if _runs(target, member.arch)]
    if not able:
        known = ", ".join(dict.fromkeys(member.arch for member in inside)) or "none at all"
        raise PtxlabError(
            f"{name} has no machine code for {target.name}", hint=f"what it has is for {known}"
        )
    nearest = max(able, key=lambda member: (member.arch == target.name, _number(member.arch)))
    if nearest.compression:
        raise Unsupported(
            f"{name}: the {nearest} is compressed ({nearest.compression})",
            hint="cuobjdump --extract-elf all takes it out, nvcc --no-compress leaves it open",
        )
    return Cubin(nearest.arch, nearest.content, "")


def compiled(image: bytes) -> list[Member]:
    """Return what of a file is machine code."""
    if is_cubin(image):
        return [Member(False, read_target(disassemble(image)), "", image)]
    return [member for member in members(image) if not member.ptx]


def usual_target(inside: Sequence[Member]) -> str | None:
    """Return the first target that machine code is for, of those that are known here."""
    return next((member.arch for member in inside if member.arch in TARGETS), None)


def _runs(target: Target, arch: str) -> bool:
    own, number = target.capability, _number(arch)
    if arch.endswith("a"):
        return arch == target.name
    return number // 10 == own // 10 and number <= own


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("af"))
