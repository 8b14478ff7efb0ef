"""What happens inside a program that ``ptxlab exec`` runs: frameworks get the emulator as they are imported.

Each process of the program leaves a report in the folder that its parent made.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

import ptxlab
from ptxlab.clients import cupy, cute, tilelang
from ptxlab.clients.imports import AfterImport, Hook
from ptxlab.errors import PtxlabError
from ptxlab.verbs.exec.looks import FIRST, Looking, means

if TYPE_CHECKING:
    from ptxlab.clients.launched import Launched
    from ptxlab.clients.session import Session

VARIABLE = "PTXLAB_EXEC"
"""The environment variable with the options, as JSON; without it nothing happens."""


@dataclass(frozen=True, slots=True)
class Options:
    """What ``ptxlab exec`` was asked for; reports go to ``folder``.

    ``launch`` says which launches are checked, all where it is "", and which is looked into by the verbs ``asked``, the
    first one; ``data`` whether what they say is wanted as JSON too.
    """

    arch: str
    check: bool
    timeout: float
    folder: str
    launch: str = ""
    asked: Mapping[str, str] = field(default_factory=dict)
    data: bool = False


def _torch(module: ModuleType) -> None:
    from ptxlab.clients.torch import extensions
    from ptxlab.clients.torch.module import install

    install(session().device.target)
    extensions.install(session())


def _triton(module: ModuleType) -> None:
    from ptxlab.triton import use_emulator

    use_emulator(session=session())


def _driver(module: ModuleType) -> None:
    from ptxlab.driver import install

    install(_options().arch, session=session())


HOOKS: dict[str, Hook] = {
    "torch": _torch,
    "triton": _triton,
    cute.FIRST: _driver,
    "cuda.bindings": _driver,
    cupy.FIRST: _driver,
    "numba": _driver,
    "taichi": _driver,
    tilelang.FIRST: _driver,
    "tinygrad": _driver,
    "warp": _driver,
}
"""What is done when a package has been imported."""


def begin() -> None:
    """Wait for imports, and report at the end."""
    if VARIABLE in os.environ:
        sys.meta_path.insert(0, AfterImport(HOOKS))
        sys.excepthook = _tell
        atexit.register(_report)
        os.register_at_fork(after_in_child=_forget)


def _options() -> Options:
    return Options(**json.loads(os.environ[VARIABLE]))


@cache
def session() -> Session:
    """Return the session of this process, opened when it is first needed."""
    from ptxlab.cli.progress import LaunchProgress
    from ptxlab.clients.session import Session

    options = _options()
    look = _look if options.launch or options.asked else None
    limit = LaunchProgress(options.timeout)
    return Session(options.arch, check=options.check, look=look, progress=limit)


@cache
def _looking() -> Looking:
    options = _options()
    return Looking(options.launch or FIRST, options.asked, options.data)


def _look(launched: Launched) -> None:
    """See to a launch that is about to be made: whether it is checked, and what else is wanted of it."""
    options = _options()
    if options.launch:
        wanted = means(options.launch, launched.number, launched.kernel.name)
        session().check = options.check and wanted
    _looking().at(launched)


_failed: list[int] = []


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say of a refusal or a fault where the program launched it; other errors are Python's to tell."""
    if not isinstance(error, PtxlabError):
        sys.__excepthook__(kind, error, trace)
        return
    from ptxlab.cli.failures import report

    _failed.append(report(error, as_json=False))
    own = [frame for frame in traceback.extract_tb(trace) if not _is_library(frame.filename)]
    if own:
        print(f"launched from {own[-1].filename}:{own[-1].lineno}", file=sys.stderr)


def _is_library(path: str) -> bool:
    libraries = (os.path.dirname(ptxlab.__file__), os.path.dirname(os.__file__))
    return "site-packages" in path or path.startswith(libraries)


def _forget() -> None:
    """Leave to the parent of a forked process what that has launched."""
    if session.cache_info().currsize:
        session().usage.clear()
        session().reports.clear()


def _report() -> None:
    """Write what this process launched, where it launched anything."""
    if not session.cache_info().currsize:
        return
    usage = {name: asdict(usage_of) for name, usage_of in session().usage.items()}
    report: dict[str, object] = {"usage": usage, "checks": [], "status": max(_failed, default=0)}
    report["began"] = session().last is not None
    if _looking.cache_info().currsize:
        report["looked"] = _looking().told
    if session().reports:
        from ptxlab.verbs.check import text as view

        report["checks"] = [
            {"text": view.text(report, view.sources_of(report)), "json": view.as_json(report)}
            for report in session().reports
        ]
    Path(_options().folder, f"{os.getpid()}.json").write_text(json.dumps(report), encoding="utf-8")
