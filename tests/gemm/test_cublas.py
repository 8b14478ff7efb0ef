"""cuBLAS and cublasLt as they are called, against libraries made of numpy.

The fakes take what the bindings take, in their order, and compute what the libraries document for
column-major matrices in host memory, which is where the fake driver has its own. Where the bindings
are installed, their own enumerations and attribute types are used.
"""

from __future__ import annotations

import ctypes
import enum
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device import cuda_driver
from ptxlab.device.cuda import CudaDevice
from ptxlab.errors import DeviceUnavailable, LaunchError
from ptxlab.gemm import LADDER, Problem, run
from ptxlab.gemm import cublas as ours
from ptxlab.gemm.cublas import CANDIDATES
from tests.device.fake_driver import FakeDriver

STREAM = 77
WORKSPACE = 1024
TYPES: dict[int, Any] = {0: np.float32, 2: np.float16, 14: ml_dtypes.bfloat16}


class Driver(FakeDriver):
    """A driver whose stream has a handle, and whose events are as far apart as they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.milliseconds: list[float] = []

    def _cuStreamCreate(self, flags: int) -> Any:
        return STREAM

    def _cuEventElapsedTime(self, began: Any, ended: Any) -> float:
        return self.milliseconds.pop(0) if self.milliseconds else 2.5


def matrix(address: int, kind: int, rows: int, columns: int, leading: int) -> Array:
    """A column-major matrix in memory, of which nothing beyond the last element exists."""
    dtype = np.dtype(TYPES[kind])
    assert leading >= max(rows, 1)
    length = (columns - 1) * leading + rows if rows and columns else 0
    raw = (ctypes.c_uint8 * (length * dtype.itemsize)).from_address(address)
    flat = np.ctypeslib.as_array(raw).view(dtype)
    strides = (dtype.itemsize, leading * dtype.itemsize)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), strides)


def multiply(
    a: Array,
    b: Array,
    operations: tuple[int, int],
    alpha: float,
    beta: float,
    d: Array,
    bias: Array | None = None,
    relu: bool = False,
) -> None:
    """D = op(A) op(B), column-major, in float64; D is read only if beta is not 0."""
    x, y = (
        matrix.astype(np.float64).T if operation else matrix.astype(np.float64)
        for matrix, operation in zip((a, b), operations, strict=True)
    )
    result = alpha * (x @ y)
    if beta:
        result += beta * d.astype(np.float64)
    if bias is not None:
        result += bias[:, None]
    d[...] = (np.maximum(result, 0) if relu else result).astype(d.dtype)


def factor(address: int, kind: int) -> float:
    raw = (ctypes.c_uint8 * np.dtype(TYPES[kind]).itemsize).from_address(address)
    return float(np.ctypeslib.as_array(raw).view(TYPES[kind])[0])


class Operation(enum.IntEnum):
    N = 0
    T = 1


class ComputeType(enum.IntEnum):
    COMPUTE_16F = 64
    COMPUTE_32F = 68
    COMPUTE_32F_FAST_TF32 = 77


class GemmAlgo(enum.IntEnum):
    DEFAULT = -1


class FakeError(Exception):
    pass


class Cublas(ModuleType):
    """``nvmath.bindings.cublas``: one handle, one stream, one workspace."""

    Operation, ComputeType, GemmAlgo, cuBLASError = Operation, ComputeType, GemmAlgo, FakeError

    def __init__(self) -> None:
        super().__init__("nvmath.bindings.cublas")
        self.alive = 0
        self.stream = self.workspace = 0
        self.runs: list[tuple[int, ...]] = []
        self.fails = ""

    def create(self) -> int:
        if self.fails == "create":
            raise RuntimeError("libcublas.so.13 is not found")
        self.alive += 1
        return 5

    def destroy(self, handle: int) -> None:
        assert handle == 5
        self.alive -= 1

    def set_stream(self, handle: int, stream: int) -> None:
        self.stream = stream

    def set_workspace(self, handle: int, address: int, size: int) -> None:
        assert size == WORKSPACE
        self.workspace = address

    def gemm_ex(
        self, handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int,
        a: int, a_type: int, lda: int, b: int, b_type: int, ldb: int, beta: int,
        c: int, c_type: int, ldc: int, compute: int, algorithm: int,
    ) -> None:  # fmt: skip
        assert (handle, self.stream, self.alive, algorithm) == (5, STREAM, 1, -1)
        assert self.workspace
        if self.fails == "gemm":
            raise FakeError("CUBLAS_STATUS_NOT_SUPPORTED (15)")
        scale = 2 if compute == ComputeType.COMPUTE_16F else 0
        left = matrix(a, a_type, *((k, m) if transa else (m, k)), lda)
        right = matrix(b, b_type, *((n, k) if transb else (k, n)), ldb)
        d = matrix(c, c_type, m, n, ldc)
        operations = transa, transb
        multiply(left, right, operations, factor(alpha, scale), factor(beta, scale), d)
        self.runs.append((m, n, k, compute))


class Record:
    """What a create function makes: a kind, what it was made of, and its attributes."""

    def __init__(self, kind: str, *made_of: int) -> None:
        self.kind, self.made_of, self.given = kind, made_of, dict[str, int]()


class MatmulDescAttribute(enum.IntEnum):
    TRANSA = 3
    TRANSB = 4
    EPILOGUE = 7
    BIAS_POINTER = 8


class MatmulPreferenceAttribute(enum.IntEnum):
    MAX_WORKSPACE_BYTES = 1


class Epilogue(enum.IntEnum):
    DEFAULT = 1
    RELU = 2
    BIAS = 4
    RELU_BIAS = 6


class MatmulHeuristicResult:
    """An array of structs of 96 bytes, whose elements are such arrays of one."""

    def __init__(self, size: int = 1, ptr: int = 0) -> None:
        self.storage = np.zeros(size * 96, np.uint8)
        self.ptr = ptr or self.storage.ctypes.data

    def __getitem__(self, i: int) -> MatmulHeuristicResult:
        return MatmulHeuristicResult(1, self.ptr + 96 * i)


class CublasLt(ModuleType):
    """``nvmath.bindings.cublasLt``: descriptions are kept, and three algorithms are proposed."""

    MatmulDescAttribute, MatmulPreferenceAttribute = MatmulDescAttribute, MatmulPreferenceAttribute
    Epilogue, cuBLASLtError, MatmulHeuristicResult = Epilogue, FakeError, MatmulHeuristicResult

    def __init__(self) -> None:
        super().__init__("nvmath.bindings.cublasLt")
        self.made: dict[int, Record] = {}
        self.proposals = 3
        self.runs: list[tuple[int, int]] = []

    def _make(self, kind: str, *made_of: int) -> int:
        handle = 1000 + len(self.made)
        assert handle not in self.made
        self.made[handle] = Record(kind, *made_of)
        return handle

    def _unmake(self, kind: str, handle: int) -> None:
        assert self.made[handle].kind == kind
        self.made[handle].kind = "destroyed"

    def create(self) -> int:
        return self._make("handle")

    def destroy(self, handle: int) -> None:
        self._unmake("handle", handle)

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._make("desc", compute, scale)

    def matmul_desc_destroy(self, desc: int) -> None:
        self._unmake("desc", desc)

    def matrix_layout_create(self, kind: int, rows: int, columns: int, leading: int) -> int:
        return self._make("layout", kind, rows, columns, leading)

    def matrix_layout_destroy(self, layout: int) -> None:
        self._unmake("layout", layout)

    def matmul_preference_create(self) -> int:
        return self._make("preference")

    def matmul_preference_destroy(self, preference: int) -> None:
        self._unmake("preference", preference)

    def get_matmul_desc_attribute_dtype(self, attribute: enum.IntEnum) -> Any:
        return {"EPILOGUE": np.uint32, "BIAS_POINTER": np.int64}.get(attribute.name, np.int32)

    def get_matmul_preference_attribute_dtype(self, attribute: enum.IntEnum) -> Any:
        return np.uint64

    def matmul_desc_set_attribute(self, desc: int, attribute: Any, buffer: int, size: int) -> None:
        kind = np.dtype(self.get_matmul_desc_attribute_dtype(attribute))
        assert kind.itemsize == size
        raw = (ctypes.c_uint8 * size).from_address(buffer)
        self.made[desc].given[attribute.name] = int(np.ctypeslib.as_array(raw).view(kind)[0])

    def matmul_preference_set_attribute(
        self, preference: int, attribute: Any, buffer: int, size: int
    ) -> None:
        assert (attribute.name, size) == ("MAX_WORKSPACE_BYTES", 8)
        assert ctypes.c_uint64.from_address(buffer).value == WORKSPACE

    def matmul_algo_get_heuristic(
        self, handle: int, desc: int, a: int, b: int, c: int, d: int, preference: int,
        requested: int, results: int, count: int,
    ) -> None:  # fmt: skip
        kinds = [self.made[each].kind for each in (handle, desc, a, b, c, d, preference)]
        assert kinds == ["handle", "desc", *["layout"] * 4, "preference"]
        assert (requested, c) == (CANDIDATES, d)
        for i in range(self.proposals):
            ctypes.c_uint8.from_address(results + 96 * i).value = 40 + i
        ctypes.c_int32.from_address(count).value = self.proposals

    def matmul(
        self, handle: int, desc: int, alpha: int, a: int, a_layout: int, b: int, b_layout: int,
        beta: int, c: int, c_layout: int, d: int, d_layout: int, algorithm: int, workspace: int,
        workspace_size: int, stream: int,
    ) -> None:  # fmt: skip
        assert (self.made[handle].kind, stream, workspace_size) == ("handle", STREAM, WORKSPACE)
        assert workspace
        assert (c, c_layout) == (d, d_layout)
        self.runs.append((ctypes.c_uint8.from_address(algorithm).value, d))
        operation = self.made[desc]
        compute, scale = operation.made_of
        given = operation.given
        x, y, z = (
            matrix(address, *self.made[layout].made_of)
            for address, layout in ((a, a_layout), (b, b_layout), (d, d_layout))
        )
        epilogue = Epilogue(given["EPILOGUE"])
        bias = None
        if "BIAS" in epilogue.name:
            bias = matrix(given["BIAS_POINTER"], 0, len(z), 1, len(z))[:, 0]
        assert (scale == 2) == (compute == ComputeType.COMPUTE_16F)
        multiply(
            x, y, (given["TRANSA"], given["TRANSB"]), factor(alpha, scale), factor(beta, scale), z,
            bias, "RELU" in epilogue.name,
        )  # fmt: skip


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    driver = Driver()
    assert ours.WORKSPACE == 32 << 20
    monkeypatch.setattr(ours, "WORKSPACE", WORKSPACE)
    monkeypatch.setattr(cuda_driver, "_find_driver", lambda: (driver, ""))
    with CudaDevice() as device:
        yield device
        device.driver.api.milliseconds.clear()


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> tuple[Cublas, CublasLt]:
    blas, lt = Cublas(), CublasLt()
    for module in (ModuleType("nvmath"), ModuleType("nvmath.bindings"), blas, lt):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return blas, lt


TYPED = [("f32", "f32"), ("bf16", "f32"), ("f16", "f32"), ("f16", "f16"), ("tf32", "f32")]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("dtype", "acc"), TYPED)
@pytest.mark.parametrize("name", ["cublas", "cublaslt"])
def test_asks_for_the_right_product(
    gpu: CudaDevice,
    libraries: tuple[Cublas, CublasLt],
    name: str,
    dtype: str,
    acc: str,
    layout: str,
) -> None:
    for epilogue in ("none", "bias", "relu", "bias+relu") if name == "cublaslt" else ("none",):
        if acc == "f16" and "bias" in epilogue:
            continue
        for alpha, beta in ((1.0, 0.0), (0.5, -1.5)):
            problem = Problem(
                7, 5, 9, dtype, acc, layout=layout, epilogue=epilogue, alpha=alpha, beta=beta,
                lda=11, ldb=13, ldd=6,
            )  # fmt: skip
            result = run(gpu, problem, LADDER[name])
            assert result.passed, result
            assert (result.device, result.launched.seconds) == ("cuda", 2.5e-3)
            assert result.tflops == problem.flops / 2.5e-3 / 1e12
    blas, lt = libraries
    assert blas.alive == 0
    assert {record.kind for record in lt.made.values()} <= {"destroyed"}
    computes = {compute for *_, compute in blas.runs} | {
        record.made_of[0] for record in lt.made.values() if len(record.made_of) == 2
    }
    expected = "COMPUTE_16F" if acc == "f16" else "COMPUTE_32F_FAST_TF32" if dtype == "tf32" else "COMPUTE_32F"  # fmt: skip
    assert computes == {ComputeType[expected]}


def test_cublas_is_warm_before_it_counts(
    gpu: CudaDevice, libraries: tuple[Cublas, CublasLt]
) -> None:
    gpu.driver.api.milliseconds = [50.0, 4.0]
    assert run(gpu, Problem(3, 4, 5, "f32", beta=1), LADDER["cublas"]).launched.seconds == 4e-3
    assert len(libraries[0].runs) == 2


def test_the_fastest_proposal_runs_on_d(
    gpu: CudaDevice, libraries: tuple[Cublas, CublasLt]
) -> None:
    gpu.driver.api.milliseconds = [9, 5, 4, 5, 1, 3, 3, 2, 9, 3, 3, 6, 2.5]
    result = run(gpu, Problem(3, 4, 5, "f32", beta=1), LADDER["cublaslt"])
    assert result.passed
    assert result.launched.seconds == 2.5e-3
    runs = libraries[1].runs
    assert [number for number, _ in runs] == [40] * 4 + [41] * 4 + [42] * 4 + [41]
    scratch = {d for _, d in runs[:-1]}
    assert len(scratch) == 1
    assert runs[-1][1] not in scratch


def test_what_the_libraries_refuse(gpu: CudaDevice, libraries: tuple[Cublas, CublasLt]) -> None:
    blas, lt = libraries
    problem = Problem(3, 4, 5, "f32")
    blas.fails = "gemm"
    with pytest.raises(LaunchError, match="cublas does not compute this problem: CUBLAS_STATUS"):
        run(gpu, problem, LADDER["cublas"])
    blas.fails = "create"
    with pytest.raises(DeviceUnavailable, match=r"cublas does not start: libcublas\.so\.13"):
        run(gpu, problem, LADDER["cublas"])
    assert blas.alive == 0
    lt.proposals = 0
    with pytest.raises(LaunchError, match="cublasLt proposes no algorithm"):
        run(gpu, problem, LADDER["cublaslt"])
    assert {record.kind for record in lt.made.values()} == {"destroyed"}
    with pytest.raises(DeviceUnavailable, match="no empty sums"):
        run(gpu, Problem(3, 4, 0, "f32"), LADDER["cublaslt"])
    with pytest.raises(DeviceUnavailable, match="no bias of f32 for D of f16"):
        run(gpu, Problem(3, 4, 5, "f16", "f16", epilogue="bias"), LADDER["cublaslt"])


@pytest.mark.parametrize("name", ["cublas", "cublaslt"])
def test_an_empty_d_needs_no_library(
    gpu: CudaDevice, libraries: tuple[Cublas, CublasLt], name: str
) -> None:
    assert run(gpu, Problem(0, 4, 5, "f32"), LADDER[name]).passed


def test_without_the_bindings_it_says_what_to_install(
    gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublas", None)
    with pytest.raises(DeviceUnavailable, match="cublas cannot be called") as caught:
        run(gpu, Problem(3, 4, 5, "f32"), LADDER["cublas"])
    assert caught.value.exit_status == 3
    assert caught.value.hint is not None
    assert "nvmath-python" in caught.value.hint


def test_the_fakes_are_like_the_bindings() -> None:
    """Where the bindings are installed, their enumerations have the values the fakes have."""
    blas = pytest.importorskip("nvmath.bindings.cublas")
    lt = pytest.importorskip("nvmath.bindings.cublasLt")
    fakes: list[tuple[Any, Any]] = [
        (blas, Operation), (blas, ComputeType), (blas, GemmAlgo), (lt, Epilogue),
        (lt, MatmulDescAttribute), (lt, MatmulPreferenceAttribute),
    ]  # fmt: skip
    for module, fake in fakes:
        real = getattr(module, fake.__name__)
        for member in fake:
            assert int(real[member.name]) == int(member)
    proposals = lt.MatmulHeuristicResult(2)
    assert proposals[1].ptr - proposals.ptr == 96
    for attribute in MatmulDescAttribute:
        real_type = lt.get_matmul_desc_attribute_dtype(lt.MatmulDescAttribute[attribute.name])
        assert real_type == CublasLt().get_matmul_desc_attribute_dtype(attribute)
