"""Kernel arguments: Python values bound to the parameters of a kernel.

A value is bound by the parameter's declared type, and one that would change on the way is refused.
Source: PTX ISA, "Kernel Function Parameters"; CUDA Driver API, cuLaunchKernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import ml_dtypes
import numpy as np

from ptxlab.device.memory import Buffer
from ptxlab.device.tensor_maps import DeviceTensorMap
from ptxlab.errors import PtxlabError
from ptxlab.numbers.rounding import wide_f32_to_bf16
from ptxlab.numbers.types import TYPES, ScalarType
from ptxlab.syntax.functions import Parameter
from ptxlab.syntax.names import called
from ptxlab.tensormap.encoding import MAP_BYTES


class _Mismatch(Exception):
    """The value does not fit the parameter; the text says what was given, the hint what to do."""

    def __init__(self, given: str, hint: str | None = None) -> None:
        super().__init__(given)
        self.hint = hint


def pack(kernel_name: str, parameters: Sequence[Parameter], args: Sequence[Any]) -> bytes:
    """Bind ``args`` to ``parameters`` and return the bytes of the parameter block.

    Integers and bools bind to integer and untyped parameters, in range; floats to floating-point
    ones, rounded, and to ``.b32`` and ``.b64`` by their bits; numpy and ml_dtypes scalars likewise,
    where nothing is lost; buffers to 64-bit integer ones, by address; arrays, structured scalars,
    bytes and tensor maps to a struct or array passed by value, of exactly its size; tuples to a struct, of its members.

    Raises PtxlabError naming the kernel and the parameter.
    """
    if len(args) != len(parameters):
        listed = ", ".join(f"{spelled(p)} {p.name}" for p in parameters) or "none"
        raise PtxlabError(
            f"kernel {called(kernel_name)} takes {len(parameters)} arguments, not {len(args)}",
            hint=f"its parameters are: {listed}",
        )
    block = bytearray(_block_bytes(parameters))
    for parameter, value in zip(parameters, args, strict=True):
        what = f"kernel {called(kernel_name)}: parameter {parameter.index} ({parameter.name})"
        data = encoded(what, parameter, value)
        block[parameter.offset : parameter.offset + parameter.size] = data
    return bytes(block)


def encoded(what: str, parameter: Parameter, value: Any) -> bytes:
    """Return the bytes of ``value`` for ``parameter``, or a variable that is like it; see ``pack``.

    Raises PtxlabError, in which it is called ``what``.
    """
    try:
        return _bind(parameter, value)
    except _Mismatch as mismatch:
        raise PtxlabError(
            f"{what} is {spelled(parameter)}, which does not take {mismatch}", hint=mismatch.hint
        ) from None


def require_packed(kernel_name: str, parameters: Sequence[Parameter], packed: Any) -> bytes:
    """Return a parameter block that is packed already. Raises PtxlabError for one of another size."""
    end = _block_bytes(parameters)
    if not isinstance(packed, bytes | bytearray | memoryview):
        given = f"the {type(packed).__name__} {packed!r:.60}"
    elif len(data := bytes(packed)) != end:
        given = f"{len(data)} bytes"
    else:
        return data
    listed = ", ".join(f"{spelled(p)} {p.name} at {p.offset}" for p in parameters) or "none"
    raise PtxlabError(
        f"kernel {called(kernel_name)} takes {end} bytes of parameters, not {given}",
        hint=f"its parameters are: {listed}",
    )


def _block_bytes(parameters: Sequence[Parameter]) -> int:
    return max((p.offset + p.size for p in parameters), default=0)


def spelled(parameter: Parameter) -> str:
    """Spell a parameter's type: ``.f32``, ``.u64 pointer``, ``.b8[24]``."""
    count = f"[{parameter.count}]" if parameter.count != 1 else ""
    return f".{parameter.type}{count}{' pointer' if parameter.is_pointer else ''}"


def _bind(parameter: Parameter, value: Any) -> bytes:
    scalar = TYPES[parameter.type]
    if isinstance(value, Buffer):
        if scalar.bits != 64 or scalar.kind == "float" or parameter.count != 1:
            raise _Mismatch("a buffer, whose address is a 64-bit integer")
        return value.address.to_bytes(8, "little")
    if isinstance(value, DeviceTensorMap):
        if parameter.size != MAP_BYTES:
            raise _Mismatch(
                f"a tensor map, which is {MAP_BYTES} bytes by value",
                "a pointer to one in memory takes device.upload(numpy.frombuffer(map.data, 'u1'))",
            )
        value.buffer.require_open()
        return value.data
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    # A struct of one byte is declared as .b8 [1].
    record = isinstance(value, tuple | bytes | bytearray | memoryview | np.ndarray | np.void)
    if parameter.count != 1 or scalar.bits == 128 or (scalar.name == "b8" and record):
        return _aggregate(parameter, scalar, value)
    if isinstance(value, bool | int | np.bool_ | np.integer) or _is_small_integer(value):
        return _integer(scalar, int(value))
    if isinstance(value, float):  # np.float64 is one too
        return _float(scalar, float(value))
    if isinstance(value, np.generic) and _is_float(value.dtype):
        return _typed_float(scalar, value)
    if isinstance(value, np.ndarray | list | tuple) and scalar.bits == 64:
        raise _Mismatch(_describe(value), "put it on the device first: device.upload(array)")
    if value is None and scalar.bits == 64:
        raise _Mismatch("None", "give 0 for a null pointer")
    raise _Mismatch(_describe(value))


