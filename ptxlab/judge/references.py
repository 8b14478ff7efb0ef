"""What a kernel should leave: a function in NumPy, of arrays and numbers by the names of the arguments.

    def reference(A, B, n):
        return {"C": A @ B}

It returns the arrays that the kernel writes by name, or the only one. What it takes of these is what they hold
before; what it does not take is poisoned. One that names PyTorch gets tensors instead.
"""

from __future__ import annotations

import inspect
import os
import runpy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import Target
from ptxlab.judge.bounded_arrays import BoundedArray
from ptxlab.judge.comparison import poisoned
from ptxlab.judge.rounding import FORMATS, Bounded, Rounding
from ptxlab.judge.triton_function import is_triton

Function = Callable[..., Any]
NAME = "reference"
"""What the function of a file is called, where it has several."""


def read_reference(reference: Function | str | os.PathLike[str]) -> Any:
    """Return a function, or that of a file in Python, which may be one of Triton. Raises PtxlabError for a file without one."""
    if callable(reference):
        return reference
    path = os.fspath(reference)
    try:
        names = runpy.run_path(path)
    except OSError as error:
        raise PtxlabError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:  # of the user's own file
        raise PtxlabError(f"{path} does not run: {type(error).__name__}: {error}") from error
    functions = {
        name: value
        for name, value in names.items()
        if name[0] != "_"
        and (inspect.isfunction(value) or is_triton(value))
        and getattr(value, "fn", value).__globals__.get("__file__") == path
    }
    chosen = functions.get(NAME) or (
        next(iter(functions.values())) if len(functions) == 1 else None
    )
    if chosen is None:
        raise PtxlabError(
            f"{path} has no function {NAME}", hint=f"def {NAME}(A, B): return {{'C': A @ B}}"
        )
    return chosen


class Reference(ABC):
    """What says which arrays a kernel should leave; it ``takes`` the arguments of these names."""

    takes: list[str]

    @abstractmethod
    def expected(
        self, arguments: Mapping[str, Any], target: Target, sizes: Mapping[str, int]
    ) -> dict[str, Bounded]:
        """Return what the arrays that are written should hold. Raises Unsupported where no bound follows."""

    def poisoned(self, arguments: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
        """Return arguments of which those arrays are poisoned that the kernel is to write, and the reference does not take."""
        hidden = [name for name in outputs if name not in self.takes]
        return {
            name: poisoned(value) if name in hidden else value for name, value in arguments.items()
        }


class ReferenceFunction(Reference):
    """A function in NumPy or PyTorch, and the arguments that it takes."""

    def __init__(self, function: Function, names: Sequence[str]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters.values()
        several = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self.takes = [name for name in names if several or name in {p.name for p in parameters}]
        unknown = [
            p.name
            for p in parameters
            if p.kind is not p.VAR_KEYWORD and p.name not in names and p.default is p.empty
        ]
        if unknown:
            raise PtxlabError(
                f"the reference takes {', '.join(unknown)}, which is no argument",
                hint=f"arguments are {', '.join(names)}",
            )

    def expected(
        self, arguments: Mapping[str, Any], target: Target, sizes: Mapping[str, int]
    ) -> dict[str, Bounded]:
        given = {name: arguments[name] for name in self.takes}
        types = [
            a.dtype
            for a in given.values()
            if isinstance(a, np.ndarray) and a.dtype in (*FORMATS, np.float64)
        ]
        rules = Rounding(
            target, min(types, key=lambda dtype: dtype.itemsize, default=np.dtype(np.float32))
        )
        if _names_torch(self._function):
            result = _in_torch(self._function, given, rules)
        else:
            with np.errstate(all="ignore"):
                result = self._function(
                    **{name: _carrying(rules, value) for name, value in given.items()}
                )
        if not isinstance(result, Mapping):
            result = {self._only(arguments): result}
        expected: dict[str, Bounded] = {}
        for name, value in result.items():
            if not isinstance(arguments.get(name), np.ndarray):
                raise PtxlabError(f"the reference returns {name!r}, which is no array argument")
            expected[name] = _fitted(name, rules, value, arguments[name])
        return expected

    def _only(self, arguments: Mapping[str, Any]) -> str:
        arrays = [name for name, value in arguments.items() if isinstance(value, np.ndarray)]
        left = [name for name in arrays if name not in self.takes] or arrays
        if len(left) != 1:
            raise PtxlabError(
                f"which of {', '.join(left)} does the reference return?",
                hint=f"return {{{left[-1]!r}: ...}}",
            )
        return left[0]


def _carrying(rules: Rounding, value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind in "iub":
        return value
    exact = value.astype(np.float64)
    return BoundedArray(rules, Bounded(exact, np.zeros_like(exact), value.dtype))


def _names_torch(function: Function) -> bool:
    """Say whether a function names PyTorch, or a module or function of it."""
    code, known = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    named = [known.get(name) for name in code.co_names] if code else []
    modules = (
        getattr(each, "__name__" if inspect.ismodule(each) else "__module__", "") for each in named
    )
    return any(str(each).partition(".")[0] == "torch" for each in modules)


def _in_torch(function: Function, given: Mapping[str, Any], rules: Rounding) -> Any:
    """Return what a function makes of tensors in float64, arrays by name or the only one, as ``_carrying`` has them."""
    import torch

    from ptxlab.judge.torch_bounds import expected

    tensors = {
        name: torch.from_numpy(value if value.dtype.kind in "iub" else value.astype(np.float64))
        for name, value in given.items()
        if isinstance(value, np.ndarray)
    }
    rest = {name: value for name, value in given.items() if name not in tensors}
    names: list[str] = []

    def answers(*inputs: Any) -> Any:
        result = function(**dict(zip(tensors, inputs, strict=True)), **rest)
        names[:] = result if isinstance(result, Mapping) else []
        return list(result.values()) if names else result

    numbers = expected(answers, list(tensors.values()), replace(rules, xp=torch))
    carrying = [
        BoundedArray(rules, Bounded(each.value.numpy(), each.error.numpy(), each.dtype))
        for each in numbers
    ]
    return dict(zip(names, carrying, strict=True)) if names else carrying[0]


def _fitted(name: str, rules: Rounding, value: Any, array: Any) -> Bounded:
    """Return a result of the shape of its array, rounded to its type."""
    if isinstance(value, BoundedArray):
        number = rules.stored(value.number, array.dtype)
    else:
        exact = np.asarray(value)
        number = Bounded(exact, np.zeros(exact.shape))
        if exact.dtype.kind == "f":
            number = rules.stored(Bounded(exact, np.zeros(exact.shape)), array.dtype)
    shape = np.shape(number.value)
    if shape != array.shape and number.value.size != array.size and shape != ():
        raise PtxlabError(
            f"the reference's {name} is {list(shape)}, the argument {list(array.shape)}"
        )
    if shape == ():
        return Bounded(
            np.broadcast_to(number.value, array.shape), np.broadcast_to(number.error, array.shape)
        )
    return Bounded(number.value.reshape(array.shape), number.error.reshape(array.shape))
