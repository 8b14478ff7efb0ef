"""What candidates are judged by: the trials and what should come of them, made once for all candidates of a task."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from ptxlab.device.loading import is_cuda
from ptxlab.device.shapes import dtype_of, shape_of
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import TARGETS, Target
from ptxlab.judge.arguments import Arguments, Array, elements, of_sizes, smaller, told
from ptxlab.judge.carrying_kernel import CarryingKernel
from ptxlab.judge.limits import Limits
from ptxlab.judge.reference_kernel import ReferenceKernel
from ptxlab.judge.references import Reference, ReferenceFunction, read_reference
from ptxlab.judge.rounding import Bounded
from ptxlab.judge.trials import AGAIN, GIVEN, Trial, aliased, trials
from ptxlab.judge.triton_function import is_triton

Size = int | tuple[int, int]
"""A size, or one with the number that it has to be a multiple of."""


def is_kernel(reference: str | os.PathLike[str]) -> bool:
    """Say whether a reference is the file of a kernel, by its name."""
    return os.fspath(reference).endswith((".cu", ".ptx", ".cubin", ".fatbin"))


@dataclass(frozen=True)
class Case:
    """A trial as a candidate gets it, with what its arrays should hold afterwards."""

    trial: Trial
    given: dict[str, Any]
    expected: dict[str, Bounded]
    config: dict[str, Any]


class KernelTask:
    """Launches of kernels with the same arguments, and the function in NumPy that says what they should leave.

    ``grid``, ``block`` and ``shared`` bytes may be functions of the sizes too. The reference may be a trusted kernel instead,
    which is launched alike but for what ``trusted_launch`` says: its grid, block and shared memory, and ``constants`` of
    a function of Triton.
    """

    def __init__(
        self,
        reference: Any,
        *,
        arguments: Arguments | None,
        sizes: Mapping[str, Size] | None,
        arch: str,
        limits: Limits,
        seed: int,
        trusted_launch: Mapping[str, Any] | None = None,
        **launch: Any,
    ) -> None:
        if arguments is None or launch["block"] is None:
            raise PtxlabError("a kernel is launched with arguments, and a block of threads")
        sizes = sizes or {}
        self.target: Target = TARGETS[arch]
        self.seed = seed
        self.limits = limits
        self.launch = launch
        self.arguments = arguments
        self.multiples = {name: size[1] for name, size in sizes.items() if isinstance(size, tuple)}
        self.full_sizes = {
            name: size[0] if isinstance(size, tuple) else size for name, size in sizes.items()
        }
        self.sizes = (
            smaller(
                self.full_sizes, limits.elements, lambda sizes: elements(told(arguments, sizes))
            )
            if callable(arguments)
            else self.full_sizes
        )
        self.reference = self._referred(reference, dict(trusted_launch or {}))
        self._lock = Lock()

    def _referred(self, reference: Any, launch: dict[str, Any]) -> Reference:
        """Return what a reference says; ``launch`` is what of a trusted kernel's differs from a candidate's."""
        names = list(told(self.arguments, self.sizes))
        is_file = isinstance(reference, str | os.PathLike)
        if is_file and not is_kernel(reference):
            reference, is_file = read_reference(reference), False
        if not is_file and not is_triton(reference):
            return ReferenceFunction(reference, names)
        constants = launch.pop("constants", None)

        def config(sizes: Mapping[str, int]) -> dict[str, Any]:
            other = {name: of_sizes(value, sizes) for name, value in launch.items()}
            return {**self.config(sizes), **other}

        if is_file and is_cuda(reference):
            with suppress(Unsupported):  # of packed types and the like
                return ReferenceKernel(reference, names, config, self.target)
        return CarryingKernel(reference, names, config, self.target, constants)

    def cases(self) -> Sequence[Case]:
        """Return all cases. Raises Unsupported where no bound follows from the reference."""
        with self._lock:  # several candidates may ask at once
            return self._cases

    @cached_property
    def _cases(self) -> list[Case]:
        cases = []
        for trial in trials(self.arguments, self.sizes, self.multiples, self.seed):
            if (case := self._case(trial)) is not None:
                cases.append(case)
        given = cases[0]
        inputs = [name for name in given.given if name not in given.expected]
        shared = aliased(given.trial, inputs)
        if shared is not None and (case := self._case(shared)) is not None:
            cases.append(case)
        return cases

    def _case(self, trial: Trial) -> Case | None:
        """Return the case of a trial, None for hard numbers of which a reference knows nothing."""
        try:
            expected = self.reference.expected(trial.arguments, self.target, trial.sizes)
        except Exception as error:
            if trial.name == GIVEN or not trial.hard:
                if isinstance(error, PtxlabError):
                    raise
                raise PtxlabError(
                    f"the reference fails: {type(error).__name__}: {error}"
                ) from error
            return None
        given = trial.arguments
        if (
            trial.name != AGAIN
        ):  # once they hold numbers: a kernel may ask whether they are poisoned
            given = self.reference.poisoned(given, list(expected))
        return Case(trial, given, expected, self.config(trial.sizes))

    def config(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        return {name: of_sizes(value, sizes) for name, value in self.launch.items()}

    def shapes(self) -> dict[str, Any]:
        """Return arguments of the full sizes for a prediction, which wants to know the integers alone."""
        rng = np.random.default_rng(self.seed)
        shaped: dict[str, Any] = {}
        for name, value in told(self.arguments, self.full_sizes).items():
            if not isinstance(value, Array | np.ndarray):
                shaped[name] = value
            elif dtype_of(value.dtype).kind not in "iu":
                shaped[name] = {"shaped": [list(shape_of(value.shape)), dtype_of(value.dtype).name]}
            else:
                shaped[name] = value.drawn(rng) if isinstance(value, Array) else value
        return shaped
