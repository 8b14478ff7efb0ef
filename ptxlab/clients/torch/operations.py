"""What PyTorch's own table says of an operation on "cuda": whether it has one, and what it checks.

Source: native_functions.yaml, which comes with PyTorch and of which its dispatcher is generated. The
names in the texts of its checks are made as in torchgen/dest/register_dispatch_key.py.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import torch

_TABLE = ("packaged", "ATen", "native", "native_functions.yaml")
_DISPATCH = re.compile(r"^  dispatch:.*\n((?:    .*\n)+)", re.MULTILINE)
_STRUCTURED = re.compile(r"^  structured(_delegate)?: ", re.MULTILINE)
_OUT = re.compile(r"^[^\n]*\*,[^>\n]* Tensor\(\w!\)")
_DELEGATE = re.compile(r"^  structured_delegate: ([\w.]+)", re.MULTILINE)


@cache
def _table() -> dict[str, str]:
    """Return what the table has of each operation, such as add.Tensor."""
    folder = Path(torch.__file__).parents[1] / "torchgen"
    text = folder.joinpath(*_TABLE).read_text(encoding="utf-8")
    return {each.split("(", 1)[0]: each + "\n" for each in text.split("\n- func: ")[1:]}


def declaration(name: str) -> str:
    """Return what the table has of an operation of ``aten``; nothing of others."""
    return _table().get(name, "")


def backends(name: str) -> set[str]:
    """Return the backends that have a kernel of their own for an operation, and Composite ones."""
    declared = declaration(name)
    delegate = _DELEGATE.search(declared)
    match = _DISPATCH.search(declaration(delegate[1]) if delegate else declared)
    lines = match[1].splitlines() if match else []
    told = [line.split(":")[0] for line in lines if not line.lstrip().startswith("#")]
    return {backend.strip() for line in told for backend in line.split(",")}


def is_missing(name: str) -> bool:
    """Say whether an operation that a CPU has is none of a GPU's."""
    has = backends(name)
    return "CPU" in has and not _elsewhere(has, "CUDA")


def of_gpus_alone() -> list[str]:
    """Return the operations for which there are kernels on "cuda" and none on a CPU."""
    told = {name: backends(name) for name, text in _table().items() if "CUDA" in text}
    return [name for name, has in told.items() if "CUDA" in has and not _elsewhere(has, "CPU")]


def _elsewhere(has: set[str], backend: str) -> bool:
    """Say whether a backend has an operation, or has it put together of others."""
    return any(each == backend or each.startswith("Composite") for each in has)


def checked_as(name: str) -> str | None:
    """Return what the check calls an operation that all its tensors are on one device, None without one."""
    declared = declaration(name)
    if not declared or "\n  device_check: NoCheck" in declared:
        return None
    base, _, overload = name.partition(".")
    out = "_out" if _OUT.search(declared) else ""
    if _STRUCTURED.search(declared):
        return "_".join(filter(None, (f"wrapper_CUDA_{base}{out}", overload)))
    return f"wrapper_CUDA_{overload}_{base}{out}"
