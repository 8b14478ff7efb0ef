"""What a kernel is to be given: arrays that are drawn anew for every launch, and numbers, by name.

    {"n": 1000, "x": Array(1000), "y": Array((10, 100), "f16", "rand"), "index": numpy_array}

An array of numpy stands for its shape, type and values: the first launch has it as it is, every other one the
same values in another order. All of it may be a function of sizes, ``lambda n: {...}``, and then other sizes
than the given ones are tried too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ptxlab.arrays import Array as NumpyArray
from ptxlab.device.shapes import dtype_of, shape_of
from ptxlab.errors import PtxlabError
from ptxlab.launch_config import Dim

Draw = Callable[[np.random.Generator, tuple[int, ...]], NumpyArray]

MAKERS: Mapping[str, Draw] = {
    "randn": lambda rng, shape: rng.standard_normal(shape),
    "rand": lambda rng, shape: rng.random(shape),
    "zeros": lambda rng, shape: np.zeros(shape),
}
"""How the numbers of an array may be drawn: standard normal, from 0 to 1, all 0."""


@dataclass(frozen=True)
class Array:
    """An array to be drawn: its shape, the PTX or NumPy name of its type, and how.

    ``make`` is ``randn``, ``rand``, ``zeros`` or a function of a generator and a shape.
    """

    shape: Dim
    dtype: Any = "f32"
    make: str | Draw = "randn"

    def drawn(self, rng: np.random.Generator) -> NumpyArray:
        """Return its numbers, of its shape and type. Raises PtxlabError for no such maker."""
        if isinstance(self.make, str) and self.make not in MAKERS:
            raise PtxlabError(f"no maker {self.make!r}, there are {', '.join(MAKERS)}")
        make = MAKERS[self.make] if isinstance(self.make, str) else self.make
        with np.errstate(over="ignore"):
            return np.asarray(make(rng, shape_of(self.shape))).astype(dtype_of(self.dtype))


Values = Mapping[str, Any]
"""Arguments by name: an ``Array``, an array of numpy, or a number."""

Arguments = Values | Callable[..., Values]
"""The same, or a function of sizes that returns them."""


def told(arguments: Arguments, sizes: Mapping[str, int]) -> Values:
    return arguments(**sizes) if callable(arguments) else arguments


def of_sizes(what: Any, sizes: Mapping[str, int]) -> Any:
    """Return what is given as it is or as a function of sizes."""
    return what(**sizes) if callable(what) else what


def drawn(values: Values, seed: Sequence[int], *, first: bool) -> dict[str, Any]:
    """Return arrays of numpy and numbers; a float is one of f32, as which a kernel gets it."""
    result: dict[str, Any] = {}
    for index, (name, value) in enumerate(values.items()):
        rng = np.random.default_rng([*seed, index])
        if isinstance(value, Array):
            result[name] = value.drawn(rng)
        elif isinstance(value, np.ndarray):
            result[name] = (
                value.copy() if first else rng.permutation(value.reshape(-1)).reshape(value.shape)
            )
        else:
            result[name] = float(np.float32(value)) if isinstance(value, float) else value
    return result


def elements(values: Values) -> int:
    arrays = (value.shape for value in values.values() if isinstance(value, Array | np.ndarray))
    return sum(prod(shape_of(shape)) for shape in arrays)


# ---- sizes --------------------------------------------------------------------------------------

TILES = (128, 16)
"""What sizes are counted in when they are made smaller: kernels have tiles of divisors of the first."""


def smaller(
    sizes: Mapping[str, int], most: int, count: Callable[[dict[str, int]], int]
) -> dict[str, int]:
    """Return sizes of which ``count`` makes no more than ``most`` elements, if that can be.

    First a size whose name begins with ``batch`` loses half, again and again, until it is 2 or 3. Then the largest size
    loses half of its whole tiles of 128, until each has only one left, and then of those of 16; what is beside whole tiles
    stays, and with it tails and alignment.
    """
    now = dict(sizes)
    for name in [name for name in now if name.lower().startswith("batch")]:
        while now[name] > 3 and count(now) > most:
            now[name] //= 2
    for tile in TILES:
        while now and count(now) > most:
            name = max(now, key=lambda name: now[name] // tile)
            whole, rest = divmod(now[name], tile)
            if whole < 2:
                break
            now[name] = whole // 2 * tile + rest
    return now


def others(sizes: Mapping[str, int], multiples: Mapping[str, int]) -> list[dict[str, int]]:
    """Return sizes beside the given ones: all a little larger, all a little smaller, and all as small as can be."""
    steps = {name: multiples.get(name, 1) for name in sizes}
    variants = [
        {name: size + steps[name] for name, size in sizes.items()},
        {name: max(size - steps[name], steps[name]) for name, size in sizes.items()},
        steps,
    ]
    return [each for at, each in enumerate(variants) if each != sizes and each not in variants[:at]]


def wider(sizes: Mapping[str, int], multiples: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of which the first is a tile of 128 larger, so that there are more CTAs."""
    first = next(iter(sizes))
    step = multiples.get(first, 1)
    return {**sizes, first: sizes[first] + -(-TILES[0] // step) * step}
