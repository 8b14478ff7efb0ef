"""A function of Triton as a candidate: compiled to PTX for arguments of these types, and judged as PTX.

The signature, constants and attributes that Triton's own launch makes of arguments: triton/runtime/jit.py.
"""

from __future__ import annotations

import copyreg
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ptxlab.errors import Location, PtxlabError, Unsupported
from ptxlab.isa.targets import WARP, Target

_SCRATCH = ("global_scratch", "profile_scratch")
"""Pointers that each kernel of Triton takes behind its own arguments, here 0."""

_ALIGNED = [["tt.divisibility", 16]]
"""What Triton knows of the address of a tensor."""


def is_triton(candidate: object) -> bool:
    """Say whether a candidate is a function that ``triton.jit`` made."""
    return hasattr(candidate, "arg_names") and hasattr(candidate, "params")


def pickle_by_file() -> None:
    """Have functions of Triton, which hold locks, be pickled as their file and name: who reads one runs that file."""
    from triton.runtime.jit import JITFunction

    copyreg.pickle(
        JITFunction, lambda function: (_found, (_file(function), function.fn.__qualname__))
    )


@cache
def _found(file: str, name: str) -> Any:
    return runpy.run_path(file)[name]


def _file(function: Any) -> str:
    file: str = function.fn.__code__.co_filename
    return file


@dataclass(frozen=True)
class TritonFunction:
    """A function as PTX ``text`` that wants ``shared`` bytes, takes the arguments called ``takes`` and was made with ``constants``."""

    text: str
    shared: int
    takes: Sequence[str]
    constants: Mapping[str, Any]

    def passed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a launch passes of arguments. Raises Unsupported where constants are others."""
        for name, value in self.constants.items():
            if arguments.get(name, value) != value:
                raise Unsupported(
                    f"{name} is a constexpr, and depends on the sizes",
                    hint="a module with ModelNew compiles its kernel anew for each size",
                )
        return {**{name: arguments[name] for name in self.takes}, **dict.fromkeys(_SCRATCH, 0)}


def compiled(
    function: Any, arguments: Mapping[str, Any], threads: int, target: Target
) -> TritonFunction:
    """Compile a function for so many threads of a CTA. Raises PtxlabError where it does not compile."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.errors import CompilationError

    if missing := set(function.arg_names) ^ set(arguments):
        raise PtxlabError(
            f"{function.__name__} takes {', '.join(function.arg_names)}, and {', '.join(sorted(missing))} is of one side alone",
            hint="arguments have the names of the function's parameters, constexpr too",
        )
    if threads % WARP:
        raise PtxlabError(f"a CTA of {threads} threads is no whole number of warps")
    constants = {each.name: arguments[each.name] for each in function.params if each.is_constexpr}
    signature = {
        name: "constexpr" if name in constants else _type(name, arguments[name])
        for name in function.arg_names
    }
    places = {name: (at,) for at, name in enumerate(function.arg_names)}
    source = ASTSource(
        function,
        signature,
        constexprs={places[name]: value for name, value in constants.items()},
        attrs={places[name]: _ALIGNED for name, kind in signature.items() if kind[0] == "*"},
    )
    number = int(target.name.removeprefix("sm_").rstrip("af"))
    try:
        kernel = triton.compile(
            source, target=GPUTarget("cuda", number, WARP), options={"num_warps": threads // WARP}
        )
    except CompilationError as error:
        line = function.def_file_line_number + getattr(error.node, "lineno", 1) - 1
        where = Location(_file(function), line, 1, "")
        raise PtxlabError(str(error.error_message or error), location=where) from None
    if kernel.metadata.global_scratch_size:
        raise Unsupported(f"{function.__name__} wants memory of its own beside its arguments")
    takes = [name for name in function.arg_names if name not in constants]
    return TritonFunction(kernel.asm["ptx"], kernel.metadata.shared, takes, constants)


def _type(name: str, value: Any) -> str:
    """Return what Triton calls the type of an argument."""
    from triton._utils import type_canonicalisation_dict as called

    if isinstance(value, np.ndarray):
        if value.dtype.name not in called:
            raise Unsupported(f"{name} is of {value.dtype}, of which Triton has no tensors")
        return f"*{called[value.dtype.name]}"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(1 << 31) <= int(value) < 1 << 31 else "i64"
