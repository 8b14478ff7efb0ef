"""8-bit products that are made of float16 ones, as native code: C is added last.

See ``ptxlab.numbers.tensor_core_software``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxlab.native.tensor_core.decoding import singles, widened
from ptxlab.native.tensor_core.fused_step import FusedSteps
from ptxlab.native.tensor_core.rounding import to_f16
from ptxlab.native.value import VectorValue
from ptxlab.numbers.formats import F16, F32, Format


@dataclass(frozen=True, slots=True)
class UnpackedSteps(FusedSteps):
    """Steps of float16 numbers that come as ``a_form`` and ``b_form``; k is 2 or 4 times ``products``."""

    a_form: Format
    b_form: Format
    depth: int

    def left(self, words: VectorValue, bits: int) -> list[tuple[VectorValue, VectorValue]]:
        return widened(words, self.a_form, F16, bits)

    def right(self, words: VectorValue, bits: int) -> list[tuple[VectorValue, VectorValue]]:
        wide = widened(words, self.b_form, F16, bits)
        return [(value, exponent - 2 * F32.bias) for value, exponent in wide]

    def place(self, k: int) -> int:
        """Return the place of an element among those that are added: the halves of registers in turn."""
        block, within = divmod(k, 4)
        return self.depth // 2 * (within // 2) + 2 * block + within % 2

    def last(self, words: VectorValue, c: VectorValue) -> VectorValue:
        """Add C to words of D, rounding to nearest even."""
        form = self.how.result
        total = singles(words, form) + singles(c, form)
        rounded = to_f16(total) if form is F16 else total.bits("i32")
        return total.is_("uno", total).choose(form.nan_word, rounded)
