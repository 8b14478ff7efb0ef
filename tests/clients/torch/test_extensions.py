"""Extensions of PyTorch in C++ and CUDA C, as programs give them to load_inline: compiled by NVRTC alone, held to PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ptxlab.errors import LaunchError, ToolchainError
from ptxlab.verbs.exec import child
from tests.clients.needs import need

need("torch", "triton", "setuptools")
import_module("setuptools")  # PyTorch wants it here, and it to be before distutils

CPP = """
#include <torch/extension.h>
#include <vector>
torch::Tensor scaled(torch::Tensor x, double factor, c10::optional<torch::Tensor> bias);
std::vector<torch::Tensor> split(torch::Tensor x, std::vector<int64_t> at);
"""
CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_runtime.h>
#include <algorithm>

#define CHECK_INPUT(x) TORCH_CHECK((x).is_cuda() && (x).is_contiguous(), #x " must be contiguous and on a GPU")

template <typename scalar_t, int BLOCK>
__global__ void scale(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, const scalar_t* bias,
                      const long columns, const long n, const scalar_t factor) {
    const long i = (long)blockIdx.x * BLOCK + threadIdx.x;  // 1 <<< 2 is no launch here
    if (i < n) y[i] = x[i] * factor + (bias ? bias[i % columns] : scalar_t(0));
}

__global__ void transposed(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x, float* y) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[blockIdx.x][threadIdx.x];
    __syncthreads();
    y[threadIdx.x * gridDim.x + blockIdx.x] = tile[threadIdx.x];
}

torch::Tensor scaled(torch::Tensor x, double factor, c10::optional<torch::Tensor> bias) {
    CHECK_INPUT(x);
    auto y = torch::empty({x.size(0), x.size(-1)}, x.options());
    constexpr int block = 64;
    const int blocks = std::max<int64_t>(1, (x.numel() + block - 1) / block);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scaled", ([&] {
        scale<scalar_t, block><<<blocks, block, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), bias ? bias->data_ptr<scalar_t>() : nullptr,
            x.size(1), x.numel(), factor);
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

torch::Tensor turned(const torch::Tensor& x) {
    auto y = torch::zeros({x.sizes()[1], x.sizes()[0]}, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()));
    dim3 grid(x.size(0)), block(x.size(1));
    transposed<<<grid, block, x.size(1) * sizeof(float)>>>(
        x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), y.data_ptr<float>());
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
    return y;
}

std::vector<torch::Tensor> split(torch::Tensor x, std::vector<int64_t> at) {
    std::vector<torch::Tensor> parts;
    for (size_t i = 0; i + 1 < at.size(); i++) parts.push_back(x.narrow(0, at[i], at[i + 1] - at[i]) * 2);
    return parts;
}

std::tuple<torch::Tensor, long> past(torch::Tensor x) {
    scale<float, 64><<<3, 64>>>(x.data_ptr<float>(), x.data_ptr<float>(), nullptr, 1, x.numel() + 1, 2.0f);
    return std::make_tuple(x, x.numel());
}
"""
FUNCTIONS = ["scaled", "turned", "split", "past"]


@pytest.fixture
def torch(emulate: Callable[..., Any]) -> Any:
    emulate("sm_80")
    import_module("torch.utils.cpp_extension")
    return import_module("torch")


def test_functions_of_cpp_launch_kernels(torch: Any) -> None:
    module = torch.utils.cpp_extension.load_inline("mine", CPP, CUDA, functions=FUNCTIONS)
    x = torch.randn(5, 33, device="cuda")
    bias = torch.randn(33, device="cuda")
    wide = x.double()
    assert torch.equal(module.scaled(wide, 0.25, bias.double()), wide * 0.25 + bias.double())
    assert torch.equal(module.scaled(x, 0.5, None), x * 0.5)
    assert torch.equal(module.turned(x[:, ::3]), x[:, ::3].t())
    assert [each.tolist() for each in module.split(x, [0, 2, 5])] == [
        (x[:2] * 2).tolist(), (x[2:] * 2).tolist(),
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match="x must be contiguous and on a GPU"):
        module.scaled(x.t(), 1.0, None)
    with pytest.raises(RuntimeError, match="scaled is not implemented for this type"):
        module.scaled(x.int(), 1.0, None)
    with pytest.raises(RuntimeError, match="an argument is not a tensor"):
        module.scaled(1.0, x, None)
    with pytest.raises(RuntimeError, match="another number of them"):
        module.scaled(x)
    with pytest.raises(LaunchError, match="out of bounds") as fault:
        module.past(x)
    line = CUDA[: CUDA.index("if (i < n)")].count("\n") + 1
    assert fault.value.location is not None
    here = Path(__file__).read_text(encoding="utf-8")
    first = here[: here.index(CUDA)].count("\n")
    assert (fault.value.location.path, fault.value.location.line) == (__file__, first + line)


def test_what_does_not_compile_is_rejected_on_its_line(torch: Any) -> None:
    wrong = 'int f(int x) {\n    return y;\n}\n'  # fmt: skip
    with pytest.raises(ToolchainError, match='identifier "y" is undefined') as error:
        torch.utils.cpp_extension.load_inline(
            "mine", wrong.replace("int x", "int z"), functions="f"
        )
    assert error.value.location is not None
    assert error.value.location.line == 2


@pytest.mark.thorough
def test_files_and_bindings_of_their_own(torch: Any, tmp_path: Path) -> None:
    file = tmp_path / "half.cu"
    file.write_text("""
#include <torch/extension.h>
template <typename T> __global__ void twice(T* x, int n) {
    if (threadIdx.x < n) x[threadIdx.x] += x[threadIdx.x];
}
void twice_(torch::Tensor x) {
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "twice_", [&] {
        twice<scalar_t><<<1, 32>>>(x.data_ptr<scalar_t>(), x.numel());
    });
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("twice", &twice_, "twice as much");
    m.def("sum", [](const std::vector<double>& v) { double s = 0; for (double x : v) s += x; return s; });
}
""")
    module = torch.utils.cpp_extension.load("half", [str(file)])
    x = torch.arange(7, device="cuda").half()
    assert module.twice(x) is None
    assert x.tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert module.sum([1, 2.5, 3.0]) == 6.5


def test_a_program_that_imports_pytorch_alone_has_them_under_exec(
    torch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = child.Options("sm_80", check=False, timeout=1, folder=str(tmp_path))
    monkeypatch.setenv(child.VARIABLE, json.dumps(asdict(options)))
    opened: list[Any] = []
    monkeypatch.setattr("ptxlab.clients.torch.module.install", opened.append)
    monkeypatch.setattr("ptxlab.clients.torch.extensions.install", opened.append)
    try:
        child.HOOKS["torch"](torch)
        assert opened == [child.session().device.target, child.session()]
    finally:
        child.session.cache_clear()
