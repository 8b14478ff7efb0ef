"""What modules are judged by: a file as KernelBench has it, with ``Model``, ``get_inputs`` and ``get_init_inputs``.

    class Model(torch.nn.Module): ...
    N = 4096
    def get_inputs(): return [torch.rand(N, N)]
    def get_init_inputs(): return []

Its sizes are the integers of the file that these functions use, and literals in them from 256 on. The file is trusted, and runs in
this process.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import TARGETS
from ptxlab.judge.arguments import TILES, smaller
from ptxlab.judge.limits import Limits
from ptxlab.judge.rounding import Bounded, Rounding
from ptxlab.judge.torch_bounds import expected
from ptxlab.judge.trials import AGAIN, GIVEN, HARD, changed

NEEDED = ("Model", "get_inputs", "get_init_inputs")

SMALLEST_LITERAL = 256
"""What a literal is at least to be taken for a size, which may be made smaller."""


@dataclass(frozen=True)
class ModuleCase:
    """Inputs of a call, what it should answer, and what the module is made of where its sizes are others."""

    name: str
    sizes: Mapping[str, int]
    inputs: list[Any]
    answers: list[Bounded]
    dtypes: list[Any]
    initial: Any
    state: dict[str, Any]
    hard: bool = False


class ModuleTask:
    """A file with a reference, of which modules are to compute the same."""

    def __init__(self, path: str, arch: str, limits: Limits, seed: int) -> None:
        self.target, self.limits, self.seed = TARGETS[arch], limits, seed
        try:
            with _OnProcessor():
                self._names = runpy.run_path(path)
        except OSError as error:
            raise PtxlabError(f"cannot read {path}: {error.strerror}") from None
        except Exception as error:  # of the user's own file, which may be no Python
            raise PtxlabError(
                f"{path} does not run: {type(error).__name__}: {error}",
                hint=f"the reference of a module is a file in Python with {', '.join(NEEDED)}",
            ) from error
        if missing := [name for name in NEEDED if name not in self._names]:
            raise PtxlabError(
                f"{path} has no {', '.join(missing)}", hint=f"it needs {', '.join(NEEDED)}"
            )
        self._globals = self._names["get_inputs"].__globals__
        self._codes = {name: self._names[name].__code__ for name in NEEDED[1:]}
        self.full_sizes = dict(self._sizes())
        self.sizes = smaller(self.full_sizes, limits.elements, self._elements)
        self._lock = Lock()

    def _sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the integers that the functions of inputs use, in the order in which they use them."""
        for code in self._codes.values():
            yield from ((str(literal), literal) for literal in _literals(code))
            for name in _names_in(code):
                value = self._globals.get(name)
                if isinstance(value, int) and not isinstance(value, bool):
                    yield name, value
                elif isinstance(value, tuple) and all(isinstance(each, int) for each in value):
                    yield from ((f"{name}[{at}]", each) for at, each in enumerate(value))

    def _with(self, sizes: Mapping[str, int]) -> None:
        """Have the file's integers be these, and the literals of its functions."""
        for function, code in self._codes.items():
            self._names[function].__code__ = _with_literals(code, sizes)
        for name, size in sizes.items():
            if name.isdigit():
                continue
            base, _, index = name.partition("[")
            if index:
                values = list(self._globals[base])
                values[int(index.rstrip("]"))] = size
                self._globals[base] = tuple(values)
            else:
                self._globals[base] = size

    def _elements(self, sizes: Mapping[str, int]) -> int:
        self._with(sizes)
        with torch.device("meta"), _OnProcessor():
            return sum(
                each.numel()
                for each in self._names["get_inputs"]()
                if isinstance(each, torch.Tensor)
            )

    def cases(self) -> Sequence[ModuleCase]:
        """Return all cases. Raises Unsupported where no bound follows from the reference."""
        with self._lock:
            return self._cases

    @cached_property
    def _cases(self) -> list[ModuleCase]:
        try:
            given = self._case(GIVEN, self.sizes, 0)
        except (PtxlabError, RuntimeError, ValueError):  # of a module with the same literals inside
            literals = {name: size for name, size in self.full_sizes.items() if name.isdigit()}
            if literals.items() <= self.sizes.items():
                raise
            self.sizes = {**self.sizes, **literals}
            given = self._case(GIVEN, self.sizes, 0)
        cases = [given, self._case(AGAIN, self.sizes, 1)]
        step = TILES[-1]
        larger = {name: size + step for name, size in self.sizes.items() if size >= step}
        if larger:
            with suppress(PtxlabError, RuntimeError, ValueError):  # a reference may take no others
                cases.append(self._case("larger sizes", {**self.sizes, **larger}, 2))
        for number, (name, change) in enumerate((("normal numbers", _normal), *HARD.items()), 10):
            case = self._changed(given, name, change, number)
            if case is not None:
                cases.append(case)
        return cases

    def _case(self, name: str, sizes: Mapping[str, int], number: int) -> ModuleCase:
        self._with(sizes)
        torch.manual_seed(self.seed * 1000 + number)
        with _OnProcessor():
            inputs = [_plain(each) for each in self._names["get_inputs"]()]
        return self._judged(name, sizes, inputs, hard=False)

    def _changed(self, given: ModuleCase, name: str, change: Any, number: int) -> ModuleCase | None:
        """Return the case of other numbers: a hard one, but for normal ones where the reference has finite answers."""
        rng = np.random.default_rng([self.seed, number])
        inputs = [changed(value, change, rng) for value in given.inputs]
        if all(a is b for a, b in zip(inputs, given.inputs, strict=True)):
            return None
        try:
            case = self._judged(name, given.sizes, inputs, hard=True)
        except (PtxlabError, RuntimeError):
            return None
        finite = all(np.isfinite(answer.value).all() for answer in case.answers)
        return ModuleCase(**{**vars(case), "hard": not (name == "normal numbers" and finite)})

    def _judged(
        self, name: str, sizes: Mapping[str, int], inputs: list[Any], *, hard: bool
    ) -> ModuleCase:
        self._with(sizes)
        torch.manual_seed(self.seed)
        with _OnProcessor():
            initial = self._names["get_init_inputs"]()
            torch.manual_seed(self.seed)
            model = self._names["Model"](*initial).eval()
        state = {key: value.numpy().copy() for key, value in model.state_dict().items()}
        types = [
            value.dtype
            for value in inputs
            if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        ]
        rules = Rounding(
            self.target,
            min(types, key=lambda dtype: dtype.itemsize, default=np.dtype(np.float32)),
            torch,
        )
        tensors = [
            torch.from_numpy(value) if isinstance(value, np.ndarray) else value for value in inputs
        ]
        with torch.no_grad(), _OnProcessor():
            answer = model(
                *[each.clone() if isinstance(each, torch.Tensor) else each for each in tensors]
            )
        dtypes = [
            each.numpy().dtype
            for each in (answer if isinstance(answer, list | tuple) else [answer])
        ]
        doubled = [
            t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t
            for t in tensors
        ]
        answers = [
            Bounded(number.value.numpy(), number.error.numpy())
            for number in (rules.stored(n, dtype) for n, dtype in zip(
                expected(model.double(), doubled, rules), dtypes, strict=True))
        ]  # fmt: skip
        return ModuleCase(name, sizes, inputs, answers, dtypes, _listed(initial), state, hard)

    def shapes(self) -> tuple[Any, list[Any], dict[str, Any]]:
        """Return what the module is made of at full sizes, and its inputs: of those that are not integers only the shapes."""
        self._with(self.full_sizes)
        initial = self._names["get_init_inputs"]()
        with torch.device("meta"), _OnProcessor():
            inputs = self._names["get_inputs"]()
        if any(_is_integers(each) for each in inputs):
            torch.manual_seed(self.seed)
            with _OnProcessor():
                inputs = self._names["get_inputs"]()
        shaped: list[Any] = []
        for each in inputs:
            if isinstance(each, torch.Tensor) and not _is_integers(each):
                dtype = str(each.dtype).removeprefix("torch.")
                shaped.append({"shaped": [list(each.shape), dtype]})
            else:
                shaped.append(_plain(each))
        return _listed(initial), shaped, {}