def _integer(scalar: ScalarType, value: int) -> bytes:
    """Bind an integer: in range for signed types, of either sign for others, if exact for floats."""
    if scalar.kind == "float":
        exact = _rounded(scalar, float(value)) if abs(value) < 2**1023 else None
        if exact is None or float(exact) != value:  # Python compares these exactly
            raise _Mismatch(f"{value}, which is not exact in .{scalar.name}", "give a float")
        return exact.tobytes()
    low = -(1 << scalar.bits - 1)  # of unsigned types too: compilers declare an int as .u32
    high = (1 << scalar.bits - (scalar.kind == "signed")) - 1
    if not low <= value <= high:
        raise _Mismatch(f"{value}: its range is {low} to {high}")
    return (value % (1 << scalar.bits)).to_bytes(scalar.bytes, "little")


def _float(scalar: ScalarType, value: float) -> bytes:
    """Bind a Python float: rounded to a floating-point type, as bits of .b32 and .b64."""
    if scalar.kind == "bits" and scalar.bits in (32, 64):
        scalar = TYPES[f"f{scalar.bits}"]
    elif scalar.kind == "bits":
        raise _Mismatch(
            f"the float {value!r}", "give a numpy or ml_dtypes scalar: its type says which bits"
        )
    if scalar.kind != "float":
        raise _Mismatch(f"the float {value!r}", "give an integer")
    rounded = _rounded(scalar, value)
    if isfinite(value) and not isfinite(float(rounded)):
        raise _Mismatch(f"{value!r}, which is too large for it")
    return rounded.tobytes()


def _typed_float(scalar: ScalarType, value: np.generic) -> bytes:
    """Bind a float that has a type: by its bits to bits as wide, else where its value is kept."""
    same_size = value.dtype.itemsize == scalar.bytes
    if value.dtype == scalar.dtype or (scalar.kind == "bits" and same_size):
        return value.tobytes()
    if scalar.kind != "float":
        raise _Mismatch(_describe(value))
    number = float(value)
    rounded = _rounded(scalar, number)
    if float(rounded) != number and number == number:
        raise _Mismatch(f"{_describe(value)}, whose value it cannot hold", "convert it first")
    return rounded.tobytes()


def _rounded(scalar: ScalarType, value: float) -> np.generic:
    """Round a double to the type once, to nearest even."""
    with np.errstate(over="ignore", invalid="ignore"):
        if scalar.name == "bf16":  # by itself ml_dtypes goes through f32, and rounds twice
            rounded: np.generic = wide_f32_to_bf16(np.array([value]))[0]
        else:
            rounded = scalar.dtype.type(value)
    return rounded


def _aggregate(parameter: Parameter, scalar: ScalarType, value: Any) -> bytes:
    """Bind a struct or array by value: the bytes of the same size, element types as declared."""
    if isinstance(value, tuple) and scalar.name == "b8":
        data, _ = _laid_out(value)
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
    elif isinstance(value, int) and scalar.bits == 128 and parameter.count == 1:
        if not -(1 << 127) <= value < 1 << 128:
            raise _Mismatch(f"{value}, which is wider than 128 bits")
        data = (value % (1 << 128)).to_bytes(16, "little")
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        typed = scalar.kind != "bits" and scalar.kind != "packed"
        if typed and value.dtype != scalar.dtype:
            raise _Mismatch(_describe(value), f"its elements are {scalar.dtype.name}")
        data = value.tobytes()
    else:
        raise _Mismatch(
            _describe(value),
            f"give {parameter.size} bytes, a numpy array or record, or a tuple of a struct's members",
        )
    if len(data) != parameter.size:
        if isinstance(value, tuple):
            raise _Mismatch(f"members of {len(data)} bytes together, and is {parameter.size}")
        raise _Mismatch(f"{_describe(value)}: that is {len(data)} bytes, not {parameter.size}")
    return data


def _laid_out(members: tuple[Any, ...]) -> tuple[bytes, int]:
    """Return the bytes of a struct and its alignment, as C lays it out.

    Members are buffers, whose address counts, numbers of numpy, tensor maps, and tuples for structs.
    """
    data, widest = bytearray(), 1
    for member in members:
        if isinstance(member, tuple):
            held, alignment = _laid_out(member)
        elif isinstance(member, Buffer):
            held, alignment = member.address.to_bytes(8, "little"), 8
        elif isinstance(member, DeviceTensorMap):
            held, alignment = member.data, 64
        elif isinstance(member, np.generic | np.ndarray) and not member.dtype.hasobject:
            held, alignment = member.tobytes(), member.dtype.alignment
        else:
            raise _Mismatch(
                f"{_describe(member)} as a member",
                f"a member has a size: numpy.int32({member!r})"
                if isinstance(member, int | float)
                else "members are buffers, numbers of numpy, and tuples of these",
            )
        data += bytes(-len(data) % alignment) + held
        widest = max(widest, alignment)
    return bytes(data + bytes(-len(data) % widest)), widest


def _is_float(dtype: np.dtype[Any]) -> bool:
    return _described_by(ml_dtypes.finfo, dtype) and dtype.kind != "c"


def _is_small_integer(value: Any) -> bool:
    """Say whether ``value`` is one of the integers of ml_dtypes, which numpy does not count as such."""
    if not isinstance(value, np.generic) or isinstance(value, np.number):
        return False
    return _described_by(ml_dtypes.iinfo, value.dtype)


def _described_by(info: Callable[..., Any], dtype: np.dtype[Any]) -> bool:
    """Say whether ``finfo`` or ``iinfo`` knows a type; numpy's class tree has none of ml_dtypes'."""
    try:
        info(dtype)
    except (ValueError, TypeError):
        return False
    return True


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    if isinstance(value, np.generic):
        return f"the {value.dtype} {value}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(bytes(value))} bytes"
    return f"the {type(value).__name__} {value!r:.60}"
