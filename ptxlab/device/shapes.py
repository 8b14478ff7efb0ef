"""What a kernel declares of its launches, and array shapes and types as users write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.arrays import Array
from ptxlab.errors import PtxlabError
from ptxlab.launch_config import Dim, Dim3, LaunchConfig, integer, three
from ptxlab.numbers.types import STORED, TYPES
from ptxlab.syntax.names import called
from ptxlab.syntax.tree import Directive, Function

# What ``zeros`` takes beside numpy's own names: the PTX names, and those of PTX's 8-bit floats.
_DTYPES: dict[str, np.dtype[Any]] = {
    name: scalar.dtype for name, scalar in (TYPES | STORED).items() if name not in ("b128", "pred")
}


def declared(function: Function, directive: str) -> Dim3 | None:
    """Return the sizes a kernel declares with ``directive``, those left out being 1, or None.

    Of several the last one counts, as for ptxas.
    """
    for each in reversed(function.directives):
        if isinstance(each, Directive) and each.name == directive:
            return three(each.values)
    return None


def clusters(function: Function | None, config: LaunchConfig) -> Dim3 | None:
    """Return the clusters of a launch: those it asks for, or else its kernel declares."""
    if config.cluster is not None or function is None:
        return config.cluster
    cluster = declared(function, "reqnctapercluster")
    return None if cluster is None or 0 in cluster else cluster  # 0 is none, as for ptxas


def has(function: Function, directive: str) -> bool:
    """Say whether a kernel has a directive."""
    return any(
        isinstance(each, Directive) and each.name == directive for each in function.directives
    )


def counts_clusters(function: Function) -> bool:
    """Say whether the grid of a kernel counts clusters in place of CTAs (``.blocksareclusters``)."""
    return has(function, "blocksareclusters")


def check_directives(function: Function, config: LaunchConfig) -> None:
    """Hold a launch to what its kernel declares.

    PTX ISA, "Performance-Tuning Directives" and "Cluster Dimension Directives": ``.reqntid`` is
    exact, ``.maxntid`` bounds the number of threads, ``.reqnctapercluster`` divides the grid and
    is exact where the launch has asked for clusters too, ``.explicitcluster`` asks for one of both and
    ``.maxclusterrank`` bounds the number of CTAs of a cluster. Raises PtxlabError for another launch.
    """
    required = declared(function, "reqntid")
    if required not in (None, config.block):
        raise PtxlabError(
            f"kernel {called(function.name)} needs block {required}, not {config.block} (.reqntid)"
        )
    most = declared(function, "maxntid")
    if most is not None and config.cta_threads > prod(most):
        raise PtxlabError(
            f"kernel {called(function.name)} takes at most {prod(most)} threads, not {config.cta_threads} "
            "(.maxntid)"
        )
    cluster = clusters(function, replace(config, cluster=None))
    if has(function, "explicitcluster") and cluster is None and config.cluster is None:
        raise PtxlabError(
            f"kernel {called(function.name)} runs in clusters of a launch's choice (.explicitcluster)",
            hint="give the launch a cluster",
        )
    bound = declared(function, "maxclusterrank")
    if bound is not None and config.cluster_ctas > bound[0]:
        raise PtxlabError(
            f"kernel {called(function.name)} has clusters of at most {bound[0]} CTAs (.maxclusterrank), not "
            f"of {config.cluster}"
        )
    if cluster is None:
        return
    uneven = any(size % part for size, part in zip(config.grid, cluster, strict=True))
    if uneven and not counts_clusters(function):
        raise PtxlabError(
            f"kernel {called(function.name)} runs in clusters of {cluster} (.reqnctapercluster), "
            f"and grid {config.grid} is not a multiple of that"
        )
    if config.cluster not in (None, cluster):
        raise PtxlabError(
            f"kernel {called(function.name)} runs in clusters of {cluster} (.reqnctapercluster), "
            f"not {config.cluster}"
        )


def shape_of(value: Dim) -> tuple[int, ...]:
    """Return an array's shape, of sizes in elements. Raises PtxlabError for what is none."""
    sizes = value if isinstance(value, Sequence) else (value,)
    shape = tuple(integer("a shape", size) for size in sizes)
    if any(size < 0 for size in shape):
        raise PtxlabError(f"a shape has no negative size: {shape}")
    return shape


def dtype_of(value: str | npt.DTypeLike) -> np.dtype[Any]:
    """Return the numpy dtype of a PTX type name (``"bf16"``, ``".f32"``) or of anything numpy takes.

    Raises PtxlabError for what is no type, or none of elements in a GPU's memory.
    """
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


def host_array(value: npt.ArrayLike) -> Array:
    """Return ``value`` as a contiguous array of its shape and type, in the byte order of the GPU.

    Raises PtxlabError for no array.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise PtxlabError(f"not an array: {error}") from None
    dtype = _plain(array.dtype).newbyteorder("<")
    # ascontiguousarray makes a 0-d array 1-d
    contiguous: Array = np.ascontiguousarray(array, dtype).reshape(array.shape)
    return contiguous


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.hasobject or dtype.itemsize == 0 or dtype.kind not in "biufcV":
        raise PtxlabError(f"elements of type {dtype} have no place in device memory")
    return dtype
