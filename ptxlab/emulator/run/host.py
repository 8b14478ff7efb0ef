"""What the CUDA runtime provides to device code: printf, assert, malloc and free.

Threads call in the order of their numbers, one call at a time. Source: CUDA C++ Programming Guide,
"Formatted Output", "Assertion" and "Dynamic Global Memory Allocation and Operations"; the functions'
interface is in the "System Calls" section of NVIDIA's PTX Interoperability guide.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.address_map import FIRST_ADDRESS
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.registers import CallResult, Source
from ptxlab.emulator.run.access import parts
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.errors import LaunchError

LONGEST_TEXT = 1 << 16

HEAP_BYTES = 8 << 20
"""What malloc may give in all, as on a GPU whose cudaLimitMallocHeapSize nobody has changed."""

_DIRECTIVE = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?(hh|h|ll|l|z|t|j|L)?([a-zA-Z%])")


@dataclass(frozen=True, slots=True)
class CallingThread:
    """One thread that calls the host, and how to read the memory it points to.

    ``texts`` are those read from global memory for this call by the threads before.
    """

    frame: Frame
    lane: int
    line: int
    texts: dict[int, str]

    def bytes_at(self, address: int, nbytes: int) -> bytes:
        """Read ``nbytes`` at a generic address of this thread. Raise LaunchError outside memory."""
        threads = Threads(self.frame.wave.width, index=np.array([self.lane]))
        content = bytearray()
        for at in range(address, address + nbytes):
            registers: list[Array] = [np.array([at], np.uint64)]
            frame = Frame(self.frame.wave, self.frame.layout, registers, 0)
            [part] = parts(Access("generic", _FIRST, 0, 1, self.line, "host read"), frame, threads)
            content += part.memory.items(1)[part.index].tobytes()
        return bytes(content)

    def text_at(self, address: int) -> str:
        if address < FIRST_ADDRESS:
            return self._read_text(address)
        text = self.texts.get(address)
        if text is None:
            text = self.texts[address] = self._read_text(address)
        return text

    def _read_text(self, address: int) -> str:
        content = bytearray()
        while len(content) < LONGEST_TEXT:
            byte = self.bytes_at(address + len(content), 1)
            if byte == b"\0":
                break
            content += byte
        return content.decode("utf-8", "replace")


_FIRST = Source(0, np.dtype(np.uint64))


def print_formatted(caller: CallingThread, arguments: list[bytes]) -> int:
    """Vprintf: format the arguments of one thread, write the text, return how many there were."""
    format_address, list_address = (int.from_bytes(raw, "little") for raw in arguments)
    values = _Values(caller, list_address)
    text = _DIRECTIVE.sub(values.formatted, caller.text_at(format_address))
    caller.frame.wave.write(text)
    return values.count


class _Values:
    """The variable arguments of one printf, read one after the other as they are asked for."""

    def __init__(self, caller: CallingThread, address: int) -> None:
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
            return f"{head}d" % self._sized(length, signed=True)
        if kind in "uxXo":
            number = self._sized(length, signed=False)
            if kind == "o" and "#" in head:
                return _octal(head, number)  # Python writes 0o17 for C's 017
            return f"{head}{'d' if kind == 'u' else kind}" % number
        if kind == "c":
            return f"{head}c" % chr(self._integer(4, signed=False) & 0xFF)
        if kind in "fFeEgG":
            return f"{head}{kind}" % self._double()
        if kind in "aA":
            return _hexadecimal(head, self._double(), upper=kind == "A")
        if kind == "s":
            address = self._integer(8, signed=False)
            return f"{head}s" % (self._caller.text_at(address) if address else "(null)")
        if kind == "p":
            address = self._integer(8, signed=False)
            return f"{head}s" % (hex(address) if address else "(nil)")
        return f"{head}{kind}"

    def _sized(self, length: str | None, *, signed: bool) -> int:
        """Read an integer as its length modifier says; what is shorter than int comes as an int."""
        size = {"hh": 1, "h": 2, None: 4}.get(length, 8)
        raw = self._take(max(size, 4))
        return int.from_bytes(raw[:size], "little", signed=signed)

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


def _octal(head: str, number: int) -> str:
    return f"{head.replace('#', '')}s" % f"0{number:o}" if number else f"{head}d" % 0


def _hexadecimal(head: str, number: float, *, upper: bool) -> str:
    """Return %a: as many digits as the number needs."""
    mantissa, p, exponent = number.hex().partition("p")
    if p:
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    text = f"{head}s" % (mantissa + p + exponent)
    return text.upper() if upper else text


def assertion_failed(caller: CallingThread, arguments: list[bytes]) -> int:
    """__assertfail: stop the launch with the expression, file, line and function."""
    message, file, line, function = (int.from_bytes(raw, "little") for raw in arguments[:4])
    wave = caller.frame.wave
    raise LaunchError(
        f"assertion failed: {caller.text_at(message)}, in {caller.text_at(function)} at "
        f"{caller.text_at(file)}:{line}, by {wave.thread(caller.lane)}",
        location=wave.locate(caller.line),
        hint="the program checks this itself; the condition did not hold",
        kind="assertion",
    )


def allocate(caller: CallingThread, arguments: list[bytes]) -> int:
    """Malloc: memory that lives until it is freed, by any thread of any launch; 0 when none is left."""
    size = int.from_bytes(arguments[0], "little")
    memory = caller.frame.wave.memory
    if size == 0 or size > HEAP_BYTES - sum(memory.heap.values()):
        return 0
    address = memory.allocate(size, "memory from malloc")
    memory.heap[address] = size
    return address


def release(caller: CallingThread, arguments: list[bytes]) -> int:
    """Free: give memory from malloc back. Raise LaunchError for any other address but 0."""
    address = int.from_bytes(arguments[0], "little")
    wave = caller.frame.wave
    if address and wave.memory.heap.pop(address, None) is None:
        raise LaunchError(
            f"free of {address:#x}, which malloc did not give or which is free already, by "
            f"{wave.thread(caller.lane)}",
            location=wave.locate(caller.line),
            hint="free takes the address that malloc returned, once",
        )
    if address:
        wave.memory.free(address)
    return 0


Provided = Callable[[CallingThread, list[bytes]], int]

FUNCTIONS: dict[str, Provided] = {
    "vprintf": print_formatted,
    "__assertfail": assertion_failed,
    "malloc": allocate,
    "free": release,
}


@dataclass(slots=True)
class HostCall:
    """Call a provided function for each thread in turn; ``result`` takes the ``size`` bytes it returns."""

    function: Provided
    arguments: tuple[int, ...]
    result: CallResult | None
    size: int
    line: int

    def __call__(self, frame: Frame, threads: Threads) -> None:
        registers = frame.registers
        given = [registers[slot] for slot in self.arguments]
        answers = np.zeros((frame.wave.width, self.size), np.uint8)
        texts: dict[int, str] = {}
        for lane in threads.index:
            raw = [_row(value, int(lane)) for value in given]
            answer = self.function(CallingThread(frame, int(lane), self.line, texts), raw)
            answers[lane] = np.frombuffer(answer.to_bytes(8, "little"), np.uint8)[: self.size]
        if self.result is not None:
            slot = self.result.slot
            registers[slot] = threads.merge(registers[slot], self.result.value(answers))


def _row(value: Array, lane: int) -> bytes:
    row: Any = value[0 if value.shape[0] == 1 else lane]
    return bytes(row.tobytes())
