"""What ``ptxlab doctor`` found, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ptxlab.installation import this_platform
from ptxlab.toolchain.inventory import Tool
from ptxlab.view.text import fields

SCHEMA = "ptxlab.doctor/1"


Report = dict[str, Any]
"""What was found, as the JSON has it; a ``problem`` is "" where there is none."""


def text(report: Report) -> str:
    pairs = [
        ("ptxlab", f"{report['version']}, in {report['home']}"),
        ("Python", f"{report['python']}, {report['executable']}"),
        ("system", report["platform"]),
        *(
            (tool.name, f"{tool.version}, {tool.path}")
            for tool in report["tools"]
            if not tool.problem
        ),
        *((tool.name, _absent(tool)) for tool in report["tools"] if tool.problem),
        *(
            (package["name"], package["version"] or _missing(package))
            for package in report["packages"]
        ),
        ("clients", ", ".join(map(" ".join, report["clients"].items())) or "none"),
        ("driver", _driver(**report["driver"])),
        *((f"GPU {gpu['ordinal']}", _gpu(**gpu)) for gpu in report["gpus"]),
        *_newest(report["newest_ptx"]),
        ("cache", f"{report['cache']}, {report['cache_bytes'] / 1e6:.1f} MB"),
    ]
    works = [
        ("works", ""),
        *((f"  {name}", _verdict(problem)) for name, problem in _tried(report)),
    ]
    lines = [*fields(pairs), "", *fields(works)]
    if advice := _advice(report):
        lines += ["", "to do", *(f"  {line}" for line in advice)]
    return "\n".join(line.rstrip() for line in lines)


def as_json(report: Report) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **report,
        "tools": [asdict(tool) for tool in report["tools"]],
        "works": {name: not problem for name, problem in _tried(report)},
        "advice": _advice(report),
    }


def _absent(tool: Tool) -> str:
    return (
        f"not installed: only for {tool.only_for}" if tool.only_for else f"absent: {tool.problem}"
    )


def _driver(version: int, newest_ptx: str, problem: str) -> str:
    if problem:
        return problem.splitlines()[0]
    major, minor = divmod(version, 1000)
    ptx = f", takes PTX .version {newest_ptx} and older" if newest_ptx else ""
    return f"CUDA {major}.{minor // 10}{ptx}"


def _gpu(ordinal: int, name: str, arch: str, problem: str) -> str:
    return f"{name}, {arch}" if name else f"does not open: {problem}"


def _verdict(problem: str) -> str:
    return f"no: {problem.splitlines()[0]}" if problem else "yes"


def _tried(report: Report) -> list[tuple[str, str]]:
    gpus = [(f"GPU {gpu['ordinal']}", gpu["problem"]) for gpu in report["gpus"]]
    none = report["driver"]["problem"] or "the driver shows none"
    tried = [report["emulator"], *report["toolchain"]]
    return [*((part["name"], part["problem"]) for part in tried), *(gpus or [("a GPU", none)])]


def _advice(report: Report) -> list[str]:
    gpu = "a GPU needs the NVIDIA driver, R580 or newer; without one, all runs on the emulator"
    return [*report["advice"], *([] if report["gpus"] else [gpu])]


def _missing(package: Report) -> str:
    """Say that a package is not there, and what that costs."""
    where = "not installed" if package["advice"] else f"there is none for {this_platform()}"
    return f"{where}: {package['costs']}" if package["costs"] else where


def _newest(version: str) -> list[tuple[str, str]]:
    return [("PTX", f"nvJitLink takes .version {version} and older")] if version else []
