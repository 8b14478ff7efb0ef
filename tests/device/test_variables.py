"""The variables of a module, read and written from the host, on the emulator or with --device on a GPU."""

import ctypes
import gc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device import cuda_driver
from ptxlab.device.cuda import CudaDevice
from ptxlab.device.dump import launch_rewritten
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device, Dump
from ptxlab.errors import LaunchError, PtxlabError, PtxSyntaxError
from ptxlab.launch_config import LaunchConfig
from tests.device.fake_driver import FakeDriver
from tests.together import in_one_test

HEAD = ".version 8.3\n.target sm_80\n.address_size 64\n"
TEXT = (
    HEAD
    + """
.visible .const .align 8 .b8 table[64];
.visible .const .f32 scale = 0.25;
.visible .const .v4 .s16 vectors[2] = {{1, -2, 3, -4}, {5, 6, 0, 0}};
.visible .global .u32 counter = 40;
.visible .global .f64 matrix[2][3] = {{1.5}, {0.0, 0.0, -2.5}};
.visible .global .u32 counted[] = {7, 8, 9};
.visible .global .u64 where;
.visible .global .b128 wide;
.visible .global .u64 address = counter;
.extern .global .u32 counter;
.visible .entry k(.param .u64 out, .param .u32 word)
{
    .reg .b32 r<4>;
    .reg .b64 d<5>;
    ld.param.u64 d0, [out];
    ld.param.u32 r0, [word];
    mul.wide.u32 d1, r0, 8;
    mov.u64 d2, table;
    add.u64 d2, d2, d1;
    ld.const.b64 d3, [d2];
    st.global.b64 [d0], d3;
    ld.global.u32 r1, [counter];
    add.u32 r1, r1, 1;
    st.global.u32 [counter], r1;
    ret;
}
.visible .entry through() {
    .reg .b32 r<2>;
    .reg .b64 d<2>;
    ld.global.u64 d0, [where];
    ld.global.u32 r0, [d0];
    add.u32 r0, r0, 5;
    st.global.u32 [d0], r0;
    ret;
}
"""
)


def test_initial_values_are_there_before_any_launch(device: Device) -> None:
    module = device.load(TEXT)
    initial: list[tuple[str, Any, Any]] = [
        ("table", np.uint8, [0] * 64),
        ("scale", np.float32, 0.25),
        ("vectors", np.int16, [[1, -2, 3, -4], [5, 6, 0, 0]]),
        ("counter", np.uint32, 40),
        ("matrix", np.float64, [[1.5, 0, 0], [0, 0, -2.5]]),
        ("counted", np.uint32, [7, 8, 9]),
        ("where", np.uint64, 0),
    ]
    for name, dtype, expected in initial:
        array = module.variable(name).numpy()
        assert (array.dtype, array.tolist()) == (dtype, expected)
    pointer = int(module.variable("address").numpy())
    assert pointer == module.variable("counter").address


def test_kernels_see_what_is_uploaded(device: Device) -> None:
    module, other = device.load(TEXT), device.load(TEXT)
    words = np.random.default_rng(3).integers(0, 2**64, 8, dtype=np.uint64)
    module.variable("table").upload(words)
    out = device.zeros(1, "u64")
    for word in range(8):
        module.kernel("k").launch(1, 1, [out, word])
        assert out.numpy().tolist() == [words[word]]
    assert int(module.variable("counter").numpy()) == 48
    assert int(other.variable("counter").numpy()) == 40
    other.kernel("k").launch(1, 1, [out, 3])
    assert out.numpy().tolist() == [0], "every module has variables of its own"


@pytest.mark.parametrize(
    "name", ["table", "scale", "vectors", "matrix", "counted", "where", "wide"]
)
def test_random_bits_survive(device: Device, name: str) -> None:
    module = device.load(TEXT)
    variable = module.variable(name)
    raw = np.random.default_rng(4).bytes(variable.nbytes)
    bits = np.frombuffer(raw, variable.dtype).reshape(variable.shape)
    variable.upload(bits)
    variable.close()
    again = module.variable(name)
    assert again.numpy().tobytes() == raw
    again.upload(again.numpy())
    assert again.numpy().tobytes() == raw


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("scale", 0.1, np.float32(0.1)),
        ("scale", 3, np.float32(3)),
        ("counter", 2**32 - 1, np.uint32(2**32 - 1)),
        ("table", np.arange(32).astype(ml_dtypes.bfloat16), None),
        ("table", bytes(range(64)), None),
        ("matrix", np.arange(6.0), None),
        ("wide", 1 << 100, None),
    ],
)
def test_what_is_taken(device: Device, name: str, value: Any, expected: Any) -> None:
    variable = device.load(TEXT).variable(name)
    variable.upload(value)
    whole = value.to_bytes(16, "little") if name == "wide" else value
    plain = whole if isinstance(whole, bytes) else np.asarray(whole).tobytes()
    assert variable.numpy().tobytes() == (plain if expected is None else expected.tobytes())


