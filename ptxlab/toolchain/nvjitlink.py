"""PTX to a cubin with nvJitLink: ptxas in a library. Needs neither a GPU nor a driver.

Options and their meaning: nvJitLink documentation, "Supported Link Options".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

from ptxlab.cache import cached, packed, unpacked
from ptxlab.errors import Location, ToolchainError
from ptxlab.toolchain.assembler import assemble, library
from ptxlab.toolchain.cubin import Cubin, read_resources
from ptxlab.toolchain.release import PACKAGE, absent, chosen
from ptxlab.toolchain.wheels import ToolAbsent, load_library, reason_of, wheel_version

# Per-kernel resources in the log, and the PTX line of every SASS instruction in the cubin.
_LINES = "-lineinfo"
_ALWAYS = ("-Xptxas=-v", _LINES)
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
    key = [version(), arch, *_ALWAYS, *options, "", *texts]

    def link_now() -> bytes:
        image, log = _link(texts, arch, (f"-arch={arch}", *_ALWAYS, *options), path)
        return packed(log.encode(), image)

    log, image = unpacked(cached("nvjitlink", key, link_now))
    return Cubin(arch, image, log.decode())


def version() -> str:
    """Return the version of nvJitLink, of the release chosen: the wheel's full one, or what is known."""
    release = chosen()
    return release.version if release else _installed()


def file() -> str:
    """Return the library's file, of the release chosen. Raises ImportError, RuntimeError or ToolAbsent where there is none."""
    return _of_release() or load_library("nvJitLink", PACKAGE)


def _of_release() -> str:
    """Return the library's file of the release that the user names, "" for the installed one. Raises ToolAbsent where it has none."""
    release = chosen()
    if release is not None and not release.assembler:
        raise absent("nvJitLink")
    return release.assembler if release else ""


@cache
def _installed() -> str:
    """Return the version of the installed one: the wheel's full one, or the library's own major.minor."""
    try:
        return wheel_version(PACKAGE) or ".".join(map(str, library().version()))
    except (ImportError, RuntimeError) as error:
        raise ToolAbsent("nvJitLink", PACKAGE, reason_of(error)) from None


def _link(texts: Sequence[str], arch: str, options: Sequence[str], path: str) -> tuple[bytes, str]:
    library = _of_release()
    made = assemble(texts, options, path, library)
    if made is None:  # 12.8 ends over lines for sm_100a
        made = assemble(texts, [option for option in options if option != _LINES], path, library)
    if made is None:
        raise ToolchainError(
            f"{path}: nvJitLink {version()} itself ended while it assembled this for {arch}",
            hint="mostly an instruction has the wrong operands: leave out half until it does not",
        )
    if made.absent and library:
        raise ToolchainError(
            f"nvJitLink {version()} cannot be called: {made.absent}",
            hint="the first releases of CUDA 12 lack functions: take a newer one",
        )
    if made.absent:
        raise ToolAbsent("nvJitLink", PACKAGE, made.absent)
    if made.options:
        raise ToolchainError(
            f"nvJitLink {version()} does not take {' '.join(options)}: {made.options}"
        )
    if made.image is None:
        raise _rejected(made.log, made.text, arch, path)
    _refuse_duplicates(made.log, path)
    return made.image, made.log


def _rejected(log: str, text: str, arch: str, path: str) -> ToolchainError:
    """Turn the log of ptxas into an error at the first line it names."""
    position = _PLACE.search(log)
    said = log.splitlines()
    more = f"\n... and {len(said) - _SHOWN} more lines" if len(said) > _SHOWN else ""
    message = f"ptxas rejected this PTX for {arch}\n" + "\n".join(said[:_SHOWN]) + more
    if position is None:
        return ToolchainError(f"{path}: {message}", log=log)
    line = int(position["line"])
    lines = text.splitlines()
    shown = lines[line - 1] if line <= len(lines) else ""
    quoted = re.search(r"'([^']+)'", position["message"])
    column = shown.find(quoted[1]) if quoted else -1
    if column < 0:
        column = len(shown) - len(shown.lstrip())
    return ToolchainError(message, location=Location(path, line, column + 1, shown), log=log)


def _refuse_duplicates(log: str, path: str) -> None:
    """Refuse kernels defined twice, which nvJitLink only mentions on stderr."""
    counts = Counter(resources.kernel for resources in read_resources(log))
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ToolchainError(f"{path}: kernel {twice[0]} is defined in more than one PTX text")
