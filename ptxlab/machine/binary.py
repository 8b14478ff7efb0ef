"""The machine code that a GPU runs of a file: a cubin, a fatbin, or a program of the host with fatbins inside.

CUDA C++ Programming Guide, "Binary Compatibility": a cubin runs on GPUs of its own major version and no lower minor
one; one for ``sm_90a`` runs on nothing else, and one for ``sm_100f`` on its family.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ptxlab.errors import PtxlabError, ToolchainError, Unsupported
from ptxlab.isa.targets import TARGETS, Target
from ptxlab.machine.sass import read_target
from ptxlab.toolchain.cubin import Cubin
from ptxlab.toolchain.elf import read_elf
from ptxlab.toolchain.fatbin import FATBIN, Member, is_cubin, members
from ptxlab.toolchain.nvdisasm import disassemble
from ptxlab.toolchain.wheels import ToolAbsent


@contextmanager
def about(file: str) -> Iterator[None]:
    """Have errors about machine code name the file that it is in."""
    try:
        yield
    except ToolAbsent:
        raise
    except ToolchainError as error:
        raise ToolchainError(f"{file}: {error.message}", hint=error.hint) from None


def machine_code(image: bytes, target: Target, name: str) -> list[Cubin]:
    """Return the cubins for ``target`` in a file of that ``name``: those of its own, or the nearest it runs.

    A program that was linked has one of each of its parts, of which those without kernels are left out. Raises
    PtxlabError where there is none, Unsupported where one is compressed, ToolchainError for what is damaged.
    """
    with about(name):
        inside = compiled(image)
    able = [member for member in inside if _runs(target, member.arch)]
    if not able:
        known = ", ".join(dict.fromkeys(member.arch for member in inside)) or "none at all"
        raise PtxlabError(
            f"{name} has no machine code for {target.name}", hint=f"what it has is for {known}"
        )
    best = max(_nearness(member, target) for member in able)
    nearest = [member for member in able if _nearness(member, target) == best]
    if len(nearest) > 1:
        nearest = [member for member in nearest if _has_kernels(member)] or nearest[:1]
    for member in nearest:
        if member.compression:
            raise Unsupported(
                f"{name}: the {member} is compressed ({member.compression})",
                hint="cuobjdump --extract-elf all takes it out, nvcc --no-compress leaves it open",
            )
    return [Cubin(member.arch, member.content, "") for member in nearest]


def newest_ptx(image: bytes, target: Target) -> bytes:
    """Return the PTX in a fatbin that ``target`` runs, that for the newest GPU, b"" where none can be read."""
    if not image.startswith(FATBIN):
        return b""
    able = [
        member
        for member in members(image)
        if member.ptx and not member.compression and _compiles(target, member.arch)
    ]
    best = max(able, key=lambda member: _nearness(member, target), default=None)
    return best.content.rstrip(b"\0") if best else b""


def compiled(image: bytes) -> list[Member]:
    """Return what of a file is machine code."""
    if is_cubin(image):
        return [Member(False, read_target(disassemble(image)), "", image)]
    return [member for member in members(image) if not member.ptx]


def usual_target(inside: Sequence[Member]) -> str | None:
    """Return the first target that machine code is for, of those that are known here."""
    return next((member.arch for member in inside if member.arch in TARGETS), None)


def _nearness(member: Member, target: Target) -> tuple[bool, int]:
    return member.arch == target.name, _number(member.arch)


def _has_kernels(member: Member) -> bool:
    """Say whether a cubin has kernels, as what nvcc adds in linking has not; of a compressed one nobody knows."""
    if member.compression:
        return True
    return any(section.name.startswith(".text.") for section in read_elf(member.content).sections)


def _runs(target: Target, arch: str) -> bool:
    own, number = target.capability, _number(arch)
    if arch.endswith("a"):
        return arch == target.name
    return number // 10 == own // 10 and number <= own


def _compiles(target: Target, arch: str) -> bool:
    """Say whether PTX for ``arch`` can become machine code of ``target``: the same or newer, unless it has features of its own."""
    if arch.endswith("a"):
        return arch == target.name
    own, number = target.capability, _number(arch)
    return number <= own and (not arch.endswith("f") or number // 10 == own // 10)


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("af"))
