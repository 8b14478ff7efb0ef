"""What a cubin itself says of its kernels, where the log of its making is not at hand.

NVIDIA does not describe these sections: what is read here was found by comparing with what ptxas of
CUDA 12.9 and of 13 says of the same kernels, which ``tests/toolchain/test_machine_code.py`` goes on doing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ptxlab.errors import ToolchainError
from ptxlab.isa.occupancy import MULTIPROCESSORS
from ptxlab.isa.targets import target_named
from ptxlab.toolchain.cubin import Used
from ptxlab.toolchain.elf import CUDA, EXECUTABLE, Elf, ElfSection, read_elf, symbols

_INFO = ".nv.info"
_ENTRY = 0x10  # STO_CUDA_ENTRY in st_other

_REGISTERS, _FRAME, _MOST_THREADS, _THREADS, _BARRIERS = 0x2F, 0x11, 0x05, 0x10, 0x4C
_PARAMETER, _PARAMETER_BIG, _CLUSTER = 0x17, 0x45, 0x3D
_ALL_PARAMETERS = 0x0A  # where they begin in the bank of constants, and their bytes
HOST_CODE = ".nv.host"
"""The section with what is to run on the host before a kernel is launched: it makes parameters that are not told of."""
_MAP_ALIGN = 64
"""How parameters that are made are aligned: tensor maps are."""
_SIZE_AT = 18  # of a parameter, in the last word; what is big has the lower half of one for it
_SIZED = 4  # the format of an attribute whose value has a size of its own
_BARRIERS_IN_FLAGS = 20  # of the section of the code, before CUDA 13


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: where it begins among the parameters, and its bytes."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CubinEntry:
    """A kernel of a cubin: what it uses, its parameters in their order, and how it may be launched.

    What is ``made`` lies behind the parameters that a program gives: code of the host in the cubin makes it. A CTA has ``reqntid`` threads, or at most ``maxntid``, and a cluster ``cluster`` CTAs, in x, y and z: each is
    None where it is not said.
    """

    used: Used
    parameters: tuple[Parameter, ...]
    made: Parameter | None
    reqntid: tuple[int, int, int] | None
    maxntid: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None

    @property
    def threads(self) -> int | None:
        """The most threads that a CTA may have, None where it is not said."""
        size = self.reqntid or self.maxntid
        return prod(size) if size else None


def entries(image: bytes, arch: str) -> list[CubinEntry]:
    """Return the kernels of a cubin for ``arch``. Raises ToolchainError for what is none."""
    elf = read_elf(image)
    if elf.machine != CUDA:
        raise ToolchainError("this ELF file is no cubin: it is not for a GPU")
    try:
        return list(_entries(elf, arch))
    except (KeyError, IndexError, ValueError, struct.error):
        raise ToolchainError("this cubin is damaged: its tables lead out of it") from None


def _entries(elf: Elf, arch: str) -> Iterator[CubinEntry]:
    sections = {section.name: section for section in elf.sections}
    known = list(symbols(elf))
    of_all = list(_attributes(sections[_INFO])) if _INFO in sections else []
    for symbol in known:
        name = symbol.name
        if not symbol.other & _ENTRY:
            continue
        said = list(_attributes(sections[f"{_INFO}.{name}"]))
        own = dict(said)
        numbers = {
            attribute: value[1]
            for attribute, value in of_all
            if attribute in (_REGISTERS, _FRAME) and known[value[0]].name == name
        }
        in_flags = sections[f".text.{name}"].flags >> _BARRIERS_IN_FLAGS & 0x7F
        used = Used(
            kernel=name,
            registers=numbers[_REGISTERS],
            shared=_shared(elf, sections.get(f".nv.shared.{name}"), arch),
            stack=numbers.get(_FRAME, 0),
            barriers=own[_BARRIERS][0] if _BARRIERS in own else in_flags,
        )
        parameters = _parameters(said)
        yield CubinEntry(
            used,
            parameters,
            _made(parameters, own) if HOST_CODE in sections else None,
            *(_size(own.get(key)) for key in (_THREADS, _MOST_THREADS, _CLUSTER)),
        )


def _parameters(said: list[tuple[int, tuple[int, ...]]]) -> tuple[Parameter, ...]:
    """Return the parameters: ptxas writes them from either end, each with its number and offset in one word."""
    places: dict[int, Parameter] = {}
    for attribute, value in said:
        if attribute in (_PARAMETER, _PARAMETER_BIG):
            _, where, last = value
            size = last & 0xFFFF if attribute == _PARAMETER_BIG else last >> _SIZE_AT
            places[where & 0xFFFF] = Parameter(where >> 16, size)
    return tuple(parameter for _, parameter in sorted(places.items()))


def _made(parameters: tuple[Parameter, ...], own: dict[int, tuple[int, ...]]) -> Parameter | None:
    """Return what the bank of constants has room for behind the parameters."""
    end = max((parameter.offset + parameter.size for parameter in parameters), default=0)
    _, where = own[_ALL_PARAMETERS]
    first, nbytes = end + -((where & 0xFFFF) + end) % _MAP_ALIGN, where >> 16
    return Parameter(first, nbytes - first) if first < nbytes else None


def _size(value: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    return (value[0], value[1], value[2]) if value else None


def _shared(elf: Elf, section: ElfSection | None, arch: str) -> int:
    """Return the bytes of a kernel's own: linking puts those first that the system takes."""
    if section is None:
        return 0
    known = [
        capability for capability in MULTIPROCESSORS if capability <= target_named(arch).capability
    ]
    first = MULTIPROCESSORS[max(known)].shared_base if known else 0
    return section.size - first * (elf.type == EXECUTABLE)


def _attributes(section: ElfSection) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the attributes of a kernel or cubin, each with its 32-bit words or its one number."""
    at = 0
    while at < section.size:
        form, attribute, size = struct.unpack_from("<BBH", section.content, at)
        at += 4
        if form != _SIZED:
            yield attribute, (size,)
            continue
        yield attribute, struct.unpack_from(f"<{size // 4}I", section.content, at)
        at += size