@in_one_test(
    ("name", "value", "words", "hint"),
    [
        ("table", np.zeros(63, np.uint8), r"variable table is \.b8\[64\], which .* 63 bytes, not 64", None),
        ("table", [1, 2], r"the list \[1, 2\]", "give 64 bytes, a numpy array or record"),
        ("matrix", np.zeros(6, np.float32), r"an array of float32 with shape \(6,\)", "its elements are float64"),
        ("matrix", np.zeros((2, 2)), "that is 32 bytes, not 48", None),
        ("scale", 1e300, "too large for it", None),
        ("scale", "x", "the str 'x'", None),
        ("counter", -(2**31) - 1, "its range is -2147483648 to 4294967295", None),
        ("counter", 0.5, "the float 0.5", "give an integer"),
        ("where", np.zeros(2), "an array of float64", "put it on the device first"),
    ],
)  # fmt: skip
def test_what_is_refused(
    device: Device, name: str, value: Any, words: str, hint: str | None
) -> None:
    variable = device.load(TEXT).variable(name)
    before = variable.numpy().tobytes()
    with pytest.raises(PtxlabError, match=words) as caught:
        variable.upload(value)
    assert caught.value.exit_status == 2
    assert caught.value.message.startswith("<ptx>: variable ")
    assert (hint or "") in (caught.value.hint or "")
    assert variable.numpy().tobytes() == before


def test_names(device: Device) -> None:
    module = device.load(TEXT)
    with pytest.raises(PtxlabError, match="<ptx> has no variable cuonter") as caught:
        module.variable("cuonter")
    assert "did you mean counter" in str(caught.value.hint)
    with pytest.raises(PtxlabError, match="has no variable k") as caught:
        module.variable("k")
    with pytest.raises(PtxlabError) as caught:
        device.load(HEAD).variable("x")
    assert caught.value.hint is None


def test_a_variable_is_an_argument_and_holds_one(device: Device) -> None:
    module = device.load(TEXT)
    counter, where = module.variable("counter"), module.variable("where")
    where.upload(counter)
    module.kernel("through").launch(1, 1)
    assert int(counter.numpy()) == 45
    data = device.upload(np.array([100], np.uint32))
    where.upload(data)
    module.kernel("through").launch(1, 1)
    assert data.numpy().tolist() == [105]
    module.variable("table").upload(np.arange(8, dtype=np.uint64))
    module.kernel("k").launch(1, 1, [where, 6])
    assert int(where.numpy()) == 6


def test_cuda_c(device: Device, tmp_path: Path) -> None:
    file = tmp_path / "scale.cu"
    file.write_text(
        "__constant__ float c[4]; __device__ int hits; __device__ float* p;\n"
        'extern "C" __global__ void k() { p[threadIdx.x] *= c[threadIdx.x]; atomicAdd(&hits, 1); }\n'
    )
    module = device.load(file)
    factors, x = np.array([1, 2, 0.5, -1], np.float32), np.arange(1, 5, dtype=np.float32)
    data = device.upload(x)
    module.variable("c").upload(factors)
    module.variable("p").upload(data)
    module.kernel().launch(1, 4)
    assert data.numpy().tolist() == (x * factors).tolist()
    assert int(module.variable("hits").numpy()) == 4


def test_a_closed_device_has_no_variables() -> None:
    other = open_device("emulator")
    module = other.load(TEXT)
    counter = module.variable("counter")
    other.close()
    for use in (lambda: module.variable("counter"), counter.numpy, lambda: counter.upload(1)):
        with pytest.raises(PtxlabError, match="is closed"):
            use()


def test_a_module_that_is_wrong_has_none() -> None:
    device = open_device("emulator")
    with pytest.raises(PtxSyntaxError, match="3 initial values for 2 elements"):
        device.load(HEAD + ".global .u32 g[2] = {1, 2, 3};").variable("g")


def test_a_rewritten_kernel_has_them_too() -> None:
    device = open_device("emulator")
    module = device.load(TEXT)
    kernel, out = module.kernel("k"), device.zeros(1, "u64")
    module.variable("table").upload(np.arange(8, dtype=np.uint64) + 11)
    module.variable("counter").upload(90)
    assert kernel.function is not None
    packed, config = kernel.packed([out, 2]), LaunchConfig.of(1, 1)
    result = launch_rewritten(module, kernel.function, Dump("ld.const.b64", ("D",)), config, packed)
    assert result.dump is not None
    assert result.dump.words.tolist() == [[13]]
    assert int(module.variable("counter").numpy()) == 91, "and what it left in them is kept"


# ---- on a GPU that is not there -------------------------------------------------------------


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (fake, ""))
    return fake


def test_the_driver_is_asked(driver: FakeDriver) -> None:
    gpu = CudaDevice()
    memory = ctypes.create_string_buffer(b"\5" * 64, 64)
    driver.variables = {"table": (ctypes.addressof(memory), 64)}
    module = gpu.load(TEXT)
    table = module.variable("table")
    assert driver.named("cuModuleGetGlobal") == [("module 1", b"table")]
    assert table.address == ctypes.addressof(memory)
    assert table.numpy().tolist() == [5] * 64
    table.upload(np.arange(8, dtype=np.uint64))
    assert memory.raw == np.arange(8, dtype=np.uint64).tobytes()
    del module
    gc.collect()
    assert driver.named("cuModuleUnload") == [], "a variable keeps its module"
    del table
    gc.collect()
    assert driver.named("cuModuleUnload") == [("module 1",)]
    assert driver.named("cuMemFree") == []


def test_one_of_a_cubin_has_a_size_alone(driver: FakeDriver, tmp_path: Path) -> None:
    file = tmp_path / "k.cubin"
    file.write_bytes(b"\x7fELF rest")
    memory = ctypes.create_string_buffer(8)
    driver.variables = {"x": (ctypes.addressof(memory), 8)}
    module = CudaDevice().load(file)
    variable = module.variable("x")
    variable.upload(np.array([1.5, -2.5], np.float32))
    assert variable.numpy().view(np.float32).tolist() == [1.5, -2.5]
    driver.fail["cuModuleGetGlobal"] = 500
    with pytest.raises(
        LaunchError, match=r"cannot find the variable y of .*: it has nothing of this"
    ):
        module.variable("y")
