"""A trusted kernel as the reference: what it leaves, with a bound, and what it takes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ptxlab.device.protocol import Kernel
from ptxlab.errors import Unsupported
from ptxlab.gemm.reference import error_bound
from ptxlab.isa.targets import Target
from ptxlab.judge.comparison import poisoned
from ptxlab.judge.kernel_candidate import bound
from ptxlab.judge.references import Reference
from ptxlab.judge.rounding import Bounded
from ptxlab.numbers.formats import BF16, F16, F32

TYPES = (F32.dtype, F16.dtype, BF16.dtype)
"""The types of floats that its arrays may be of."""

UNIT = 2.0**-24


class TrustedKernel(Reference):
    """A ``kernel``, launched as ``config`` says for the sizes of a trial; arrays of floats may be of ``types``."""

    types: Sequence[Any] = TYPES

    def __init__(
        self,
        kernel: Any,
        names: list[str],
        config: Callable[[Mapping[str, int]], Mapping[str, Any]],
    ) -> None:
        self.kernel, self.takes, self.config = kernel, names, config
        self._written: list[str] | None = None

    def expected(
        self, arguments: Mapping[str, Any], target: Target, sizes: Mapping[str, int]
    ) -> dict[str, Bounded]:
        for name, value in arguments.items():
            if (
                isinstance(value, np.ndarray)
                and value.dtype.kind not in "iub"
                and value.dtype not in self.types
            ):
                raise Unsupported(
                    f"{name} is of {value.dtype}, and a trusted kernel is one of f32 and integers",
                    hint="of f16 and bf16 too where it includes cuda_fp16.h or cuda_bf16.h",
                )
        left = self._left(arguments, sizes)
        if self._written is None:
            self._written = [name for name in left if not _same(left[name].value, arguments[name])]
            hidden = {**arguments, **{name: poisoned(arguments[name]) for name in self._written}}
            again = self._left(hidden, sizes)
            if all(_same(left[name].value, again[name].value) for name in self._written):
                self.takes = [name for name in arguments if name not in self._written]
        return {name: left[name] for name in self._written}

    @abstractmethod
    def named(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what it takes of the arguments, by name: there may be more that candidates take, such as constants."""

    @abstractmethod
    def _left(self, arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Bounded]:
        """Return what the arrays hold behind a launch. Raises Unsupported where no bound follows."""


def is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in TYPES


def taken(kernel: Kernel, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a kernel takes, in its order."""
    names = [parameter.name for parameter in kernel.parameters]
    known = set(names) <= set(arguments)
    return bound(kernel, {name: arguments[name] for name in names} if known else arguments)


def roundings_of_a_term(target: Target) -> float:
    """Return as how many roundings to f32 a term of a sum counts on the tensor cores of a target."""
    ones = np.ones((1, 1), F16.dtype)
    return error_bound("any", target.dot16, ones, ones, "f32").coefficient / UNIT


def _same(a: Any, b: Any) -> bool:
    a, b = (each.astype(np.float64) if is_float(each) else each for each in (a, b))
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
