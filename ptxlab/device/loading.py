"""From what a user names to a program: a .ptx or .cu file, a shipped one, or PTX text."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from ptxlab import resources
from ptxlab.errors import Location, PtxlabError, PtxSyntaxError, Unsupported, did_you_mean
from ptxlab.files import read_text
from ptxlab.isa.targets import Target
from ptxlab.syntax import to_text
from ptxlab.syntax.names import called, matching
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import PtxModule

if TYPE_CHECKING:
    from ptxlab.toolchain import Cubin

Loadable = str | os.PathLike[str] | PtxModule
"""A program: the path of a ``.ptx`` or ``.cu`` file, PTX text, or PTX already parsed."""

CUDA_SUFFIXES = (".cu", ".cuh")
_SUFFIXES = (".ptx", *CUDA_SUFFIXES, ".cubin", ".fatbin")
_T = TypeVar("_T")

STANDARD_INPUT = "-"
"""What a program that comes through a pipe is called."""


def load_ptx(source: Loadable, target: Target, options: Sequence[str] = ()) -> PtxModule:
    """Parse the PTX of ``source`` for a device of ``target``; CUDA C is compiled for it first.

    ``source`` is a path, ``-`` for standard input, PTX text (a string that contains ``.version``) or PTX already parsed. A path
    that does not exist is looked up among the programs that come with ptxlab (``ptx/x.ptx``,
    ``kernels/x.cu``). Raises PtxlabError when there is no such file, ToolchainError, PtxSyntaxError,
    Unsupported for machine code, and OtherTarget when its ``.target`` cannot run on ``target``.
    """
    if isinstance(source, PtxModule):
        _refuse_other_targets(source, target)
        return source
    if is_cuda(source):
        from ptxlab.toolchain import compile_cuda  # here: PTX can spare it

        compilation = _compilation(source, target, options)
        return _parsed(compile_cuda(**compilation), compilation, source, target)
    name = "<ptx>" if is_text(source) else _named(source)
    if is_machine_code(source):
        raise Unsupported(
            f"{name} is machine code, and this takes PTX or CUDA C",
            hint="--engine sass runs it, --device cuda a GPU; or give the .ptx or .cu it was made from",
        )
    if options:
        raise PtxlabError(f"options are for compiling CUDA C; {name} is PTX already")
    text = os.fspath(source) if is_text(source) else _read(find_file(source), name)
    module = parse(text, name, skim=True)
    _refuse_other_targets(module, target)
    return module


def load_cubins(source: str | os.PathLike[str], target: Target) -> list[Cubin]:
    """Return the machine code for ``target`` in a file, of each part of it. Raises PtxlabError where there is none."""
    from ptxlab.machine.binary import machine_code  # here: PTX can spare it

    try:
        image = find_file(source).read_bytes()
    except OSError as error:
        raise PtxlabError(f"cannot read {_named(source)}: {error.strerror}") from None
    return machine_code(image, target, _named(source))


def load_assembled(
    source: Loadable, target: Target, options: Sequence[str] = ()
) -> tuple[PtxModule, Cubin]:
    """Parse the PTX of ``source`` as ``load_ptx`` does, and assemble it for ``target``.

    Where the user names a release without NVRTC, CUDA C goes through its PTX, as the installed NVRTC writes it.
    Raises what ``load_ptx`` does: PtxlabError, ToolchainError, PtxSyntaxError, Unsupported, OtherTarget.
    """
    from ptxlab.toolchain import assemble_cuda, compile_cuda, link_ptx
    from ptxlab.toolchain.release import chosen

    if is_cuda(source):
        compilation = _compilation(source, target, options)
        release = chosen()
        if release is not None and not release.compiler:
            from ptxlab.toolchain.inventory import lowered

            ptx = lowered(compile_cuda(**compilation))
            module = _parsed(ptx, compilation, source, target)
            return module, link_ptx(ptx, arch=target.name, path=module.source.path)
        ptx, cubin = assemble_cuda(**compilation)
        return _parsed(ptx, compilation, source, target), cubin
    module = load_ptx(source, target, options)
    # A tree that was rewritten is no longer what its text says.
    text = to_text(source) if isinstance(source, PtxModule) else module.source.text
    return module, link_ptx(text, arch=target.name, path=module.source.path)


def _parsed(
    ptx: str, compilation: Mapping[str, Any], source: str | os.PathLike[str], target: Target
) -> PtxModule:
    """Parse the PTX that CUDA C became; its kernels' parameters are called as they were there."""
    module = parse(ptx, f"{_named(source)} (PTX)", skim=True)
    _refuse_other_targets(module, target)
    kernels = {entry.name: len(entry.parameters) for entry in module.entries}
    from ptxlab.toolchain.nvrtc import source_texts  # here: PTX can spare it
    from ptxlab.toolchain.source_kernels import source_parameters

    names = source_parameters(source_texts(**compilation), kernels)
    return replace(module, source=replace(module.source, arguments=names))


