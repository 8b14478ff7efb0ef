"""CUDA C to PTX, and on to a cubin, with NVRTC. Needs neither a GPU nor a driver.

Options and their meaning: NVRTC documentation, "Supported Compile Options".
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from ptxlab.cache import directory, keep, kept, packed, unpacked
from ptxlab.errors import Location, ToolchainError
from ptxlab.toolchain.cubin import Cubin
from ptxlab.toolchain.host_code import INSTANCES, DevicePart, rejections
from ptxlab.toolchain.includes import Includes, scan
from ptxlab.toolchain.nvrtc_library import NvrtcLibrary
from ptxlab.toolchain.release import Release, chosen
from ptxlab.toolchain.wheels import ToolAbsent, load_library, reason_of, wheel_version

PACKAGE = "nvidia-cuda-nvrtc"
_PRE_INCLUDE = ("-include", "--pre-include")
_INSTANCE = "--instance="
_NO_HEADER = re.compile(r'(?:could not|cannot) open source file "(?P<name>[^"]*)"')
_SAYS_WHERE = re.compile(r"\b(?:__FILE__|__builtin_FILE|source_location|assert)\b")
"""What a kernel knows of the path of its source."""
_UNDEFINED = re.compile(r'(?:identifier|has no(?: actual)? member) "(?P<name>\w+)"')


def compile_cuda(
    source: str,
    *,
    path: str,
    arch: str,
    options: Sequence[str] = (),
    include_paths: Sequence[str | os.PathLike[str]] = (),
) -> str:
    """Compile CUDA C and return its PTX text.

    ``path`` is the name errors call the source by; ``#include "x.cuh"`` looks beside it first, then
    in ``include_paths``. The CUDA headers (``cuda_bf16.h``, ``cuda/std/...``) are always there.
    ``arch`` is ``sm_90a``, compiled as ``compute_90a``; ``options`` are NVRTC's own (``-DBM=64``), and
    ``--instance=scale<bf16,64>``, which asks for an instance of a kernel template.

    Raises ToolchainError with NVRTC's log, placed at its first error.
    """
    target = f"--gpu-architecture={arch.replace('sm_', 'compute_')}"
    return _kept(source, path, arch, (target, *options), include_paths, _compile).decode()


def assemble_cuda(
    source: str,
    *,
    path: str,
    arch: str,
    options: Sequence[str] = (),
    include_paths: Sequence[str | os.PathLike[str]] = (),
) -> tuple[str, Cubin]:
    """Compile CUDA C to machine code; return the PTX on the way, and the cubin.

    The parameters are those of ``compile_cuda``. The program is assembled as a whole, so that its
    functions are inlined and ``setmaxnreg`` works.
    """
    given = (f"--gpu-architecture={arch}", "--ptxas-options=-v", *options)
    stored = _kept(source, path, arch, given, include_paths, _assemble)
    ptx, log, image = unpacked(stored)
    return ptx.decode(), Cubin(arch, image, log.decode(errors="replace"))


def _scan(
    source: str,
    path: str,
    options: Sequence[str],
    include_paths: Sequence[str | os.PathLike[str]],
) -> Includes:
    searched = [Path(os.path.abspath(entry)) for entry in (*include_paths, *_paths_in(options))]
    return scan(source, Path(os.path.abspath(path)).parent, searched, options)


def _kept(
    source: str,
    path: str,
    arch: str,
    options: Sequence[str],
    include_paths: Sequence[str | os.PathLike[str]],
    make: Callable[[DevicePart, str, Sequence[str]], bytes],
) -> bytes:
    """Return what ``make`` makes of CUDA C, from the cache if it has it."""
    folder = Path(os.path.abspath(path)).parent
    searched = [os.path.abspath(entry) for entry in include_paths]
    arguments = [*options, *(f"--include-path={entry}" for entry in searched)]
    includes = _scan(source, path, options, include_paths)

    instances = [
        option.removeprefix(_INSTANCE) for option in options if option.startswith(_INSTANCE)
    ]

    def make_now() -> bytes:
        from ptxlab.syntax.names import expanded  # here: the tools can spare the parser

        texts = {file: contents.decode("utf-8", "replace") for file, contents in includes.files}
        meant = {file or path: names for file, names in includes.meant.items()}
        part = DevicePart(path, {path: source} | texts, meant, includes.missing)
        part.wanted = [expanded(name) for name in instances]
        part.needs_headers = bool(includes.missing) or not includes.complete
        given = [argument for argument in arguments if not argument.startswith(_INSTANCE)]
        try:
            return make(part, arch, given)
        finally:
            _give_memory_back()

    if not includes.complete or any(option.startswith(_PRE_INCLUDE) for option in options):
        return make_now()
    key = [version(), os.path.basename(path), source, *options, "", *_described(includes)]
    placed = [*key, path, str(folder), *searched]
    keys = [placed] if _SAYS_WHERE.search(source) or includes.say(_SAYS_WHERE) else [key, placed]
    for each in keys:
        if (made := kept("nvrtc", each)) is not None:
            return made
    made = make_now()
    # What is compiled for a debugger or profiler says where each line is from.
    names = [os.path.basename(file).encode() for file in (path, *dict(includes.files))]
    keep("nvrtc", placed if any(name in made for name in names) else keys[0], made)
    return made


def _give_memory_back() -> None:
    """Have the C library return to the system what the compiler has freed: 200 MB of CUDA's headers, which glibc keeps."""
    with suppress(OSError, TypeError, AttributeError):  # other libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


