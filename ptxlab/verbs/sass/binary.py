"""Files that are machine code already: cubins, fatbins, and programs of the host that have some inside."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from ptxlab.device.loading import find_file
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import target_named
from ptxlab.machine.assembly import Assembly
from ptxlab.machine.binary import about
from ptxlab.machine.sass import read_target
from ptxlab.syntax.parser import parse
from ptxlab.toolchain import Cubin, disassemble, link_ptx
from ptxlab.toolchain.fatbin import Member, is_cubin, members
from ptxlab.toolchain.machine_code import entries
from ptxlab.verbs.sass.programs import AssembledProgram, chosen, kernel, of_module


def programs(
    args: argparse.Namespace, file: str, archs: Sequence[str]
) -> tuple[list[AssembledProgram], list[Member]]:
    """Return what a file has for the targets of ``archs``, all of it without any.

    Where it has only PTX for one, it is assembled. The second are members that are compressed. Raises
    PtxlabError where there is nothing else.
    """
    if args.D or args.I or args.std:
        raise PtxlabError(f"options are for compiling CUDA C; {file} is compiled already")
    try:
        image = find_file(file).read_bytes()
    except OSError as error:
        raise PtxlabError(f"cannot read {file}: {error.strerror}") from None
    with about(file):
        inside = [_cubin(image)] if is_cubin(image) else members(image)
    wanted = list(_wanted(inside, archs, file))
    every = [_opened(args, file, *member) for member in wanted if not member[0].compression]
    closed = [member for member, _ in wanted if member.compression]
    if closed and not every:
        raise Unsupported(f"{file}: {told(closed)}", hint=way_to(closed, file))
    known = [kernel for program in every for kernel in program.kernels]
    asked = {kernel.name for kernel in chosen(known, args.kernel, file)}
    opened = (
        replace(
            program, kernels=tuple(kernel for kernel in program.kernels if kernel.name in asked)
        )
        for program in every
    )
    return [program for program in opened if program.kernels], closed


def _cubin(image: bytes) -> Member:
    return Member(False, read_target(disassemble(image)), "", image)


def _wanted(
    inside: Sequence[Member], archs: Sequence[str], file: str
) -> Iterator[tuple[Member, str]]:
    """Yield members, and the target that each is shown for."""
    if not inside:
        raise PtxlabError(f"{file} has no machine code for a GPU")
    if not archs:
        yield from ((member, member.arch) for member in inside)
    for arch in archs:
        ready = [member for member in inside if not member.ptx and member.arch == arch]
        ready = ready or [
            member for member in inside if member.ptx and target_named(arch).runs(member.arch)
        ]
        if not ready:
            known = ", ".join(dict.fromkeys(map(str, inside)))
            raise PtxlabError(f"{file} has nothing for {arch}", hint=f"it has {known}")
        yield from ((member, arch) for member in ready)


def _opened(args: argparse.Namespace, file: str, member: Member, arch: str) -> AssembledProgram:
    """Return a member with all of its kernels, its PTX assembled for ``arch``."""
    if member.ptx:
        name, text = f"{file} (PTX)", member.content.rstrip(b"\0").decode(errors="replace")
        module = parse(text, name, skim=True)
        assembly = Assembly(module, link_ptx(text, arch=arch, path=name))
        return AssembledProgram(file, assembly, tuple(of_module(args, assembly, module)), member)
    assembly = Assembly(None, Cubin(arch, member.content, ""))
    given = args.block and prod(args.block)
    with about(file):
        kernels = tuple(
            kernel(assembly, entry.used, given or entry.threads, args.shared or 0)
            for entry in entries(member.content, arch)
        )
    return AssembledProgram(file, assembly, kernels, member)


def told(closed: Sequence[Member]) -> str:
    what = ", ".join(f"{member} ({member.compression})" for member in closed)
    return f"not shown, because compressed: {what}"


def way_to(closed: Sequence[Member], file: str) -> str:
    """Return how the user gets at what is compressed."""
    kind = "ptx" if closed[0].ptx else "elf"
    return f"cuobjdump --extract-{kind} all {file} takes it out, nvcc --no-compress leaves it open"
