"""PTX to a cubin with nvJitLink: ptxas in a library. Needs neither a GPU nor a driver.

Options and their meaning: nvJitLink documentation, "Supported Link Options".
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ptxlab.errors import Location, ToolchainError
from ptxlab.toolchain.absent import ToolAbsent
from ptxlab.toolchain.cache import cached

_PACKAGE = "nvidia-nvjitlink"
# Per-kernel resources in the log, and the PTX line of every SASS instruction in the cubin.
_ALWAYS = ("-Xptxas=-v", "-lineinfo")
_PLACE = re.compile(r"ptx input, line (?P<line>\d+); (?:error|fatal) *: (?P<message>[^\n]*)")
_NUMBERS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "shared": re.compile(r"(\d+) bytes smem"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "barriers": re.compile(r"used (\d+) barriers"),
}


@dataclass(frozen=True, slots=True)
class Resources:
    """What ptxas says one kernel uses: registers and barriers by count, the rest in bytes.

    ``shared`` is static shared memory, ``stack`` and the spills are per thread.
    """

    kernel: str
    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    barriers: int


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code for one ``arch``: the ELF ``image`` and the ``log`` of its making."""

    arch: str
    image: bytes
    log: str

    @property
    def kernels(self) -> dict[str, Resources]:
        """The resources of every kernel, by name, read from the log."""
        return {found.kernel: found for found in _resources(self.log)}


def link_ptx(
    ptx: str | Sequence[str], *, arch: str, options: Sequence[str] = (), path: str = "<ptx>"
) -> Cubin:
    """Assemble PTX text, or link several, for ``arch`` (``sm_90a``).

    Succeeding certifies that ptxas accepts the text for that target. ``path`` is the name errors
    call the text by. Raises ToolchainError with the log of ptxas, placed at its first error.
    """
    texts = (ptx,) if isinstance(ptx, str) else tuple(ptx)
    key = [version(), arch, *options, "", *texts]

    def link_now() -> bytes:
        image, log = _link(texts, arch, (f"-arch={arch}", *_ALWAYS, *options), path)
        encoded = log.encode()
        return struct.pack("<Q", len(encoded)) + encoded + image

    stored = cached("nvjitlink", key, link_now)
    (length,) = struct.unpack_from("<Q", stored)
    return Cubin(arch, stored[8 + length :], stored[8 : 8 + length].decode())


@cache
def version() -> str:
    """Return nvJitLink's version: the wheel's full one, or the library's own major.minor."""
    import importlib.metadata

    try:
        return importlib.metadata.version(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ".".join(map(str, _library().version()))


@cache
def _library() -> Any:
    """Import the bindings and make sure that the library behind them loads."""
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, RuntimeError) as error:
        raise ToolAbsent("nvJitLink", _PACKAGE, error) from None
    return nvjitlink


def _link(texts: Sequence[str], arch: str, options: Sequence[str], path: str) -> tuple[bytes, str]:
    lib = _library()
    try:
        handle = lib.create(len(options), list(options))
    except lib.nvJitLinkError as error:
        raise ToolchainError(
            f"nvJitLink {version()} does not take {' '.join(options)}: {error}"
        ) from None
    text = ""
    try:
        for text in texts:
            data = text.encode() + b"\0"
            lib.add_data(handle, lib.InputType.PTX, data, len(data), path)
        lib.complete(handle)
        image = bytearray(lib.get_linked_cubin_size(handle))
        lib.get_linked_cubin(handle, image)
        log = _log(handle, lib.get_info_log_size, lib.get_info_log)
    except lib.nvJitLinkError as error:
        errors = _log(handle, lib.get_error_log_size, lib.get_error_log)
        raise _rejected(errors or str(error), text, arch, path) from None
    finally:
        lib.destroy(handle)
    _refuse_duplicates(log, path)
    return bytes(image), log


def _log(handle: int, size: Any, get: Any) -> str:
    buffer = bytearray(size(handle))
    if buffer:
        get(handle, buffer)
    return buffer.rstrip(b"\0").decode(errors="replace").strip()


def _rejected(log: str, text: str, arch: str, path: str) -> ToolchainError:
    """Turn the log of ptxas into an error at the first line it names."""
    place = _PLACE.search(log)
    message = f"ptxas rejected this PTX for {arch}\n{log}"
    if place is None:
        return ToolchainError(f"{path}: {message}")
    line = int(place["line"])
    lines = text.splitlines()
    shown = lines[line - 1] if line <= len(lines) else ""
    quoted = re.search(r"'([^']+)'", place["message"])
    column = shown.find(quoted[1]) if quoted else -1
    if column < 0:
        column = len(shown) - len(shown.lstrip())
    return ToolchainError(message, location=Location(path, line, column + 1, shown))


def _refuse_duplicates(log: str, path: str) -> None:
    """Refuse kernels defined twice, which nvJitLink only mentions on stderr."""
    counts = Counter(found.kernel for found in _resources(log))
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ToolchainError(f"{path}: kernel {twice[0]} is defined in more than one PTX text")


def _resources(log: str) -> list[Resources]:
    """Read what ``ptxas -v`` says of each kernel: its function properties and its ``Used`` line."""
    found = []
    for part in log.split("Compiling entry function ")[1:]:
        name = part.split("'")[1]
        own = part[part.index(f"Function properties for {name}\n") :]
        numbers = {key: _number(pattern, own) for key, pattern in _NUMBERS.items()}
        found.append(Resources(name, **numbers))
    return found


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else 0
