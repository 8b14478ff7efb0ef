"""Control bits changed, of decoded instructions and in the bytes of a cubin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ptxlab.machine.control import Control
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.toolchain.elf import read_elf

_FIRST = 105
"""The bit of an instruction at which its control bits begin: 4 of the stall, 1, 3, 3, then 6 of waits."""


def with_control(
    code: Sequence[DecodedInstruction], number: int, control: Control
) -> list[DecodedInstruction]:
    """Return code of which one instruction has other control bits."""
    changed = list(code)
    changed[number] = replace(code[number], control=control)
    return changed


def flips(control: Control) -> Iterator[Control]:
    """Yield control bits with one wait or one scoreboard less, or a stall of a cycle less."""
    for board in control.waits:
        yield replace(control, waits=tuple(other for other in control.waits if other != board))
    if control.stall > 1:
        yield replace(control, stall=control.stall - 1)
    if control.writes is not None:
        yield replace(control, writes=None)
    if control.reads is not None:
        yield replace(control, reads=None)


def reuses(control: Control) -> Iterator[Control]:
    """Yield control bits with one reuse flag more or less, of any source slot."""
    for slot in range(4):
        yield replace(control, reuse=tuple(sorted({*control.reuse} ^ {slot})))


def patched(
    image: bytes, kernel: str, address: int, *, stall: int | None = None, waits: int | None = None
) -> bytes:
    """Return a cubin in which an instruction has another stall, or waits for other scoreboards."""
    (section,) = (each for each in read_elf(image).sections if each.name == f".text.{kernel}")
    at = image.index(section.content) + address
    word = int.from_bytes(image[at : at + 16], "little")
    for value, first, width in ((stall, _FIRST, 4), (waits, _FIRST + 11, 6)):
        if value is not None:
            word = word & ~((1 << width) - 1 << first) | value << first
    return image[:at] + word.to_bytes(16, "little") + image[at + 16 :]
