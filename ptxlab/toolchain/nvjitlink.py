"""PTX to a cubin with nvJitLink: ptxas in a library. Needs neither a GPU nor a driver.

Options and their meaning: nvJitLink documentation, "Supported Link Options".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from ptxlab.errors import Location, ToolchainError
from ptxlab.toolchain.cache import cached, packed, unpacked
from ptxlab.toolchain.cubin import Cubin, read_resources
from ptxlab.toolchain.wheels import ToolAbsent, wheel_version

PACKAGE = "nvidia-nvjitlink"
# Per-kernel resources in the log, and the PTX line of every SASS instruction in the cubin.
_ALWAYS = ("-Xptxas=-v", "-lineinfo")
_PLACE = re.compile(r"ptx input, line (?P<line>\d+); (?:error|fatal) *: (?P<message>[^\n]*)")
_SHOWN = 10  # lines of a log that an error shows


def link_ptx(
    ptx: str | Sequence[str], *, arch: str, options: Sequence[str] = (), path: str = "<ptx>"
) -> Cubin:
    """Assemble PTX text, or link several, for ``arch`` (``sm_90a``).

    Succeeding certifies that ptxas accepts the text for that target. ``path`` is the name errors
    call the text by. Raises ToolchainError with the log of ptxas, placed at its first error.

    Every text is assembled on its own, to be linked with others: functions are called and not
    inlined, and ``setmaxnreg`` is ignored (C7504). ``assemble_cuda`` has neither limit.
    """
    texts = (ptx,) if isinstance(ptx, str) else tuple(ptx)
    key = [version(), arch, *options, "", *texts]

    def link_now() -> bytes:
        image, log = _link(texts, arch, (f"-arch={arch}", *_ALWAYS, *options), path)
        return packed(log.encode(), image)

    log, image = unpacked(cached("nvjitlink", key, link_now))
    return Cubin(arch, image, log.decode())


@cache
def version() -> str:
    """Return nvJitLink's version: the wheel's full one, or the library's own major.minor."""
    return wheel_version(PACKAGE) or ".".join(map(str, _library().version()))


@cache
def _library() -> Any:
    """Import the bindings and make sure that the library behind them loads."""
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except (ImportError, RuntimeError) as error:
        raise ToolAbsent("nvJitLink", PACKAGE, error) from None
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
    said = log.splitlines()
    more = f"\n... and {len(said) - _SHOWN} more lines" if len(said) > _SHOWN else ""
    message = f"ptxas rejected this PTX for {arch}\n" + "\n".join(said[:_SHOWN]) + more
    if place is None:
        return ToolchainError(f"{path}: {message}", log=log)
    line = int(place["line"])
    lines = text.splitlines()
    shown = lines[line - 1] if line <= len(lines) else ""
    quoted = re.search(r"'([^']+)'", place["message"])
    column = shown.find(quoted[1]) if quoted else -1
    if column < 0:
        column = len(shown) - len(shown.lstrip())
    return ToolchainError(message, location=Location(path, line, column + 1, shown), log=log)


def _refuse_duplicates(log: str, path: str) -> None:
    """Refuse kernels defined twice, which nvJitLink only mentions on stderr."""
    counts = Counter(found.kernel for found in read_resources(log))
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ToolchainError(f"{path}: kernel {twice[0]} is defined in more than one PTX text")
