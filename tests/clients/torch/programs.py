# mypy: ignore-errors
"""Pieces of programs in PyTorch and Triton as they are written for a GPU; imported late, with PyTorch."""

import threading

import torch

from tests.clients.triton import kernels


def doubled(x):
    """Return twice a vector, by a kernel in Triton."""
    out = torch.empty_like(x)
    kernels.add[(1,)](x, x, out, x.numel(), BLOCK=16)
    return out


class Doubled(torch.autograd.Function):
    """The same with a gradient, which tells in which thread it is found."""

    threads: list[str]

    @staticmethod
    def forward(ctx, x):
        return doubled(x)

    @staticmethod
    def backward(ctx, grad):
        Doubled.threads.append(threading.current_thread())
        return doubled(grad.contiguous())


@torch.library.custom_op("ptxlab_test::doubled", mutates_args=(), device_types="cuda")
def doubled_op(x: torch.Tensor) -> torch.Tensor:
    """The same as an operation of a library."""
    return doubled(x)


@doubled_op.register_fake
def _(x):
    return torch.empty_like(x)


doubled_op.register_autograd(lambda ctx, grad: doubled_op(grad.contiguous()))


@torch.library.triton_op("ptxlab_test::doubled_triton", mutates_args={})
def doubled_triton(x: torch.Tensor) -> torch.Tensor:
    """The same as an operation whose kernel torch.compile sees."""
    out = torch.empty_like(x)
    torch.library.wrap_triton(kernels.add)[(1,)](x, x, out, x.numel(), BLOCK=16)
    return out


def with_kernel(x):
    """What torch.compile meets: a kernel of the program between operations of PyTorch."""
    return doubled(x).sin() + x


def softmax_of_product(x, w):
    """A product of matrices, which stays PyTorch's, and a reduction, which becomes a kernel."""
    return torch.nn.functional.softmax(x @ w, -1) * 2
