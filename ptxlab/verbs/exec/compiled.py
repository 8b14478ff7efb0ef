"""A compiled program of the host: the driver and the runtime that it finds, and the emulator in its process.

Its loader finds libraries that ptxlab wrote. The first of their functions that it calls starts Python there.
"""

from __future__ import annotations

import _locale
import atexit
import ctypes
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from ptxlab.clients.driver import library
from ptxlab.clients.driver.library import RUNTIMES, write
from ptxlab.clients.driver.starting import Python
from ptxlab.device.cuda_driver import LIBRARY
from ptxlab.errors import PtxlabError, ToolchainError, Unsupported
from ptxlab.toolchain.elf import MAGIC, Elf, needed, read_elf, symbols
from ptxlab.toolchain.fatbin import has_fatbins
from ptxlab.verbs.exec import child

_CODE = """
import sys, os
try:
    if not sys.orig_argv:
        sys.path[:], sys.executable = {path!r}, {executable!r}
    from ptxlab.verbs.exec.compiled import answer
    answer({library!r})
except BaseException:
    import traceback
    traceback.print_exc()
    os._exit(1)
"""
"""What is run in the process of the program, where Python has seen no arguments if it was not there before."""


def libraries_for(program: str, folder: Path) -> dict[str, str]:
    """Write what a compiled program needs into ``folder``, and return the environment variables by which it is found.

    There are none for other programs. Raises Unsupported for one with a runtime of its own, which would find no
    driver that it takes, whatever status it makes of that.
    """
    path = shutil.which(program)
    try:
        image = Path(path or "").read_bytes()
        elf = read_elf(image) if image.startswith(MAGIC) else None
        compiled = elf is not None and has_fatbins(image)
    except (OSError, ToolchainError):
        return {}
    if elf is None:
        return {}
    shared = [name for name in needed(elf) if name.startswith(("libcudart.so", LIBRARY))]
    _refuse(program, shared, compiled)
    if not shared and b"libcuda.so" not in image:
        return {}
    _write(folder, elf)
    others = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(folder), others]))}


def _refuse(program: str, shared: list[str], compiled: bool) -> None:
    other = f"ptxlab run {program} --engine sass launches a kernel of it"
    if compiled and not shared:
        raise Unsupported(
            f"{program} is linked with a CUDA runtime of its own, which asks the driver for tables that NVIDIA "
            "does not document",
            hint=f"link it with the shared one: nvcc -cudart shared; {other}",
        )
    for name in shared:
        if name not in (LIBRARY, *RUNTIMES):
            raise Unsupported(
                f"{program} is linked with {name}, and the emulator has {' and '.join(RUNTIMES)}",
                hint=f"compile it with CUDA 12 or 13; {other}",
            )


def _write(folder: Path, elf: Elf) -> None:
    """Write the libraries, with all that the program asks for."""
    folder.mkdir()
    asked = [known.name for known in symbols(elf, ".dynsym", ".dynstr") if not known.section]
    of_runtime = [name for name in asked if name.lstrip("_").startswith("cuda")]
    of_driver = [name for name in asked if name.startswith("cu") and name not in of_runtime]
    for name in (LIBRARY, *RUNTIMES):
        code = _CODE.format(
            path=[os.path.abspath(path) for path in sys.path],
            executable=sys.executable,
            library=str(folder / name),
        )
        python = Python(_libpython(), sys.base_prefix, code)
        write(folder, name, of_driver if name == LIBRARY else of_runtime, python)


def _libpython() -> str:
    """Return the file of Python as a library. Raises PtxlabError where there is none."""
    known = sysconfig.get_config_vars("LIBDIR", "MULTIARCH", "INSTSONAME")
    directory, system, name = (str(value or "") for value in known)
    if not name.startswith("libpython"):  # a Python that is one file
        name = f"libpython{sysconfig.get_python_version()}.so.1.0"
    for folder in (Path(directory), Path(directory, system), Path(sys.base_prefix, "lib")):
        if (folder / name).exists():
            return str(folder / name)
    raise PtxlabError(
        f"this Python has no {name}, which brings the emulator into the process of a compiled program",
        hint="Debian has it in a package of its own (apt install libpython3-dev); conda, uv, python.org's images "
        "and pyenv with --enable-shared have it",
    )


# ---- in the process of the program ----------------------------------------------------------


class _Stdout:
    """Writes where C does, so that what the kernels print stands between what the program does."""

    def __init__(self) -> None:
        self._c = ctypes.CDLL(None)
        self._stdout = ctypes.c_void_p.in_dll(self._c, "stdout")

    def write(self, text: str) -> int:
        data = text.encode(errors="replace")
        self._c.fwrite(data, ctypes.c_size_t(1), ctypes.c_size_t(len(data)), self._stdout)
        return len(text)

    def flush(self) -> None:
        """It is the program's to flush."""


def answer(path: str) -> None:
    """Have a library of this process, which its program has called, be answered from now on."""
    file = Path(path)
    if not library.is_loaded():
        if not sys.orig_argv:
            _be_a_guest()
        library.load(child.session(), file.parent)
    if file.name != LIBRARY:
        library.add_runtime(file)


_ending = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: atexit._run_exitfuncs())


def _be_a_guest() -> None:
    """Leave the process to its program: its output and locale, and end when it ends."""
    _locale.setlocale(_locale.LC_CTYPE, "C")
    sys.stdout = _Stdout()
    child.begin()
    ctypes.CDLL(None).__cxa_atexit(_ending, None, None)