def _described(includes: Includes) -> Iterator[str | bytes]:
    """Yield what is in the files that a source includes, and which of them each name means, wherever they lie.

    What was not found needs no mention: a file that appears later is among the files.
    """
    files = sorted(includes.files, key=lambda file: (os.path.basename(file[0]), file[1]))
    number = {file: at for at, (file, _) in enumerate(files)}
    for file, contents in [("", b""), *files]:
        yield contents
        meant = sorted(includes.meant.get(file, {}).items())
        yield "\n".join(f"{name} {number[target]}" for name, target in meant)


def source_texts(
    source: str,
    *,
    path: str,
    options: Sequence[str] = (),
    include_paths: Sequence[str | os.PathLike[str]] = (),
    **_: Any,
) -> Iterator[str]:
    """Yield the source that ``compile_cuda`` is given, and after it what it includes."""
    yield source
    yield from (
        text.decode("utf-8", "replace")
        for _, text in _scan(source, path, options, include_paths).files
    )


def version() -> str:
    """Return NVRTC's version, of the release chosen: the wheel's full one, or what is known."""
    release = _release()
    return release.version if release else _installed_version()


def file() -> str:
    """Return the library's file, of the release chosen. Raises ImportError or RuntimeError where there is none."""
    release = _release()
    return release.compiler if release else load_library("nvrtc", PACKAGE)


@cache
def _installed_version() -> str:
    """Return the version of the installed one: the wheel's full one, or the library's own major.minor."""
    return wheel_version(PACKAGE) or ".".join(map(str, _installed().nvrtcVersion()[1:]))


def _release() -> Release | None:
    """Return the release that the user names, if its NVRTC is there."""
    release = chosen()
    return release if release and release.compiler else None


def load() -> None:
    """Load the library, as the first program that is compiled would. Raises ToolAbsent where there is none."""
    _library()


def _library() -> Any:
    """Return what calls the NVRTC of the release chosen."""
    release = _release()
    return NvrtcLibrary.of(release.compiler) if release else _installed()


@cache
def _installed() -> Any:
    """Import the bindings and make sure that the library behind them loads."""
    try:
        from cuda.bindings import nvrtc

        load_library("nvrtc", PACKAGE)
        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise ToolAbsent("NVRTC", PACKAGE, reason_of(error)) from None
    return nvrtc


def _paths_in(options: Sequence[str]) -> list[str]:
    forms = ("--include-path=", "-I")
    return [
        option.removeprefix(form) for option in options for form in forms if option.startswith(form)
    ]


def _cuda_headers() -> tuple[str, ...]:
    """Return the folders of the CUDA headers: those of the release chosen, and behind them the installed ones."""
    release = _release()
    installed = _installed_headers(directory() / "headers" / _installed_version())
    return (*release.headers, *installed) if release else installed