def _compilation(
    source: str | os.PathLike[str], target: Target, options: Sequence[str]
) -> dict[str, Any]:
    """Return what the compiler is to be given for a .cu file."""
    file, name = find_file(source), _named(source)
    return {
        "source": _read(file, name),
        "path": str(file) if resources.shipped(name) == file else name,
        "arch": target.name,
        "options": options,
        "include_paths": [resources.path("kernels")],
    }


def is_cuda(source: Loadable) -> TypeGuard[str | os.PathLike[str]]:
    """Say whether ``source`` is the path of a .cu or .cuh file. Raises PtxlabError for an empty standard input."""
    return _suffix(source) in CUDA_SUFFIXES


def is_cubin(source: Loadable) -> TypeGuard[str | os.PathLike[str]]:
    """Say whether ``source`` is the path of a .cubin file. Raises PtxlabError as ``is_cuda`` does."""
    return _suffix(source) == ".cubin"


def is_machine_code(source: Loadable) -> TypeGuard[str | os.PathLike[str]]:
    """Say whether ``source`` is the path of a cubin or fatbin, or of a program that has some inside."""
    if isinstance(source, PtxModule) or is_text(source):
        return False
    return find_file(source).suffix not in (".ptx", *CUDA_SUFFIXES)


def _starts_as_machine_code(path: Path) -> bool:
    from ptxlab.toolchain.fatbin import starts_as_machine_code  # here: PTX can spare it

    try:
        with path.open("rb") as file:
            return starts_as_machine_code(file.read(4))
    except (OSError, ValueError):  # or for a name with a NUL in it
        return False


def _suffix(source: Loadable) -> str:
    """Return how the path that ``source`` is ends, "" for PTX."""
    if isinstance(source, PtxModule) or is_text(source):
        return ""
    return (_standard_input() if os.fspath(source) == STANDARD_INPUT else Path(source)).suffix


def is_text(source: Loadable) -> TypeGuard[str]:
    """Say whether ``source`` is PTX text and not a path."""
    return isinstance(source, str) and (".version" in source or "\n" in source)


class OtherTarget(Unsupported):
    """PTX for a target, ``needed``, that a device is not."""

    def __init__(self, needed: str, target: Target, location: Location) -> None:
        super().__init__(
            f".target {needed} does not run on {target.name}",
            location=location,
            hint=f"the emulator can be one: --device emulator --arch {needed}",
        )
        self.needed = needed


def find_file(source: str | os.PathLike[str]) -> Path:
    """Return the file that a path means, on its own or among those that come with ptxlab.

    Raises PtxlabError where there is none, with names that are like it, and for a file of another kind.
    """
    path = Path(source)
    if os.fspath(source) == STANDARD_INPUT:
        return _standard_input()
    folder = os.path.isdir(path)
    inside = os.listdir(path) if folder else []
    if not path.suffix and not inside:  # a folder that comes with ptxlab, as ptx
        inside = [name for name in resources.names() if Path(name).parent == path]
    if folder or inside:
        programs = ", ".join(sorted(name for name in inside if name.endswith(_SUFFIXES))[:5])
        raise PtxlabError(
            f"there is no file {path}, it is a folder",
            hint=f"name a file: {programs or 'there is no program in it'}",
        )
    if path.suffix not in _SUFFIXES and not _starts_as_machine_code(path):
        raise PtxlabError(f"{path} is neither a .ptx, .cu, .cubin or .fatbin file nor PTX text")
    if os.path.isfile(path):  # which is False of a name too long to be one
        return path
    shipped = resources.shipped(path.as_posix())
    if shipped is not None:
        return shipped
    known = [name for name in resources.names() if name.endswith(_SUFFIXES)]
    hint = did_you_mean(str(path), sorted({*_beside(path), *known}), most=3)
    raise PtxlabError(f"there is no file {path}", hint=hint)


