"""For tests of one's own kernels with pytest: fragments, bits and the checks, as assertions.

Installing ptxlab gives pytest the fixture ``device`` (see ``ptxlab.testing.plugin``)::

    from ptxlab import Dump
    from ptxlab.testing import (
        assert_bits_equal,
        assert_clean,
        assert_fragment,
        assert_kernel,
    )

    def test_the_tile(device):
        kernel = device.load("my.ptx").kernel("tile")
        a, d = device.upload(matrix), device.zeros((16, 8), "f32")
        found = kernel.launch(1, 32, [a, d], dump=Dump("mma.sync", ("A",), before=True))
        assert_fragment(found.dump, matrix, "m16n8k16", dtype="bf16", operand="A")
        assert_bits_equal(d, expected)
        assert_clean(kernel, 1, 32, [a, d])

    def test_all_of_a_kernel():
        assert_kernel("gemm.cu", lambda A, B: {"C": A @ B}, arguments={...}, grid=4, block=128)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptxlab.testing.assertions import assert_bits_equal, assert_clean, assert_fragment

__all__ = ["assert_bits_equal", "assert_clean", "assert_fragment", "assert_kernel"]


# Imported on first use: pytest loads the plugin beside this file in every run, ptxlab's or not.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ptxlab.testing' has no attribute {name!r}")
    return getattr(import_module("ptxlab.testing.assertions"), name)
