"""mma.sync as native code: from the registers of warps to matrices, the steps, and D's registers.

The function takes the objects that hold registers, of A, B, C and D one after the other, the numbers of
the warps that take part or null for all, and how many they are. A register is an array of numpy, one
word for each thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol

from ptxlab.isa.targets import WARP, DotProduct, Target
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.rules import floating
from ptxlab.native.tensor_core.fragments import BLOCK, Line, gather, lines, order, scatter
from ptxlab.native.tensor_core.fused_step import FusedSteps, Terms
from ptxlab.native.tensor_core.vectors import Code, Function, Value
from ptxlab.native.tensor_core.whole_numbers import BitSteps, DoubleSteps, IntegerSteps
from ptxlab.numbers.fused_step import ACCUMULATORS, OPERANDS, FusedStep

NAME = "multiply"
"""What the function is called."""
_HEADER = object.__basicsize__
"""The bytes of an object before its own data, which of an array begins with its address."""


class Steps(Protocol):
    """An arithmetic: what it keeps of elements, (LLVM type, bytes), and how it adds their products."""

    @property
    def kept(self) -> tuple[tuple[str, int], ...]: ...

    @property
    def word(self) -> str: ...

    @property
    def products(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def left(self, words: Value, bits: int) -> Sequence[tuple[Value, ...]]:
        """Return what is kept of the elements of A in words that have some, by ``bits`` each."""

    def right(self, words: Value, bits: int) -> Sequence[tuple[Value, ...]]:
        """Return what is kept of those of B."""

    def column(self, code: Code, terms: Terms, d: Value) -> None:
        """Write how a step's products are added to a column of D."""


