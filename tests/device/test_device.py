"""What any device does, on the emulator or, with --device cuda, on a GPU."""

import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab import resources
from ptxlab.device.memory import Buffer
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError, PtxSyntaxError, ToolchainError, Unsupported

ADD = """.version 8.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 out, .param .u32 n)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    add.u32 %r1, %r1, %r2;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""

COUNT = """.version 8.0
.target sm_75
.address_size 64
.visible .global .u32 counter = 40;
.visible .entry count(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [counter];
    add.u32 %r1, %r1, 1;
    st.global.u32 [counter], %r1;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry other() { ret; }
"""

DYNAMIC = """.version 8.0
.target sm_75
.address_size 64
.extern .shared .align 4 .b8 pool[];
.visible .entry turn(.param .u64 out)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, pool;
    shl.b32 %r3, %r1, 2;
    add.u32 %r3, %r3, %r2;
    st.shared.u32 [%r3], %r1;
    bar.sync 0;
    mov.u32 %r4, %ntid.x;
    sub.u32 %r4, %r4, %r1;
    sub.u32 %r4, %r4, 1;
    shl.b32 %r4, %r4, 2;
    add.u32 %r4, %r4, %r2;
    ld.shared.u32 %r5, [%r4];
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r5;
    ret;
}
"""


def test_launch_binds_arguments_and_runs(device: Device) -> None:
    out = device.zeros(32, "u32")
    result = device.load(ADD).kernel().launch(grid=1, block=32, args=[out, 7])
    assert out.numpy().tolist() == list(range(7, 39))
    assert result.seconds > 0


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.float64).reshape(2, 3, 4),
        np.arange(6, dtype=np.int8).reshape(2, 3).T,
        np.arange(5).astype(ml_dtypes.bfloat16),
        np.array(3, np.uint16),
        np.zeros((4, 0), np.float32),
        np.array([(1, 2.5)], [("n", "<i4"), ("x", "<f4")]),
        [[1, 2], [3, 4]],
    ],
    ids=["3-d", "transposed", "bf16", "0-d", "empty", "records", "list"],
)
def test_arrays_come_back_bit_for_bit(device: Device, array: Any) -> None:
    expected = np.asarray(array)
    buffer = device.upload(array)
    assert isinstance(buffer, Buffer)
    back = buffer.numpy()
    assert (back.shape, back.dtype) == (expected.shape, expected.dtype)
    assert back.tobytes() == expected.tobytes()
    buffer.close()


def test_random_bits_survive(device: Device) -> None:
    words = np.random.default_rng(5).integers(0, 2**32, 4096, dtype=np.uint32)
    for dtype in ("f32", "f16", "bf16", "e4m3", "e5m2", "s8"):
        view = words.view(device.zeros(1, dtype).dtype)
        assert device.upload(view).numpy().tobytes() == words.tobytes()


@pytest.mark.parametrize(
    "dtype", ["f32", ".bf16", "b8", "float16", np.int64, ml_dtypes.float8_e5m2]
)
def test_zeros(device: Device, dtype: Any) -> None:
    with device.zeros((3, 5), dtype) as buffer:
        assert buffer.shape == (3, 5)
        assert not any(buffer.numpy().tobytes())


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        (-1, "f32"),
        ((2, -1), "f32"),
        (1.5, "f32"),
        ("4", "f32"),
        (4, "f99"),
        (4, object),
        (4, "pred"),
    ],
)
def test_what_zeros_refuses(device: Device, shape: Any, dtype: Any) -> None:
    with pytest.raises(PtxlabError) as caught:
        device.zeros(shape, dtype)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("array", [np.array([None]), [[1], [1, 2]], "text", {}])
def test_what_upload_refuses(device: Device, array: Any) -> None:
    with pytest.raises(PtxlabError):
        device.upload(array)


def test_closed_buffer_is_refused_as_an_argument(device: Device) -> None:
    out = device.zeros(32, "u32")
    out.close()
    with pytest.raises(PtxlabError, match="closed"):
        device.load(ADD).kernel().launch(1, 32, [out, 7])


def test_module_keeps_its_variables_between_launches(device: Device) -> None:
    out = device.zeros(1, "u32")
    first, second = device.load(COUNT), device.load(COUNT)
    for module, expected in ((first, 41), (first, 42), (second, 41), (first, 43)):
        module.kernel("count").launch(1, 1, [out])
        assert out.numpy().tolist() == [expected]


def test_dynamic_shared_memory(device: Device) -> None:
    out = device.zeros(64, "u32")
    device.load(DYNAMIC).kernel().launch(1, 64, [out], shared=256)
    assert out.numpy().tolist() == list(range(63, -1, -1))


def test_kernels_are_picked_by_name(device: Device) -> None:
    module = device.load(COUNT)
    assert sorted(module.kernels) == ["count", "other"]
    assert module.kernel("other").name == "other"
    with pytest.raises(PtxlabError, match="has 2 kernels") as caught:
        module.kernel()
    assert "count, other" in str(caught.value)
    with pytest.raises(PtxlabError, match="no kernel coutn") as caught:
        module.kernel("coutn")
    assert "did you mean count" in str(caught.value)
    with pytest.raises(PtxlabError, match="no kernel"):
        device.load(".version 8.0\n.target sm_75\n.address_size 64\n").kernel()


STRUCT = """
struct Scale { int n; float by; };
extern "C" __global__ void scale(Scale s, float* x, bool negate) {
    int i = threadIdx.x;
    if (i < s.n) x[i] = (negate ? -1.0f : 1.0f) * s.by * x[i] + OFFSET;
}
"""


def test_cuda_c_with_a_struct_by_value(device: Device, tmp_path: Path) -> None:
    file = tmp_path / "scale.cu"
    file.write_text('#include "offset.cuh"\n' + STRUCT)
    (tmp_path / "offset.cuh").write_text("#ifndef OFFSET\n#define OFFSET 1\n#endif\n")
    scale = np.array((3, 2.5), [("n", "<i4"), ("by", "<f4")])
    for options, offset in (([], 1), (["-DOFFSET=2"], 2)):
        x = device.upload(np.arange(4, dtype=np.float32))
        device.load(file, options=options).kernel("scale").launch(1, 4, [scale, x, True])
        assert x.numpy().tolist() == [offset, offset - 2.5, offset - 5, 3]


def test_declared_block_size_is_held(device: Device) -> None:
    exact = ADD.replace("n)\n{", "n)\n.reqntid 32, 1, 1\n{")
    out = device.zeros(64, "u32")
    device.load(exact).kernel().launch(1, 32, [out, 0])
    with pytest.raises(PtxlabError, match=r"\.reqntid"):
        device.load(exact).kernel().launch(1, 64, [out, 0])
    most = ADD.replace("n)\n{", "n)\n.maxntid 16, 2\n{")
    device.load(most).kernel().launch(1, 32, [out, 0])
    with pytest.raises(PtxlabError, match="at most 32 threads"):
        device.load(most).kernel().launch(1, 33, [out, 0])


def test_the_last_directive_of_a_kind_counts(device: Device) -> None:
    text = ADD.replace("n)\n{", "n)\n.reqntid 64, 1, 1\n.reqntid 32\n{")
    out = device.zeros(64, "u32")
    device.load(text).kernel().launch(1, 32, [out, 0])
    with pytest.raises(PtxlabError, match=r"needs block \(32, 1, 1\)"):
        device.load(text).kernel().launch(1, 64, [out, 0])


# ---- loading --------------------------------------------------------------------------------


def test_paths_are_taken_as_they_are(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "add.ptx").write_text(ADD)
    monkeypatch.chdir(tmp_path)
    for source in (tmp_path / "add.ptx", str(tmp_path / "add.ptx"), "add.ptx", Path("add.ptx")):
        assert list(device.load(source).kernels) == ["add"]


def test_shipped_programs_are_found_from_anywhere(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "ptx/mma_m16n8k16_bf16_f32.ptx"
    assert resources.path(name).is_file()
    assert resources.shipped("ptx/../pyproject.toml") is None
    assert resources.shipped("pyproject.toml") is None
    assert device.load(name).kernels
    (tmp_path / "ptx").mkdir()
    (tmp_path / name).write_text(ADD)
    assert list(device.load(name).kernels) == ["add"], "a file of one's own comes first"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("ptx/mma_m16n8k16_bf16_f23.ptx", "ptx/mma_m16n8k16_bf16_f32.ptx"),
        ("zzzz/qqqqqqqqqqqq.cu", None),
        ("here/ad.ptx", "here/add.ptx"),
    ],
)
def test_missing_file_names_the_nearest(
    device: Device, path: str, hint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "add.ptx").write_text(ADD)
    with pytest.raises(PtxlabError, match=f"there is no file {path}") as caught:
        device.load(path)
    assert caught.value.exit_status == 2
    if hint is None:
        assert caught.value.hint is None
    else:
        assert hint in str(caught.value.hint)


def test_what_loading_refuses(device: Device, tmp_path: Path) -> None:
    (tmp_path / "binary.ptx").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.ptx").mkdir()
    (tmp_path / "add.ptx").write_text(ADD)
    (tmp_path / "bad.cu").write_text("__global__ void k() { nothing; }\n")
    for source, options, kind, words in (
        ("notes.txt", (), PtxlabError, "neither a .ptx, .cu, .cubin or .fatbin"),
        (tmp_path / "binary.ptx", (), PtxSyntaxError, "is not text"),
        (tmp_path / "folder.ptx", (), PtxlabError, "there is no file"),
        (tmp_path / "add.ptx", ["-DX"], PtxlabError, "is PTX already"),
        (ADD, ["-DX"], PtxlabError, "is PTX already"),
        (ADD.replace("ret;", "ret"), (), PtxSyntaxError, ""),
        (tmp_path / "bad.cu", (), ToolchainError, "nothing"),
        (ADD.replace("sm_75", "sm_20a"), (), PtxSyntaxError, "there is no target sm_20a"),
        (ADD.replace("sm_75", "sm_199a"), (), Unsupported, ".target sm_199a does not run on"),
    ):
        with pytest.raises(kind) as caught:
            device.load(source, options=options).kernel()
        assert words in str(caught.value)


def test_asking_for_a_gpu_without_one_ends_the_tests_clearly() -> None:
    body = "tests/device/test_device.py::test_dynamic_shared_memory"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", body, "--device", "cuda", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        cwd=Path(__file__).parents[2],
    )
    assert ran.returncode == 3
    assert "--device emulator" in ran.stdout + ran.stderr


@pytest.mark.parametrize("kind", ["i2", "u4", "f4", "f8"])
def test_arrays_in_another_byte_order_are_uploaded_in_that_of_the_gpu(
    device: Device, kind: str
) -> None:
    values = np.arange(5).astype(f">{kind}")
    with device.upload(values) as buffer:
        assert buffer.dtype == np.dtype(f"<{kind}")
        assert buffer.numpy().tobytes() == values.astype(f"<{kind}").tobytes()


def test_a_device_that_is_closed_keeps_nothing() -> None:
    device = open_device("emulator")
    words = np.zeros(4, np.uint32)
    device.map(words)
    held = weakref.ref(words)
    del words
    assert held() is not None
    device.close()
    assert held() is None
    device.close()


def test_addresses_of_32_bits_are_not_for_newer_gpus() -> None:
    text = ".version 8.0\n.target sm_75\n.address_size 32\n.visible .entry k() { ret; }\n"
    for arch in ("sm_75", "sm_89"):
        open_device("emulator", arch=arch).load(text).kernel().launch(1, 1)
    for arch in ("sm_90", "sm_100a"):
        with pytest.raises(Unsupported, match="addresses of 32 bits are not for") as caught:
            open_device("emulator", arch=arch).load(text)
        assert caught.value.location is not None
        assert caught.value.location.line == 3
