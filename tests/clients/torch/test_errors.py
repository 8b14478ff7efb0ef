"""What a GPU refuses is refused in the same words: those of PyTorch 2.13 for CUDA, and of Triton 3.9."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

SAME = "Expected all tensors to be on the same device, but "
TWO = SAME + "found at least two devices, cuda:0 and cpu!"
ORDINAL = (
    "CUDA error: invalid device ordinal\n"
    "GPU device may be out of range, do you have enough GPUs?\n"
    "For more detailed error information, run with CUDA_LOG_FILE=stderr\n"
)
CAPTURING = (
    "CUDA error: operation not permitted when stream is capturing\n"
    "Search for `cudaErrorStreamCaptureUnsupported' in https://docs.nvidia.com/cuda/"
    "cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
)
INVALIDATED = "CUDA error: operation failed due to a previous error during capture\n"

Call = Callable[[Any], Any]


def got(argument: str, on: str, other: str, method: str) -> str:
    return (
        f"{SAME}got {argument} is on {on}, different from other tensors on {other} "
        f"(when checking argument in method wrapper_CUDA_{method})"
    )


def there(torch: Any, *size: int) -> Any:
    return torch.ones(*size, device="cuda")


def functional(torch: Any) -> Any:
    return torch.nn.functional


MIXED: dict[str, tuple[Call, str]] = {
    "add": (lambda t: there(t, 3) + t.ones(3), TWO),
    "add to the CPU's": (lambda t: t.ones(3) + there(t, 3), TWO),
    "in place": (lambda t: there(t, 3).add_(t.ones(3)), TWO),
    "into the CPU's": (lambda t: t.add(there(t, 3), 1, out=t.ones(3)), TWO),
    "where": (lambda t: t.where(t.ones(3) > 0, there(t, 3), 0.0), TWO),
    "loss": (lambda t: functional(t).mse_loss(there(t, 3), t.ones(3)), TWO),
    "matrices": (
        lambda t: there(t, 2, 3) @ t.ones(3, 2),
        got("mat2", "cpu", "cuda:0", "mm"),
    ),
    "batches": (
        lambda t: t.bmm(there(t, 1, 2, 3), t.ones(1, 3, 2)),
        got("mat2", "cpu", "cuda:0", "bmm"),
    ),
    "module": (
        lambda t: t.nn.Linear(3, 3)(there(t, 2, 3)),
        got("mat1", "cuda:0", "cpu", "addmm"),
    ),
    "input": (
        lambda t: t.nn.Linear(3, 3).cuda()(t.ones(2, 3)),
        got("mat1", "cpu", "cuda:0", "addmm"),
    ),
    "cat": (
        lambda t: t.cat([there(t, 3), t.ones(3)]),
        got("tensors", "cpu", "cuda:0", "cat"),
    ),
    "embedding": (
        lambda t: t.nn.Embedding(3, 3).cuda()(t.tensor([1])),
        got("index", "cpu", "cuda:0", "_index_select"),
    ),
    "norm": (
        lambda t: functional(t).layer_norm(there(t, 2, 3), (3,), t.ones(3)),
        got("weight", "cpu", "cuda:0", "_native_layer_norm"),
    ),
    "classes": (
        lambda t: functional(t).cross_entropy(there(t, 1, 3), t.tensor([1])),
        got("target", "cpu", "cuda:0", "nll_loss_forward"),
    ),
    "gather": (
        lambda t: t.gather(there(t, 3), 0, t.tensor([0])),
        got("index", "cpu", "cuda:0", "gather"),
    ),
    "scatter": (
        lambda t: there(t, 3).scatter_(0, t.tensor([0]), there(t, 3)),
        got("index", "cpu", "cuda:0", "scatter__src"),
    ),
    "equal": (
        lambda t: t.equal(there(t, 3), t.ones(3)),
        got("other", "cpu", "cuda:0", "_equal"),
    ),
    "an index of the GPU": (
        lambda t: t.ones(3)[t.tensor([0], device="cuda")],
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
    "mask": (
        lambda t: there(t, 3).masked_fill_(t.ones(3) > 0, 1.0),
        "expected self and mask to be on the same device, but got mask on cpu and self on cuda:0",
    ),
    "convolution": (
        lambda t: t.nn.Conv1d(1, 1, 3)(there(t, 1, 1, 8)),
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ),
    "attention": (
        lambda t: functional(t).scaled_dot_product_attention(
            there(t, 1, 2, 4), there(t, 1, 2, 4), t.ones(1, 2, 4)
        ),
        "Expected query, key, and value to have the same device type, but got query.device: cuda:0 "
        "key.device: cuda:0 and value.device: cpu instead.",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_tensors_of_two_devices(torch: Any, name: str) -> None:
    call, text = MIXED[name]
    with pytest.raises(RuntimeError) as caught:
        call(torch)
    assert str(caught.value).split("\n")[0] == text


def test_what_may_be_on_two_devices(torch: Any) -> None:
    """Numbers, indices, and what is copied."""
    x = torch.arange(4.0, device="cuda")
    assert (x * torch.tensor(2.0)).tolist() == (torch.tensor(2.0) * x).tolist() == [0, 2, 4, 6]
    assert x[torch.tensor([3, 1])].tolist() == [3, 1]
    x[torch.tensor([0])] = torch.tensor(7.0)
    assert x.fill_(torch.tensor(5.0)).copy_(torch.tensor([1.0, 2, 3, 4])).tolist() == [1, 2, 3, 4]
    assert x.masked_fill_(x > 2, torch.tensor(0.0)).tolist() == [1, 2, 0, 0]
    assert torch.zeros(4).copy_(x).tolist() == [1, 2, 0, 0]
    with pytest.raises(
        RuntimeError, match="Trying to pass too many CPU scalars to non-CPU kernel!"
    ):
        torch.addcmul(x, torch.tensor(1.0), torch.tensor(2.0))


@pytest.mark.parametrize("array", [lambda x: x.numpy(), np.asarray])
def test_a_tensor_of_the_gpu_is_no_array(torch: Any, array: Call) -> None:
    with pytest.raises(TypeError) as caught:
        array(torch.zeros(2, device="cuda"))
    assert str(caught.value) == (
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
        "host memory first."
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.zeros(2, device="cuda:1"),
        lambda t: t.empty_strided((2,), (1,), device="cuda:1"),
        lambda t: t.tensor([1], device="cuda:1"),
        lambda t: t.zeros(2).to("cuda:1"),
        lambda t: t.zeros(2).cuda(1),
        lambda t: t.nn.Linear(2, 2).to("cuda:1"),
        lambda t: t.cuda.set_device(1),
        lambda t: t.cuda.device(1).__enter__(),
        lambda t: t.cuda.Stream(1),
    ],
)
def test_a_gpu_that_is_not_there(torch: Any, call: Call) -> None:
    with pytest.raises(torch.AcceleratorError) as caught:
        call(torch)
    assert str(caught.value).startswith(ORDINAL)
    assert torch.cuda.device_count() == 1


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda t: t.cuda.get_device_properties(1), AssertionError, "Invalid device id"),
        (lambda t: t.cuda.get_device_name(1), AssertionError, "Invalid device id"),
        (
            lambda t: t.zeros(2, device="cuda").pin_memory(),
            RuntimeError,
            "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
        ),
        (
            lambda t: t.zeros(2, device="cuda", pin_memory=True),
            RuntimeError,
            "Only dense CPU tensors can be pinned",
        ),
        (
            lambda t: t.rand(2, device="cuda", generator=t.Generator()),
            RuntimeError,
            "Expected a 'cuda' device type for generator but found 'cpu'",
        ),
        (
            lambda t: t.ones(2, 2, device="cuda", dtype=t.int64).mm(
                t.ones(2, 2, device="cuda", dtype=t.int64)
            ),
            NotImplementedError,
            "\"addmm_cuda\" not implemented for 'Long'",
        ),
        (
            lambda t: t.cuda.Event().elapsed_time(t.cuda.Event()),
            ValueError,
            "Both events must be created with argument 'enable_timing=True'.",
        ),
        (
            lambda t: t.cuda.Event(enable_timing=True).elapsed_time(
                t.cuda.Event(enable_timing=True)
            ),
            ValueError,
            "Both events must be recorded before calculating elapsed time.",
        ),
        (
            lambda t: t.cuda.CUDAGraph().replay(),
            RuntimeError,
            "Called CUDAGraph::replay without a preceding successful capture.",
        ),
        (
            lambda t: t.cuda.CUDAGraph().capture_end(),
            RuntimeError,
            "capture_end() called before capture_begin().",
        ),
        (
            lambda t: t.cuda.CUDAGraph().capture_begin(),
            RuntimeError,
            "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok "
            "to replay them on the default stream.)",
        ),
    ],
)
def test_other_refusals(torch: Any, call: Call, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        call(torch)
    assert str(caught.value) == text


def test_more_memory_than_there_is(torch: Any) -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory\. Tried to allocate 4096\.00 GiB\. GPU 0 has a total capacity of "):  # fmt: skip
        torch.empty(1 << 40, device="cuda")


def test_operations_without_a_kernel(torch: Any) -> None:
    """What a GPU has not, though a CPU has, and what a program gave a kernel for CPUs alone."""
    of_cpu: Any = torch.library.custom_op(
        "ptxlab_test::of_cpu",
        lambda x: x + 1,
        mutates_args=(),
        device_types="cpu",
        schema="(Tensor x) -> Tensor",
    )
    assert of_cpu(torch.ones(1)).item() == 2
    x = torch.ones(3, device="cuda")
    called = {"aten::histogram.bin_ct": (torch.histogram, x, 2), "ptxlab_test::of_cpu": (of_cpu, x)}
    for name, (function, *arguments) in called.items():
        begin = f"Could not run '{name}' with arguments from the 'CUDA' backend. "
        with pytest.raises(NotImplementedError, match=f"^{re.escape(begin)}"):
            function(*arguments)


def test_a_kernel_is_given_no_memory_of_the_cpu(torch: Any, kernels: Any) -> None:
    text = r"^Pointer argument cannot be accessed from Triton \(cpu tensor\?\)$"
    out = torch.zeros(4, device="cuda")
    here = torch.nn.Linear(4, 1)
    for bad in (here.weight, torch.ones(8)[2:], out.cpu()):
        with pytest.raises(ValueError, match=text):
            kernels.add[(1,)](out, bad, out, 4, BLOCK=8)
    for good in (here.cuda().weight, torch.ones(8).pin_memory()[2:]):
        kernels.add[(1,)](good, good, out, 4, BLOCK=8)
    assert out.tolist() == [2] * 4


def test_a_forked_process_has_no_gpu(torch: Any) -> None:
    torch.cuda.init()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = str(torch.ones(2, device="cuda"))
        except BaseException as error:
            told = str(error)
        os.write(write, pickle.dumps(told))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        assert pickle.load(file) == (
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
            "must use the 'spawn' start method"
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda x, t: x.sum().item(),
        lambda x, t: x.cpu(),
        lambda x, t: x.nonzero(),
        lambda x, t: x.copy_(t.ones(3)),
        lambda x, t: t.cuda.synchronize(),
    ],
)
def test_what_waits_cannot_be_captured(torch: Any, call: Any) -> None:
    x = torch.ones(3, device="cuda")
    graph = torch.cuda.CUDAGraph()
    try:
        with pytest.raises(torch.AcceleratorError) as caught, torch.cuda.graph(graph):
            call(x, torch)
    finally:
        torch.cuda.set_stream(torch.cuda.default_stream())
    assert str(caught.value).startswith(INVALIDATED)
    assert str(caught.value.__context__).startswith(CAPTURING)
    assert (x + 1).tolist() == [2, 2, 2]