@cache
def _standard_input() -> Path:
    """Keep what standard input has in a file, which is called by what it holds, as long as ptxlab runs."""
    from ptxlab.toolchain.fatbin import starts_as_machine_code

    content = sys.stdin.buffer.read()
    if not content.strip():
        raise PtxlabError(
            "standard input is empty", hint="pipe a program in: nvcc -ptx -o - x.cu | ..."
        )
    machine_code = starts_as_machine_code(content)
    is_ptx = re.search(rb"^\s*\.version\b", content, re.MULTILINE)
    folder = tempfile.mkdtemp(prefix="ptxlab-stdin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, f"stdin{'.cubin' if machine_code else '.ptx' if is_ptx else '.cu'}")
    path.write_bytes(content)
    return path


def _named(source: str | os.PathLike[str]) -> str:
    """Return what errors call a file."""
    path = os.fspath(source)
    return _standard_input().name if path == STANDARD_INPUT else path


def _beside(path: Path) -> list[str]:
    """List the programs in the folder that ``path`` should be in."""
    try:
        files = [file for file in path.parent.iterdir() if file.is_file()]
        return [str(file) for file in files if file.suffix in _SUFFIXES]
    except OSError:
        return []


def pick(kernels: Mapping[str, _T], name: str | None, path: str) -> _T:
    """Return the kernel called ``name``, or by a part of it, or the only one when ``name`` is None.

    Raises PtxlabError where that is none, or several, with the names that there are.
    """
    if name is not None:
        return named(kernels, name, "kernel", path)
    if len(kernels) == 1:
        return next(iter(kernels.values()))
    if kernels:
        known = ", ".join(map(called, kernels))
        raise PtxlabError(f"{path} has {len(kernels)} kernels", hint=f"name one of {known}")
    raise PtxlabError(
        f"{path} has no kernel (.entry)",
        hint='an instance of a template is named with its arguments, as "scale<bf16,64>"; '
        "ptxlab exec -- FILE.cu runs a program by its main",
    )


def named(things: Mapping[str, _T], name: str, what: str, path: str) -> _T:
    """Return the kernel or variable, ``what`` says which, of that name: mangled or not, or a part of it.

    Raises PtxlabError where that is none, or several.
    """
    names = matching(things, name)
    if len(names) == 1:
        return things[names[0]]
    known = list(map(called, things))
    if names:
        several = ", ".join(map(called, names))
        raise PtxlabError(
            f"{path} has several {what}s that {name} may mean", hint=f"name one of {several}"
        )
    hint = did_you_mean(name, known, most=3) or (f"it has {', '.join(known)}" if known else None)
    raise PtxlabError(f"{path} has no {what} {name}", hint=hint)


def _read(file: Path, name: str) -> str:
    try:
        return read_text(file)
    except ValueError:
        raise PtxSyntaxError(f"{name} is not text") from None
    except OSError as error:
        raise PtxlabError(f"cannot read {name}: {error.strerror}") from None


def _refuse_other_targets(module: PtxModule, target: Target) -> None:
    """Refuse PTX whose ``.target`` or ``.address_size`` the device cannot run."""
    for needed in module.targets:
        if needed.startswith("sm_") and not target.runs(needed):
            raise OtherTarget(needed, target, _place(module, ".target", needed))
    if module.address_size == 32 and target.runs("sm_90"):
        raise Unsupported(
            f"addresses of 32 bits are not for {target.name}",
            location=_place(module, ".address_size", "32"),
            hint="write .address_size 64",
        )


def _place(module: PtxModule, directive: str, word: str) -> Location:
    """Return where the head of a module has ``word`` in the line of a directive."""
    lines = enumerate(module.source.text.splitlines(), 1)
    line = next((number for number, text in lines if text.lstrip().startswith(directive)), 1)
    text = module.source.line(line)
    return Location(module.source.path, line, max(text.find(word), 0) + 1, text)
