"""Kernels in CuTe DSL as someone with a GPU has them: a sum of tensors, a copy by TMA, and one that goes too far."""

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings import runtime
from cutlass.cute.runtime import from_dlpack


@cute.kernel  # type: ignore[untyped-decorator]
def add_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, n: cutlass.Int32) -> None:
    thread, _, _ = cute.arch.thread_idx()
    cta, _, _ = cute.arch.block_idx()
    at = cta * 64 + thread
    if at < n:
        c[at] = a[at] + b[at]
        if at == 3:
            cute.printf("a thread has {}", c[at])


@cute.jit  # type: ignore[untyped-decorator]
def add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, n: cutlass.Int32) -> None:
    add_kernel(a, b, c, n).launch(grid=(2, 1, 1), block=(64, 1, 1))


def tensors(n: int) -> list[cute.Tensor]:
    return [from_dlpack(torch.arange(n, dtype=torch.float32, device="cuda")) for _ in range(2)]


a, b = tensors(100)
out = torch.zeros(100, device="cuda")
add(a, b, from_dlpack(out), 100)
assert torch.equal(out.cpu(), 2.0 * torch.arange(100)), out

done = runtime.cudaError_t.cudaSuccess
assert runtime.cudaGetDeviceCount() == (done, 1)
error, address = runtime.cudaMalloc(400)
assert error == done
kind = runtime.cudaMemcpyKind.cudaMemcpyDefault
assert runtime.cudaMemcpy(address, out.data_ptr(), 400, kind) == (done,)
out.zero_()
assert runtime.cudaMemcpy(out.data_ptr(), address, 400, kind) == (done,)
assert out[99].item() == 198
error, stream = runtime.cudaStreamCreate()
assert isinstance(stream, runtime.cudaStream_t)
assert runtime.cudaStreamSynchronize(stream) == (done,)
assert runtime.cudaFree(address) == (done,)
assert runtime.cudaFree(address)[0] == runtime.cudaError_t.cudaErrorInvalidValue

told = ""
try:
    add(a, b, from_dlpack(torch.zeros(90, device="cuda")), 100)
except cutlass.base_dsl.common.DSLRuntimeError as error:
    told = str(error)
assert "700" in told, "ten elements lie beyond the end"