@cache
def _installed_headers(kept: Path) -> tuple[str, ...]:
    """Return the folders of the CUDA headers, unpacked as ``kept`` from NVRTC's own library.

    NVRTC 13.0 to 13.2 carries none; then those of an installed CUDA toolkit or wheel are used.
    """
    if _complete(kept) or _unpack(kept):
        return str(kept), str(kept / "cccl")
    temporary = tempfile.mkdtemp(prefix="ptxlab-headers-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    if _unpack(apart := Path(temporary, "headers")):
        return str(apart), str(apart / "cccl")
    from cuda.pathfinder import find_nvidia_header_directory

    folder = find_nvidia_header_directory("cudart")
    return (folder, os.path.join(folder, "cccl")) if folder else ()


def _complete(folder: Path) -> bool:
    return (folder / "cuda_fp16.h").is_file()


def _unpack(folder: Path) -> bool:
    """Unpack NVRTC's bundled headers and say whether they are there.

    Another process may do the same at this moment: they are unpacked beside the folder, which is all
    of them or none.
    """
    nvrtc = _installed()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent)
    except OSError:
        return False
    try:
        status, *_ = nvrtc.nvrtcInstallBundledHeaders(
            os.fsencode(draft), nvrtc.NVRTC_INSTALL_HEADERS_FORCE_OVERWRITE
        )
        if int(status) != 0:
            return False
        if folder.is_dir() and not _complete(folder):  # what an interrupted process has left
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # where another process was first
            os.rename(draft, folder)
        return _complete(folder)
    except (AttributeError, RuntimeError):  # an older binding, or an older library
        return False
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _compile(part: DevicePart, arch: str, arguments: Sequence[str]) -> bytes:
    """Return PTX."""
    with _compiled(part, arch, arguments) as program:
        return _ptx(program)


def _assemble(part: DevicePart, arch: str, arguments: Sequence[str]) -> bytes:
    """Return PTX, the log of ptxas and the cubin, packed."""
    nvrtc = _library()
    with _compiled(part, arch, arguments) as program:
        image = _fetched(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        return packed(_ptx(program), _log(program), image)


@contextmanager
def _compiled(part: DevicePart, arch: str, arguments: Sequence[str]) -> Iterator[Any]:
    """Run NVRTC until what is left of a program is the device's; within, its results can be fetched."""
    alone = ""  # what NVRTC said before the prelude was there, which may itself not compile
    while True:
        with _tried(part, arguments) as (program, accepted):
            if accepted:
                yield program
                return
            log = _log(program).decode(errors="replace")
        alone = alone or log
        if not part.reduce(log):
            own = any(part.known(rejected.path) for rejected in rejections(log))
            raise _rejected(part, arch, log if own or part.wanted else alone)


@contextmanager
def _tried(part: DevicePart, arguments: Sequence[str]) -> Iterator[tuple[Any, bool]]:
    """Run NVRTC once; within, there is what came of it, and whether it took the program."""
    nvrtc = _library()
    headers = part.headers()
    contents, names = ([text.encode() for text in texts] for texts in (headers.values(), headers))
    status, program = nvrtc.nvrtcCreateProgram(
        part.text().encode(), part.path.encode(), len(headers), contents, names
    )
    if int(status):
        raise ToolchainError(f"NVRTC did not take {part.path}: {status.name}")
    try:
        for name in part.instances():
            nvrtc.nvrtcAddNameExpression(program, name.encode())
        given = [*arguments, *part.options()]
        if part.needs_headers:
            given += [f"-I{entry}" for entry in _cuda_headers()]
        (status,) = nvrtc.nvrtcCompileProgram(
            program, len(given), [option.encode() for option in given]
        )
        yield program, not int(status)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _ptx(program: Any) -> bytes:
    nvrtc = _library()
    return _fetched(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0")


def _log(program: Any) -> bytes:
    nvrtc = _library()
    log = _fetched(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    return log.rstrip(b"\0")


def _fetched(size: Any, get: Any, program: Any) -> bytes:
    _, length = size(program)
    buffer = bytes(length)
    get(program, buffer)  # writes into the bytes object, as the binding documents
    return buffer


def _rejected(part: DevicePart, arch: str, log: str) -> ToolchainError:
    """Turn NVRTC's log into an error at the first place it names."""
    hint = None
    absent, unknown = _NO_HEADER.search(log), _UNDEFINED.search(log)
    if absent:
        hint = f"-I FOLDER says where {absent['name']} is"
    elif unknown and (why := part.why_left_out(unknown["name"])):
        hint = why
    elif "--gpu-architecture" in log:
        hint = f"NVRTC {version()} does not compile for {arch}"
    location = None
    first = next(rejections(log), None)
    if first is not None and first.path == INSTANCES:
        heads = [template.head for template in part.templates()]
        return ToolchainError(
            f"{part.path} has no kernel {', '.join(part.wanted)}: {first.what}",
            hint=hint or (f"it has {'; '.join(heads)}" if heads else None),
        )
    if first is not None:
        known = part.known(first.path)
        lines = [] if known is None else part.texts[known].splitlines()
        text = lines[first.line - 1] if first.line <= len(lines) else first.text
        location = Location(first.path, first.line, max(first.column, 1), text)
    message = f"NVRTC rejected this CUDA C for {arch}\n{log.strip()}"
    return ToolchainError(message, location=location, hint=hint)
