"""A program as it is being typed: what is wrong with it, which kernels it has, and how its header launches them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ptxlab.device.loading import find_file, is_cuda, load_ptx
from ptxlab.emulator import prepare
from ptxlab.errors import PtxlabError, ToolchainError
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS, Target
from ptxlab.syntax.functions import parameters
from ptxlab.syntax.header import read_header
from ptxlab.syntax.names import called
from ptxlab.syntax.parser import parse
from ptxlab.syntax.tree import PtxModule
from ptxlab.toolchain.host_code import rejections
from ptxlab.toolchain.wheels import ToolAbsent
from ptxlab.verbs.launching.launch import fill_in, needed_target, run_lines
from ptxlab.verbs.launching.options import compilation
from ptxlab.view.json import members


def diagnosis(args: argparse.Namespace) -> dict[str, Any]:
    """Return what there is to say of ``args.file``, whose options are those of ``ptxlab run``.

    ``faults`` are messages with hints and the line and column where each begins, line 0 for nowhere in the text; of
    each kernel it is the first thing that its target does not take. ``kernels`` have their parameters, none while the text
    cannot be read; ``runs`` are the launches that its header tells, by kernel; ``arch`` is its target.
    """
    path = find_file(args.file)
    target = TARGETS[args.arch or needed_target(path) or DEFAULT_TARGET]
    faults: list[dict[str, Any]] = []
    module: PtxModule | None = None
    try:
        module = _read(args, path, target)
    except ToolAbsent as error:  # which is no fault of the program
        faults.append(_fault(error) | {"severity": "info"})
    except ToolchainError as error:
        faults += _of_compiler(error, args.file)
    except PtxlabError as error:
        faults.append(_fault(error))
    if module is not None and not is_cuda(args.file):
        faults += _of_kernels(module, target)
    text = path.read_text(encoding="utf-8")
    return {
        "faults": list({(fault["line"], fault["message"]): fault for fault in faults}.values()),
        "kernels": [] if module is None else _kernels(module, text),
        "runs": _runs(path),
        "arch": target.name,
        "expect": read_header(text, args.file).expect,
    }


def of_python(text: str) -> dict[str, Any]:
    """Return the same of a program in Python, which launches what it likes."""
    faults = []
    try:
        compile(text, "<lab>", "exec", dont_inherit=True)
    except SyntaxError as error:
        faults = [
            {
                "severity": "error",
                "line": error.lineno or 0,
                "column": error.offset or 1,
                "message": error.msg,
                "hint": None,
            }
        ]
    return {"faults": faults, "kernels": [], "runs": [], "arch": DEFAULT_TARGET, "expect": ""}


def _read(args: argparse.Namespace, path: Path, target: Target) -> PtxModule:
    if is_cuda(args.file):
        fill_in(args, path)
        return load_ptx(Path(args.file), target, compilation(args, line_info=True))
    module = parse(path.read_text(encoding="utf-8"), args.file)
    return load_ptx(module, target)


def _of_kernels(module: PtxModule, target: Target) -> Iterator[dict[str, Any]]:
    for entry in module.entries:
        try:
            prepare(module, target, entry.name)
        except PtxlabError as error:
            yield _fault(error)


def _fault(error: PtxlabError) -> dict[str, Any]:
    where = error.location
    line, column = (where.line, where.column) if where else (0, 1)
    return {
        "severity": "error",
        "line": line,
        "column": column,
        **members(error, "message", "hint"),
    }


def _of_compiler(error: ToolchainError, file: str) -> list[dict[str, Any]]:
    """Return every error in what NVRTC said; those in headers stand nowhere in the text."""
    faults = [
        {
            **_fault(error),
            "line": fault.line if Path(fault.path).name == file else 0,
            "column": max(fault.column, 1),
            "message": fault.what,
        }
        for fault in rejections(error.message)
    ]
    return faults or [_fault(error)]


def _kernels(module: PtxModule, text: str) -> list[dict[str, Any]]:
    try:
        about = read_header(text).parameters
    except PtxlabError:
        about = {}
    return [
        {
            "name": called(entry.name),
            "parameters": [
                {"name": each.name, "type": each.type, "about": about.get(each.name, "")}
                for each in parameters(entry, module.source)
            ],
        }
        for entry in module.entries
    ]


def _runs(path: Path) -> list[dict[str, Any]]:
    """Return what the ``Run:`` lines of a header say, in the words of the command line."""
    try:
        runs = run_lines(path)
    except PtxlabError:
        return []
    return [
        {
            **members(run, "kernel", "shared", "cooperative", "arg", "set", "D", "std"),
            **{
                name: sizes and ",".join(map(str, sizes))
                for name in ("grid", "block", "cluster")
                for sizes in [getattr(run, name)]
            },
        }
        for run in runs
    ]
