"""What the verbs say of a result that was had in Python: their own text, JSON and page of it."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Mapping
from html import escape
from typing import Any, NamedTuple

from ptxlab.files import write_whole
from ptxlab.pictured import Readable
from ptxlab.view.json import write
from ptxlab.view.sources import read_sources

_PAGE_HEIGHT = 720
"""Of a page in a notebook, in pixels."""


class Said(NamedTuple):
    """What a verb says: as text and as plain data, and as a page where it has one."""

    text: Callable[[], str]
    as_json: Callable[[], Mapping[str, Any]]
    page: Callable[[], str] | None = None


def said(result: Readable) -> Said:
    """Return what the verb that makes such results says of one."""
    return _VERBS[type(result).__name__](result)


def framed(result: Readable) -> str:
    """Return the page of a result in a frame, or its text, as a notebook shows it."""
    about = said(result)
    if about.page is None:
        return f"<pre>{escape(about.text())}</pre>"
    style = f"width:100%;height:{_PAGE_HEIGHT}px;border:0"
    return f'<iframe style="{style}" srcdoc="{escape(about.page())}"></iframe>'


def written(result: Readable, path: str | os.PathLike[str]) -> str:
    """Return what is said of a result in the form that the name of a file ends with: .html, .json or any other."""
    about, name = said(result), os.fspath(path)
    if name.endswith(".json"):
        return write(about.as_json()) + "\n"
    return about.page() if name.endswith(".html") and about.page else about.text().rstrip() + "\n"


def save(result: Readable, path: str | os.PathLike[str]) -> None:
    write_whole(path, written(result, path).encode(errors="backslashreplace"))


# ---- verb by verb; what each needs is imported when it is asked for -------------------------


def _trace(timeline: Any) -> Said:
    from ptxlab.verbs.trace import page, text

    sources = text.sources_of(timeline)
    return Said(
        lambda: text.text(timeline),
        lambda: text.as_json(timeline, sources),
        lambda: page.page(timeline, sources),
    )


def _step(recording: Any) -> Said:
    from ptxlab.verbs.step import page, text

    return Said(
        lambda: text.text(recording),
        lambda: text.as_json(recording),
        lambda: page.page(recording),
    )


def _profile(profile: Any) -> Said:
    from ptxlab.verbs.profile import page, text

    sources = read_sources(profile.sources)
    by = text.counted_by(profile, None, profile.path)
    return Said(
        lambda: text.text(profile, sources, by=by),
        lambda: text.as_json(profile, sources),
        lambda: page.page(profile, sources),
    )


def _check(report: Any) -> Said:
    from ptxlab.verbs.check import text

    return Said(
        lambda: text.text(report, text.sources_of(report)),
        lambda: text.as_json(report),
    )


def _dump(dumped: Any) -> Said:
    from ptxlab.verbs.dump import text

    shown = text.ShownDump.of_first(dumped)
    return Said(
        lambda: text.text(shown),
        lambda: {**text.as_json(shown), "expectations": []},
    )


def _diff(report: Any) -> Said:
    from ptxlab.verbs.diff import text

    path = report.launch.module.source.path
    return Said(lambda: text.text(path, report), lambda: text.as_json(path, report))


def _predict(prediction: Any) -> Said:
    from ptxlab.verbs.predict import text

    return Said(
        lambda: text.text([prediction]),
        lambda: text.as_json([prediction]),
    )


def _judge(judgement: Any) -> Said:
    from ptxlab.verbs.judge import text

    return Said(lambda: text.text(judgement), lambda: text.as_json(judgement))


def _sass(assembly: Any) -> Said:
    from ptxlab.toolchain.machine_code import entries
    from ptxlab.verbs.sass import text
    from ptxlab.verbs.sass.listing import Listing
    from ptxlab.verbs.sass.programs import AssembledProgram, kernel, of_module

    module, cubin, config = assembly.module, assembly.cubin, assembly.launched
    threads, shared = (config.cta_threads, config.shared) if config else (None, 0)
    if module is None:
        path = f"machine code for {cubin.arch}"
        known = entries(cubin.image, cubin.arch)
        kernels = [kernel(assembly, entry.used, threads, shared) for entry in known]
    else:
        path = module.source.path
        given = Namespace(block=config and config.block, shared=shared)
        kernels = [*of_module(given, assembly, module)]
    program = AssembledProgram(path, assembly, tuple(kernels))
    sources = read_sources({line.path for line in assembly.sources.values()})
    return Said(
        lambda: text.text([program], Listing(sources), compared=False),
        lambda: text.as_json([program], (), path, None),
    )


_VERBS: Mapping[str, Callable[[Any], Said]] = {
    "Assembly": _sass,
    "CheckReport": _check,
    "DiffReport": _diff,
    "Dumped": _dump,
    "Judgement": _judge,
    "Prediction": _predict,
    "Profile": _profile,
    "Recording": _step,
    "Timeline": _trace,
}
"""By the name of the class of a result."""
