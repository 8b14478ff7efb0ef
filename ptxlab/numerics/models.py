"""Which arithmetic adds up a dot product on which targets, and what it makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.isa.targets import TARGETS, DotProduct, Target, UnpackedDotProduct
from ptxlab.numbers.dissect import Step, explain
from ptxlab.numbers.formats import Array
from ptxlab.numbers.fused_step import OPERANDS, operand_formats
from ptxlab.numbers.tensor_core import multiply_add
from ptxlab.numbers.tensor_core_software import multiply_add_bytes
from ptxlab.numerics.products import DotProducts

Rules = DotProduct | UnpackedDotProduct

BYTES_AT_ONCE = 32
"""The k of an mma.sync of 8-bit numbers: longer dot products are several of them."""


@dataclass(frozen=True, slots=True)
class Model:
    """Targets whose mma.sync gives the same bits for some types, and the arithmetic they share."""

    targets: tuple[str, ...]
    rules: Rules

    def compute(self, products: DotProducts) -> Array:
        """Return the result of every dot product as words, [count]."""
        dtype, acc, rules = products.dtype, products.acc, self.rules
        d = products.c[None, None]
        for piece in _instructions(products):
            a, b = products.a[None, piece], products.b[piece, None]
            if isinstance(rules, DotProduct):
                d = multiply_add(a, b, d, dtype=dtype, acc=acc, rules=rules)
            else:
                d = multiply_add_bytes(a, b, d, a_type=dtype, b_type=dtype, acc=acc, rules=rules)
        words: Array = d[0, 0]
        return words

    def steps(self, products: DotProducts) -> tuple[Step, ...]:
        """Return the steps in which the first of the dot products is added up."""
        steps: list[Step] = []
        for piece in _instructions(products):
            found = explain(
                products.a[piece, 0].tolist(),
                products.b[piece, 0].tolist(),
                steps[-1].word if steps else int(products.c[0]),
                dtype=products.dtype,
                acc=products.acc,
                target=TARGETS[self.targets[0]],
            )
            for step in found:  # which counts the products of its instruction from 0
                terms = [
                    term if term.k is None else replace(term, k=term.k + piece.start)
                    for term in step.terms
                ]
                steps.append(replace(step, terms=tuple(terms)))
        return tuple(steps)


def _instructions(products: DotProducts) -> Iterator[slice]:
    """Cut k as it is cut by instructions, where that changes bits."""
    once = BYTES_AT_ONCE if products.operand.word_bits == 8 else products.k
    for start in range(0, products.k, once):
        yield slice(start, min(start + once, products.k))


def models(dtype: str, acc: str, targets: Sequence[str] = ()) -> tuple[Model, ...]:
    """Return the different arithmetics of ``dtype`` into ``acc``, of ``targets`` or of all.

    Raises PtxlabError for types that do not go together, and for a target named that has no
    mma.sync of them.
    """
    try:
        operand_formats(dtype, dtype, acc)
    except Unsupported as error:
        raise PtxlabError(error.message, hint=error.hint) from None
    groups: dict[Rules, list[str]] = {}
    for name in dict.fromkeys(targets) or TARGETS:
        rules = _rules(TARGETS[name], dtype)
        if rules is not None:
            groups.setdefault(rules, []).append(name)
        elif targets:
            types = ", ".join(TARGETS[name].arithmetic.types)
            raise PtxlabError(f"{name} has no mma.sync of {dtype}", hint=f"it multiplies {types}")
    return tuple(Model(tuple(names), rules) for rules, names in groups.items())


def _rules(target: Target, dtype: str) -> Rules | None:
    if dtype not in target.arithmetic.types:
        return None
    is_byte = OPERANDS[dtype].word_bits == 8
    return target.arithmetic.dot8 if is_byte else target.arithmetic.dot16