def steps(form: MatrixInstruction, target: Target) -> Steps | None:
    """Return the arithmetic of ``form``, None where it has no native one."""
    rows = min(BLOCK, form.m)
    if form.family not in ("mma", "wmma") or form.c_type != form.d_type:
        return None
    match form.a_type:
        case "s8" | "u8" | "s4" | "u4":
            return IntegerSteps(form.a_type, form.b_type, form.satfinite, form.k, rows)
        case "b1":
            return BitSteps(form.bit_operation, form.k // 32, rows)
        case "f64":
            return DoubleSteps(form.k, rows) if form.rounding == "rn" else None
    rules = floating(form, target)
    if not isinstance(rules, DotProduct):
        return None
    a, b, d = OPERANDS[form.a_type], OPERANDS[form.b_type], ACCUMULATORS[form.d_type]
    how = FusedStep.of(a, b, d, rules)
    return FusedSteps(how, min(how.products, form.k), rows) if how.is_narrow else None


@cache
def function(form: MatrixInstruction, target: Target) -> Function | None:
    """Return the function of ``form`` on ``target``, None where it has no native one."""
    layouts = [form.operand(name) for name in "ABCD"]
    arithmetic = steps(form, target)
    if arithmetic is None or not all(lines(layout) for layout in layouts):
        return None
    return _Writer(form, arithmetic).function()


class _Writer:
    """Writes the function of a form.

    Of A is kept [blocks, k, rows], of B [k, n], of C and D [blocks, n, rows], all in the ``order`` of
    outer indices.
    """

    def __init__(self, form: MatrixInstruction, arithmetic: Steps) -> None:
        self.form, self.arithmetic, self.code = form, arithmetic, Code()
        self.layouts = [form.operand(name) for name in "ABCD"]
        self.depth = form.k // 32 if form.a_type == "b1" else form.k
        kept = [size for _, size in arithmetic.kept]
        self.left = [self.code.buffer(size * self.depth * form.m) for size in kept]
        self.right = [self.code.buffer(size * self.depth * form.n) for size in kept]
        self.word_bytes = int(arithmetic.word[1:]) // 8
        self.sums = self.code.buffer(self.word_bytes * form.m * form.n)

    def function(self) -> Function:
        code = self.code
        objects, warps = code.parameter("registers", "ptr"), code.parameter("warps", "ptr")
        count = code.parameter("count", "i64")
        places = iter(range(sum(layout.registers_per_lane for layout in self.layouts)))
        registers = [
            [
                objects.at(next(places), 8).load("ptr", align=8).at(_HEADER, 1).load("ptr", align=8)
                for _ in range(layout.registers_per_lane)
            ]
            for layout in self.layouts
        ]
        everyone = warps.is_("eq", warps.like(0))
        with code.loop(count) as index:
            # Where there is no list, what is read in its place does not count.
            listed = everyone.choose(objects, warps.at(index, 8)).load("i64", align=8)
            warp = everyone.choose(index, listed)
            a, b, c, d = (
                [address.at(warp, WARP * layout.register_bits // 8) for address in addresses]
                for layout, addresses in zip(self.layouts, registers, strict=True)
            )
            self._keep_left(a)
            self._keep_right(b)
            self._begin(c)
            self._add()
            self._end(d)
        return code.function(NAME)

    def _words(
        self, layout: FragmentLayout, addresses: Sequence[Value]
    ) -> Iterator[tuple[Line, Value]]:
        """Yield the lines of a fragment and what words they lie in."""
        kind, size = f"i{layout.register_bits}", layout.register_bits // 8
        registers = [address.load(kind, WARP, align=size) for address in addresses]
        for line in lines(layout):
            yield line, gather(registers, line)

    def _keep_left(self, addresses: Sequence[Value]) -> None:
        layout, rows = self.layouts[0], self.arithmetic.rows
        for line, words in self._words(layout, addresses):
            found = self.arithmetic.left(words, layout.bits)
            for inner, parts in self._inner(line, found):
                at = (line.block * self.depth + inner) * rows
                self._keep(self.left, at, parts)

    def _keep_right(self, addresses: Sequence[Value]) -> None:
        layout = self.layouts[1]
        for line, words in self._words(layout, addresses):
            found = self.arithmetic.right(words, layout.bits)
            for inner, parts in self._inner(line, found):
                at = inner * self.form.n + line.block * words.lanes
                self._keep(self.right, at, parts)

    def _inner(
        self, line: Line, found: Sequence[tuple[Value, ...]]
    ) -> Iterator[tuple[int, tuple[Value, ...]]]:
        """Yield the inner index of everything that is kept, which may be of several elements."""
        step = len(line.inner) // len(found)
        for inner, parts in zip(line.inner[::step], found, strict=True):
            yield inner // step, parts

    def _keep(self, buffers: Sequence[Value], at: int, parts: Sequence[Value]) -> None:
        for buffer, part, (_, size) in zip(buffers, parts, self.arithmetic.kept, strict=True):
            buffer.at(at, size).store(part, align=part.lanes * size)

    def _column(self, line: Line, inner: int) -> Value:
        """Return the address of a column of C and D."""
        column = line.block * self.form.n + order(self.form.n).index(inner)
        return self.sums.at(column, self.word_bytes * self.arithmetic.rows)

    def _begin(self, addresses: Sequence[Value]) -> None:
        """Put C's words where D's will be."""
        layout = self.layouts[2]
        align = self.word_bytes * self.arithmetic.rows
        for line, words in self._words(layout, addresses):
            for i, inner in enumerate(line.inner):
                word = words >> (layout.bits * i) if i else words
                if len(line.inner) > 1:
                    word = word & ((1 << layout.bits) - 1)
                self._column(line, inner).store(word, align=align)

    def _add(self) -> None:
        """Add all products, step by step."""
        code, rows, n = self.code, self.arithmetic.rows, self.form.n
        columns = Value(code, "i64", 0, str(n))
        for block in range(self.form.m // rows):
            for first in range(0, self.depth, self.arithmetic.products):
                at = (block * self.depth + first) * rows
                with code.loop(n) as column:
                    addresses = [
                        buffer.at(at, size)
                        for buffer, (_, size) in zip(self.left, self.arithmetic.kept, strict=True)
                    ] + [
                        buffer.at(first * n, size).at(column, size)
                        for buffer, (_, size) in zip(self.right, self.arithmetic.kept, strict=True)
                    ]
                    terms = Terms(tuple(addresses), columns, rows, self.arithmetic.kept)
                    d = self.sums.at(block * n, self.word_bytes * rows)
                    self.arithmetic.column(code, terms, d.at(column, self.word_bytes * rows))

    def _end(self, addresses: Sequence[Value]) -> None:
        """Put D's words into its registers."""
        layout, rows = self.layouts[3], self.arithmetic.rows
        done = []
        for line in lines(layout):
            words = None
            for i, inner in enumerate(line.inner):
                word = self._column(line, inner).load(
                    self.arithmetic.word, rows, align=self.word_bytes * rows
                )
                words = word if words is None else words | (word << (layout.bits * i))
            assert words is not None
            done.append((line, words))
        for register, address in enumerate(addresses):
            address.store(
                scatter(done, register % (len(addresses) // layout.copies), WARP),
                align=self.word_bytes,
            )