class _OnProcessor(TorchFunctionMode):  # type: ignore[misc]
    """Has a reference that is written for "cuda" compute on the CPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.cuda:
            return args[0]
        kept = {key: value for key, value in (kwargs or {}).items() if not _is_cuda(value)}
        args = tuple(each for each in args if not _is_cuda(each))
        alone = function is torch.Tensor.to and len(args) == 1 and not kept
        return args[0] if alone else function(*args, **kept)


def _is_integers(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point()


def _is_cuda(value: Any) -> bool:
    return isinstance(value, str | torch.device) and str(value).startswith("cuda")


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _literals(constant: Any) -> Iterator[int]:
    """Yield the literals of a code that may be sizes."""
    if isinstance(constant, CodeType | tuple):
        inside = constant.co_consts if isinstance(constant, CodeType) else constant
        for each in inside:
            yield from _literals(each)
    elif isinstance(constant, int) and constant >= SMALLEST_LITERAL:
        yield constant


def _with_literals(constant: Any, sizes: Mapping[str, int]) -> Any:
    """Return a code, or a constant of it, in which literals are others."""
    if isinstance(constant, CodeType):
        return constant.replace(co_consts=_with_literals(constant.co_consts, sizes))
    if isinstance(constant, tuple):
        return tuple(_with_literals(each, sizes) for each in constant)
    is_size = isinstance(constant, int) and constant >= SMALLEST_LITERAL
    return sizes.get(str(constant), constant) if is_size else constant


def _normal(array: Any, bias: int, rng: np.random.Generator) -> Any:
    return rng.standard_normal(array.shape)


def _plain(value: Any) -> Any:
    return value.numpy().copy() if isinstance(value, torch.Tensor) else value


def _listed(initial: Any) -> list[Any]:
    return [list(each) if isinstance(each, tuple) else each for each in initial]
