"""Tensor maps of buffers: what NumPy says of an array, what the driver is given, what a kernel gets."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda.bindings import driver as real

from ptxlab import Im2col, open_device
from ptxlab.device import cuda_driver
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.memory import Buffer
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxlabError
from ptxlab.tensormap.encoding import decode, encode
from ptxlab.tensormap.tensor_map import TensorMap
from tests.device.fake_driver import FakeDriver
from tests.together import in_one_test

COPY = """.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 out, .param .align 64 .b8 map[128])
{
    .reg .b32 i;
    .reg .b64 o, p, x;
    ld.param.u64    o, [out];
    mov.u32         i, %tid.x;
    mov.b64         p, map;
    mad.wide.u32    p, i, 8, p;
    ld.param.b64    x, [p];
    mad.wide.u32    o, i, 8, o;
    st.global.b64   [o], x;
    ret;
}
.visible .entry pointer(.param .u64 map) { ret; }
"""


@pytest.fixture
def device() -> Iterator[Device]:
    with open_device("emulator", arch="sm_90a") as device:
        yield device


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake = FakeDriver()
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (fake, ""))
    return fake


def test_a_box_of_an_array(device: Device) -> None:
    a = device.zeros((128, 256), "bf16")
    made = device.tensor_map(a, box=(32, 64), swizzle="128B", l2_promotion=128)
    assert made.map == TensorMap(
        "bf16", a.address, (256, 128), (512,), (64, 32), (1, 1), "128B", l2_promotion=128
    )
    assert made.buffer is a
    assert made.data == encode(made.map)


@in_one_test("seed", range(20))
def test_any_view_of_numpys_that_a_map_can_say(device: Device, seed: int) -> None:
    """Shape, strides and begin of a slice are those that NumPy itself gives it."""
    draw = np.random.default_rng(seed)
    whole = np.zeros(draw.integers(3, 6, draw.integers(1, 4)) * 16, np.uint32)[..., :32].copy()
    view = whole[tuple(slice(16 * draw.integers(0, 2), None, None) for _ in whole.shape)]
    view = view[tuple(slice(None, None, draw.integers(1, 4)) for _ in whole.shape[:-1])]
    if draw.random() < 0.3:
        view = np.broadcast_to(view, (3, *view.shape))
    buffer = device.upload(whole)
    offset = view.__array_interface__["data"][0] - whole.ctypes.data
    box = (4,) * view.ndim
    made = device.tensor_map(buffer, box, shape=view.shape, strides=view.strides, offset=offset)
    assert made.map.address == buffer.address + offset
    assert made.map.dims == view.shape[::-1]
    assert (4, *made.map.strides) == view.strides[::-1]
    low, high = np.lib.array_utils.byte_bounds(view)
    assert made.map.nbytes == high - low


def test_row_major_is_the_default(device: Device) -> None:
    a = device.zeros(24 * 64, "u8")
    made = device.tensor_map(a, (1, 2, 16), shape=(2, 3, 256), element_strides=(1, 2, 1)).map
    assert (made.dims, made.strides) == ((256, 3, 2), (256, 768))
    assert (made.box, made.element_strides) == ((16, 2, 1), (1, 2, 1))
    assert device.tensor_map(a, 64).map.strides == ()
    beyond = device.tensor_map(a, (72, 64), shape=(24, 64)).map  # a box larger than the tensor
    assert beyond.box == (64, 72)


def test_pixels(device: Device) -> None:
    x = device.zeros((2, 9, 11, 64), "f16")
    window = Im2col(lower=(-1, -2), upper=(0, 1), channels=32, pixels=128)
    made = device.tensor_map(x, im2col=window, swizzle="64B").map
    assert made.dims == (64, 11, 9, 2)
    assert made.strides == (128, 128 * 11, 128 * 99)
    assert made.box == Im2col(lower=(-2, -1), upper=(1, 0), channels=32, pixels=128)


@in_one_test(
    ("held", "asked", "name"),
    [
        (np.float16, None, "f16"),
        (ml_dtypes.bfloat16, None, "bf16"),
        (np.float32, None, "f32"),
        (np.float32, "tf32", "tf32"),
        (ml_dtypes.bfloat16, "u16", "u16"),
        (np.float64, None, "f64"),
        (np.int32, None, "s32"),
        (np.int64, None, "s64"),
        (np.int8, None, "u8"),
        (np.int16, None, "u16"),
        (np.bool_, None, "u8"),
        (ml_dtypes.float8_e4m3fn, None, "u8"),
        (np.complex64, None, "u64"),
    ],
)
def test_types(device: Device, held: Any, asked: str | None, name: str) -> None:
    a = device.zeros(64, held)
    assert device.tensor_map(a, 16, dtype=asked).map.dtype == name


@in_one_test(
    ("options", "message"),
    [
        ({}, "either box= or im2col="),
        ({"box": 4, "im2col": Im2col((), (), 1, 1)}, "either box= or im2col="),
        (
            {"box": (64, 512)},
            r"no tensor map of <emulator buffer .*: box 512 of dimension 0 is not",
        ),
        ({"box": (8, 12)}, "24 bytes of the box along dimension 0 are no multiple of 16"),
        ({"box": 64}, "it has 1 of box, not 2"),
        ({"box": (8.0, 8)}, "box takes integers, not 8.0"),
        ({"box": (8, 8), "swizzle": "16B"}, "swizzle 16B is none of none, 32B, 64B, 128B"),
        ({"box": (8, 8), "offset": 8}, "address 0x[0-9a-f]*8 is no multiple of 16"),
        ({"box": (8, 8), "offset": 16}, "16384 bytes from byte 16 on is not inside"),
        ({"box": (8, 8), "offset": -16}, "16384 bytes from byte -16 on is not inside"),
        ({"box": (8, 8), "shape": (129, 64)}, "16512 bytes from byte 0 on is not inside"),
        ({"box": (8, 8), "shape": (128, 60)}, "stride 120 of dimension 1 is no multiple of 16"),
        ({"box": (8, 8), "strides": (2, 128)}, r"strides \(2, 128\) are not those"),
        ({"box": (8, 8), "strides": (2,)}, r"strides \(2,\) are not those"),
        ({"box": (8, 8), "strides": (256, 2)}, "32642 bytes|32640 bytes"),
        ({"box": (8, 8), "dtype": "f32"}, "elements of f32 have another size"),
        ({"box": (8, 8), "dtype": "f8"}, "element type f8 is none of"),
    ],
)
def test_what_is_refused(device: Device, options: dict[str, Any], message: str) -> None:
    a = device.zeros((128, 64), "bf16")
    with pytest.raises(PtxlabError, match=message):
        device.tensor_map(a, **options)


def test_a_scalar_and_a_large_type_have_none(device: Device) -> None:
    with pytest.raises(PtxlabError, match="it has 0 dimensions, not 1 to 5"):
        device.tensor_map(device.upload(np.float32(1)), ())
    with pytest.raises(PtxlabError, match="element type u128 is none of"):
        device.tensor_map(device.zeros(4, np.complex128), 4)


def test_devices_keep_their_buffers_apart(device: Device) -> None:
    with (
        open_device("emulator", arch="sm_90a") as other,
        pytest.raises(PtxlabError, match="another"),
    ):
        device.tensor_map(other.zeros(64, "u8"), 64)
    with open_device("emulator", arch="sm_89") as old:
        a = old.zeros(64, "u8")
        with pytest.raises(PtxlabError, match=r"sm_90 and newer, and .* is sm_89"):
            old.tensor_map(a, 64)


# ---- as an argument -------------------------------------------------------------------------


def test_a_kernel_gets_the_bytes(device: Device) -> None:
    a, out = device.zeros((64, 64), "f16"), device.zeros(16, "u64")
    made = device.tensor_map(a, (8, 64), swizzle="128B")
    device.load(COPY).kernel("copy").launch(1, 16, [out, made])
    assert out.numpy().tobytes() == made.data
    assert decode(out.numpy().tobytes()) == made.map


def test_a_map_keeps_its_buffer(device: Device) -> None:
    made = device.tensor_map(device.zeros((64, 64), "f16"), (8, 64))
    gc.collect()
    assert made.buffer.address == made.map.address
    made.buffer.close()
    with pytest.raises(PtxlabError, match="this buffer is closed"):
        device.load(COPY).kernel("copy").launch(1, 16, [device.zeros(16, "u64"), made])


def test_a_pointer_to_a_map_is_another_thing(device: Device) -> None:
    made = device.tensor_map(device.zeros((64, 64), "f16"), (8, 64))
    with pytest.raises(
        PtxlabError, match="does not take a tensor map, which is 128 bytes"
    ) as caught:
        device.load(COPY).kernel("pointer").launch(1, 1, [made])
    assert "device.upload(" in (caught.value.hint or "")
    device.load(COPY).kernel("pointer").launch(
        1, 1, [device.upload(np.frombuffer(made.data, "u1"))]
    )
    with open_device("emulator", arch="sm_90a") as other:
        kernel = other.load(COPY).kernel("copy")
        with pytest.raises(PtxlabError, match="argument 1 lies on another device"):
            kernel.launch(1, 16, [other.zeros(16, "u64"), made])


# ---- on a GPU -------------------------------------------------------------------------------


def numbers(value: Any) -> Any:
    return (
        [int(coordinate) for coordinate in value] if isinstance(value, list | tuple) else int(value)
    )


def test_the_driver_is_given_the_innermost_dimension_first(driver: Any) -> None:
    gpu = CudaDevice()
    a = aligned(gpu, (128, 256))
    made = gpu.tensor_map(
        a, (32, 64), swizzle="128B", fill="nan", element_strides=(2, 1), l2_promotion=256
    )
    [args] = driver.named("cuTensorMapEncodeTiled")
    assert [numbers(arg) for arg in args] == [
        9, 2, a.address, [256, 128], [512], [64, 32], [1, 2], 0, 3, 3, 1
    ]  # fmt: skip
    assert args[0] is real.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    assert made.data == b"".join(word.to_bytes(8, "little") for word in range(1, 17))


def test_the_driver_is_given_pixels(driver: Any) -> None:
    gpu = CudaDevice()
    a = aligned(gpu, (2, 8, 8, 64))
    gpu.tensor_map(a, im2col=Im2col((-1, -2), (1, 2), 64, 100))
    [args] = driver.named("cuTensorMapEncodeIm2col")
    assert [numbers(arg) for arg in args] == [
        9, 4, a.address, [64, 8, 8, 2], [128, 1024, 8192], [-2, -1], [2, 1], 64, 100, [1] * 4, 0, 0, 0, 0
    ]  # fmt: skip


def test_the_driver_is_given_pixels_of_a_line(driver: Any) -> None:
    driver.capability = (10, 0)
    gpu = CudaDevice()
    a = aligned(gpu, (2, 8, 8, 64))
    gpu.tensor_map(a, im2col=Im2col((-2,), (2,), 32, 100, wide=True), swizzle="64B")
    [args] = driver.named("cuTensorMapEncodeIm2colWide")
    assert [numbers(arg) for arg in args] == [
        9, 4, a.address, [64, 8, 8, 2], [128, 1024, 8192], -2, 2, 32, 100, [1] * 4, 0, 0, 2, 0, 0
    ]  # fmt: skip


def test_what_the_driver_refuses_after_all(driver: Any) -> None:
    gpu = CudaDevice()
    driver.fail["cuTensorMapEncodeTiled"] = 1
    a = aligned(gpu, (64,))
    with pytest.raises(LaunchError, match="cannot encode a tensor map: the driver refuses"):
        gpu.tensor_map(a, 64)
    [args] = driver.named("cuTensorMapEncodeTiled")
    assert numbers(args[4]) == [0], (
        "of one dimension there is no stride, and the driver wants a list"
    )


def aligned(gpu: CudaDevice, shape: tuple[int, ...]) -> Buffer:
    """Return a buffer at a multiple of 16, as the driver's all are and host memory's may not be."""
    while (buffer := gpu.zeros(shape, "bf16")).address % 16:
        pass
    return buffer
