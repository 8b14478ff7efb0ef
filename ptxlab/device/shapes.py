"""Launch shapes and array types as users write them, checked once for both devices.

Limits: CUDA C++ Programming Guide, "Compute Capabilities", the same for every target here.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.device.protocol import Dim
from ptxlab.errors import PtxlabError
from ptxlab.isa.types import STORED, TYPES
from ptxlab.syntax.tree import Directive, Function

Dim3 = tuple[int, int, int]

_GRID_LIMIT = (2**31 - 1, 65535, 65535)
_BLOCK_LIMIT = (1024, 1024, 64)
_BLOCK_THREADS = 1024

# What ``zeros`` takes beside numpy's own names: the PTX names, and those of PTX's 8-bit floats.
_DTYPES: dict[str, np.dtype[Any]] = {
    name: scalar.dtype for name, scalar in (TYPES | STORED).items() if name not in ("b128", "pred")
}


def grid_of(value: Dim) -> Dim3:
    """Return ``grid`` as three sizes."""
    return _three("grid", value, _GRID_LIMIT)


def block_of(value: Dim) -> Dim3:
    """Return ``block`` as three sizes, of at most 1024 threads together."""
    x, y, z = _three("block", value, _BLOCK_LIMIT)
    if x * y * z > _BLOCK_THREADS:
        raise PtxlabError(f"block {x} x {y} x {z} has {x * y * z} threads; the most is 1024")
    return x, y, z


def cluster_of(value: Dim, grid: Dim3) -> Dim3:
    """Return ``cluster`` as three sizes, each of which divides that of the grid."""
    cluster = _three("cluster", value, grid)
    if any(size % part for size, part in zip(grid, cluster, strict=True)):
        raise PtxlabError(f"grid {grid} is not a multiple of cluster {cluster}")
    return cluster


def declared(function: Function, directive: str) -> Dim3 | None:
    """Return the sizes a kernel declares with ``directive``, those left out being 1, or None."""
    for found in function.directives:
        if isinstance(found, Directive) and found.name == directive:
            x, y, z = (*found.values, 1, 1, 1)[:3]
            return x, y, z
    return None


def check_directives(
    function: Function, grid: Dim3, block: Dim3, asked: Dim3 | None = None
) -> None:
    """Hold a launch to what its kernel declares.

    PTX ISA, "Performance-Tuning Directives" and "Cluster Dimension Directives": ``.reqntid`` is
    exact, ``.maxntid`` bounds the number of threads, ``.reqnctapercluster`` divides the grid and
    is exact where the launch has asked for clusters too.
    """
    required = declared(function, "reqntid")
    if required not in (None, block):
        raise PtxlabError(f"kernel {function.name} needs block {required}, not {block} (.reqntid)")
    most = declared(function, "maxntid")
    if most is not None and prod(block) > prod(most):
        raise PtxlabError(
            f"kernel {function.name} takes at most {prod(most)} threads, not {prod(block)} (.maxntid)"
        )
    cluster = declared(function, "reqnctapercluster")
    if cluster is not None and any(size % part for size, part in zip(grid, cluster, strict=True)):
        raise PtxlabError(
            f"kernel {function.name} runs in clusters of {cluster} (.reqnctapercluster), "
            f"and grid {grid} is not a multiple of that"
        )
    if cluster is not None and asked not in (None, cluster):
        raise PtxlabError(
            f"kernel {function.name} runs in clusters of {cluster} (.reqnctapercluster), not {asked}"
        )


def shared_of(value: int) -> int:
    """Return the size of dynamic shared memory in bytes."""
    size = _integer("shared", value)
    if size < 0:
        raise PtxlabError(f"shared is a number of bytes, not {size}")
    return size


def shape_of(value: Dim) -> tuple[int, ...]:
    """Return an array's shape."""
    sizes = value if isinstance(value, Sequence) else (value,)
    shape = tuple(_integer("a shape", size) for size in sizes)
    if any(size < 0 for size in shape):
        raise PtxlabError(f"a shape has no negative size: {shape}")
    return shape


def dtype_of(value: str | npt.DTypeLike) -> np.dtype[Any]:
    """Return the numpy dtype of a PTX type name (``"bf16"``, ``".f32"``) or of anything numpy takes."""
    if isinstance(value, str) and value.removeprefix(".") in _DTYPES:
        return _DTYPES[value.removeprefix(".")]
    try:
        dtype = np.dtype(value)
    except TypeError:
        raise PtxlabError(
            f"{value!r} is not a type of array elements",
            hint=f"PTX names are {', '.join(_DTYPES)}; numpy's and ml_dtypes' names work too",
        ) from None
    return _plain(dtype)


def host_array(value: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return ``value`` as a contiguous array in the byte order of the GPU."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise PtxlabError(f"not an array: {error}") from None
    dtype = _plain(array.dtype).newbyteorder("<")
    # ascontiguousarray makes a 0-d array 1-d
    contiguous: npt.NDArray[Any] = np.ascontiguousarray(array, dtype).reshape(array.shape)
    return contiguous


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.hasobject or dtype.itemsize == 0 or dtype.kind not in "biufcV":
        raise PtxlabError(f"elements of type {dtype} have no place in device memory")
    return dtype


def _three(name: str, value: Dim, limits: Dim3) -> Dim3:
    sizes = tuple(value) if isinstance(value, Sequence) else (value,)
    if not 1 <= len(sizes) <= 3:
        raise PtxlabError(f"{name} takes one to three sizes, not {len(sizes)}")
    x, y, z = (*(_integer(name, size) for size in sizes), 1, 1)[:3]
    for axis, size, limit in zip("xyz", (x, y, z), limits, strict=True):
        if not 1 <= size <= limit:
            raise PtxlabError(f"{name} {axis} is {size}; it can be 1 to {limit}")
    return x, y, z


def _integer(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise PtxlabError(f"{name} takes integers, not {value!r}") from None
