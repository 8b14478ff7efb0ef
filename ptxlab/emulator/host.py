"""What the CUDA runtime provides to device code: printf and assert.

Threads print in the order of their numbers, one call at a time. Source: CUDA C++ Programming Guide,
"Formatted Output" and "Assertion"; the functions' interface is in the "System Calls" section of
NVIDIA's PTX Interoperability guide.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxlab.emulator.access import Access, parts
from ptxlab.emulator.lanes import Lanes
from ptxlab.emulator.program import Array, Source
from ptxlab.emulator.wave import Frame
from ptxlab.errors import LaunchError

if TYPE_CHECKING:
    from ptxlab.emulator.operations.control import CallResult

LONGEST_TEXT = 1 << 16

_DIRECTIVE = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?(hh|h|ll|l|z|t|j|L)?([a-zA-Z%])")


@dataclass(frozen=True, slots=True)
class Caller:
    """One thread that calls the host, and how to read the memory it points to."""

    frame: Frame
    lane: int
    line: int

    def bytes_at(self, address: int, nbytes: int) -> bytes:
        """Read ``nbytes`` at a generic address of this thread. Raise LaunchError outside memory."""
        lanes = Lanes(self.frame.wave.width, index=np.array([self.lane]))
        found = bytearray()
        for at in range(address, address + nbytes):
            registers: list[Array] = [np.array([at], np.uint64)]
            frame = Frame(self.frame.wave, self.frame.function, registers, None, 0)
            [part] = parts(Access("generic", _FIRST, 0, 1, self.line, "host read"), frame, lanes)
            found += part.memory.items(1)[part.index].tobytes()
        return bytes(found)

    def text_at(self, address: int) -> str:
        """Read the NUL-terminated text at ``address``."""
        found = bytearray()
        while len(found) < LONGEST_TEXT:
            byte = self.bytes_at(address + len(found), 1)
            if byte == b"\0":
                break
            found += byte
        return found.decode("utf-8", "replace")


_FIRST = Source(0, np.dtype(np.uint64))


def print_formatted(caller: Caller, arguments: list[bytes]) -> int:
    """Vprintf: format the arguments of one thread, write the text, return how many there were."""
    format_address, list_address = (int.from_bytes(raw, "little") for raw in arguments)
    values = _Values(caller, list_address)
    text = _DIRECTIVE.sub(values.formatted, caller.text_at(format_address))
    caller.frame.wave.write(text)
    return values.count


class _Values:
    """The variable arguments of one printf, read one after the other as they are asked for."""

    def __init__(self, caller: Caller, address: int) -> None:
        self._caller = caller
        self._next = address
        self.count = 0

    def formatted(self, match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        given_width = self._number(width)
        given_precision = self._number(precision)
        if "." in match.group(0) and precision is None:
            given_precision = "0"
        dot = "" if given_precision is None else f".{given_precision}"
        head = f"%{flags}{given_width or ''}{dot}"
        return self._value(head, length, kind)

    def _number(self, given: str | None) -> str | None:
        return str(self._integer(4, signed=True)) if given == "*" else given

    def _value(self, head: str, length: str | None, kind: str) -> str:
        if kind in "di":
            return f"{head}d" % self._integer(_width(length), signed=True)
        if kind in "uxXo":
            number = self._integer(_width(length), signed=False)
            return f"{head}{'d' if kind == 'u' else kind}" % number
        if kind == "c":
            return f"{head}c" % chr(self._integer(4, signed=False) & 0xFF)
        if kind in "fFeEgG":
            return f"{head}{kind}" % self._double()
        if kind in "aA":
            text = self._double().hex()
            return text.upper() if kind == "A" else text
        if kind == "s":
            address = self._integer(8, signed=False)
            return f"{head}s" % (self._caller.text_at(address) if address else "(null)")
        if kind == "p":
            return f"{head}s" % hex(self._integer(8, signed=False))
        return f"{head}{kind}"

    def _integer(self, size: int, *, signed: bool) -> int:
        return int.from_bytes(self._take(size), "little", signed=signed)

    def _double(self) -> float:
        return float(struct.unpack("<d", self._take(8))[0])

    def _take(self, size: int) -> bytes:
        self._next = -(-self._next // size) * size
        raw = self._caller.bytes_at(self._next, size)
        self._next += size
        self.count += 1
        return raw


def _width(length: str | None) -> int:
    return 8 if length in ("l", "ll", "z", "t", "j") else 4


def assertion_failed(caller: Caller, arguments: list[bytes]) -> int:
    """__assertfail: stop the launch with the expression, file, line and function."""
    message, file, line, function = (int.from_bytes(raw, "little") for raw in arguments[:4])
    wave = caller.frame.wave
    raise LaunchError(
        f"assertion failed: {caller.text_at(message)}, in {caller.text_at(function)} at "
        f"{caller.text_at(file)}:{line}, by {wave.thread(caller.lane)}",
        location=wave.program.locate(caller.line),
        hint="the program checks this itself; the condition did not hold",
    )


Provided = Callable[[Caller, list[bytes]], int]

FUNCTIONS: dict[str, Provided] = {
    "vprintf": print_formatted,
    "__assertfail": assertion_failed,
}


class HostCall:
    """Call a provided function for each thread in turn."""

    __slots__ = ("_arguments", "_function", "_line", "_results")

    def __init__(
        self,
        function: Provided,
        arguments: tuple[int, ...],
        results: tuple[CallResult, ...],
        line: int,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._results = results
        self._line = line

    def run(self, frame: Frame, lanes: Lanes) -> None:
        """Run for ``lanes``: text is made one thread at a time."""
        registers = frame.registers
        given = [registers[slot] for slot in self._arguments]
        answers = np.zeros((frame.wave.width, 4), np.uint8)
        for lane in lanes.index:
            raw = [_row(value, int(lane)) for value in given]
            count = self._function(Caller(frame, int(lane), self._line), raw)
            answers[lane] = np.frombuffer(count.to_bytes(4, "little"), np.uint8)
        for result in self._results:
            slot = result.slot
            registers[slot] = lanes.merge(registers[slot], result.value(answers))


def _row(value: Array, lane: int) -> bytes:
    row: Any = value[0 if value.shape[0] == 1 else lane]
    return bytes(row.tobytes())
