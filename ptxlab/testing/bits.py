"""Arrays that must be equal to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ptxlab.device.protocol import Buffer
from ptxlab.view.text import hexadecimal

Array = npt.NDArray[Any]

SHOWN = 5
"""How many of the differing elements a message names."""


def assert_bits_equal(actual: Buffer | npt.ArrayLike, expected: Buffer | npt.ArrayLike) -> None:
    """Assert that two arrays (or device buffers) have the same shape, type and bits.

    Unlike ``numpy.testing.assert_array_equal`` it tells -0 from 0 and one NaN from another, and finds
    equal NaNs equal. Raises AssertionError that names the first differing elements.
    """
    __tracebackhide__ = True
    one, other = _host(actual), _host(expected)
    if one.shape != other.shape or one.dtype != other.dtype:
        raise AssertionError(
            f"actual is {one.dtype}{list(one.shape)}, expected {other.dtype}{list(other.shape)}"
        )
    a, b = _bits(one), _bits(other)
    places = np.argwhere(a != b)
    if len(places):
        lines = [f"{len(places)} of {one.size} elements differ"]
        for place in map(tuple, places[:SHOWN]):
            lines.append(
                f"  [{', '.join(map(str, place))}]  actual {one[place]} ({_hex(a[place])}), "
                f"expected {other[place]} ({_hex(b[place])})"
            )
        if len(places) > SHOWN:
            lines.append(f"  and {len(places) - SHOWN} more")
        raise AssertionError("\n".join(lines))


def _host(value: Buffer | npt.ArrayLike) -> Array:
    return value.numpy() if isinstance(value, Buffer) else np.asarray(value)


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)


def _hex(bits: Any) -> str:
    return hexadecimal(int(bits), 8 * bits.dtype.itemsize)
