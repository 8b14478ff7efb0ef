"""A layout as source code: the offset of a coordinate, swizzled where the layout is.

Shifts and masks stand for divisions where sizes are powers of two. Source of the swizzle: NVIDIA CUTLASS
documentation, "CuTe Layouts", as ``Swizzle`` applies it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ptxlab.layouts.layout import IDENTITY, Layout, Mapping, Swizzle


@dataclass(frozen=True, slots=True)
class OffsetTerm:
    """A coordinate's part in an offset, in elements: (name / divisor) % modulus * stride.

    A modulus of 0 takes all of it.
    """

    name: str
    divisor: int
    modulus: int
    stride: int

    def expression(self, divide: str) -> str:
        """Return the term as C and Python write it; ``divide`` is how they divide integers."""
        text = self.name
        if self.divisor > 1:
            shift = _power(self.divisor)
            text += f" {divide} {self.divisor}" if shift is None else f" >> {shift}"
        if self.modulus:
            exact = _power(self.modulus) is not None
            if not exact and ">>" in text:  # which binds less than %
                text = f"({text})"
            text += f" & {self.modulus - 1}" if exact else f" % {self.modulus}"
        if self.stride == 1:
            return f"({text})" if " " in text else text
        return f"{self.stride} * ({text})" if " " in text else f"{self.stride} * {text}"


def code(layout: Mapping, language: str) -> str:
    """Return a function, in PTX a block, that gives the offset of an element by its coordinate.

    A layout of two modes is called with ``row`` and ``col``, one of others with ``i0``, ``i1`` and so on.
    Raises KeyError for a language that is none of ``LANGUAGES``.
    """
    plain = layout if isinstance(layout, Layout) else layout.layout
    swizzle = IDENTITY if isinstance(layout, Layout) else layout.swizzle
    offset = 0 if isinstance(layout, Layout) else layout.offset
    return LANGUAGES[language](layout.notation, names(plain), [*terms(plain)], offset, swizzle)


def swizzled(swizzle: Swizzle) -> str:
    """Return the expression that swizzles ``offset``, the same in C and in Python."""
    mask = ((1 << swizzle.bits) - 1) << swizzle.base
    if swizzle.shift >= 0:
        return f"offset ^ (offset >> {swizzle.shift} & {mask})"
    return f"offset ^ ((offset & {mask}) << {-swizzle.shift})"


def names(layout: Layout) -> tuple[str, ...]:
    """Return what the coordinates are called."""
    count = len(layout.parts)
    return ("row", "col") if count == 2 else tuple(f"i{i}" for i in range(count))


def terms(layout: Layout) -> Iterator[OffsetTerm]:
    """Yield what each mode of each coordinate adds to the offset."""
    for name, part in zip(names(layout), layout.parts, strict=True):
        divisor = 1
        for position, (size, stride) in enumerate(part.modes):
            last = position == len(part.modes) - 1
            if stride and size > 1:
                yield OffsetTerm(name, divisor, 0 if last else size, stride)
            divisor *= size


def _sum(terms: list[OffsetTerm], offset: int, divide: str) -> str:
    parts = [term.expression(divide) for term in terms]
    return " + ".join([*parts, str(offset)] if offset or not parts else parts)


def _cuda(
    what: str, given: tuple[str, ...], terms: list[OffsetTerm], offset: int, by: Swizzle
) -> str:
    takes = ", ".join(f"unsigned {name}" for name in given)
    total = _sum(terms, offset, "/")
    body = [f"    return {total};"]
    if by.bits:
        body = [f"    unsigned offset = {total};", f"    return {swizzled(by)};"]
    head = [f"// {what}", f"__host__ __device__ constexpr unsigned offset_of({takes})", "{"]
    return "\n".join([*head, *body, "}"]) + "\n"


def _python(
    what: str, given: tuple[str, ...], terms: list[OffsetTerm], offset: int, by: Swizzle
) -> str:
    total = _sum(terms, offset, "//")
    body = [f"    return {total}"]
    if by.bits:
        body = [f"    offset = {total}", f"    return {swizzled(by)}"]
    return "\n".join([f"def offset_of({', '.join(given)}):", f'    """{what}."""', *body]) + "\n"


def _ptx(
    what: str, given: tuple[str, ...], terms: list[OffsetTerm], offset: int, by: Swizzle
) -> str:
    takes = ", ".join(given)
    lines = [f"// {what}", f"// takes .b32 {takes}; gives .b32 offset", "{", "    .reg .b32 part;"]
    lines.append(f"    mov.b32 offset, {offset};")
    for term in terms:
        source = term.name
        for statement, number in (_division(term.divisor), _remainder(term.modulus)):
            if number:
                lines.append(f"    {statement} part, {source}, {number};")
                source = "part"
        lines.append(f"    mad.lo.u32 offset, {source}, {term.stride}, offset;")
    if by.bits:
        mask = ((1 << by.bits) - 1) << by.base
        shift = f"shr.u32 part, offset, {by.shift};"
        keep = f"and.b32 part, {'part' if by.shift >= 0 else 'offset'}, {mask};"
        back = f"shl.b32 part, part, {-by.shift};"
        steps = (shift, keep) if by.shift >= 0 else (keep, back)
        lines += [*(f"    {step}" for step in steps), "    xor.b32 offset, offset, part;"]
    return "\n".join([*lines, "}"]) + "\n"


def _division(by: int) -> tuple[str, int]:
    """Return the PTX that divides, with its constant; 0 of nothing to do."""
    shift = _power(by)
    return ("div.u32", by) if shift is None else ("shr.u32", shift)


def _remainder(of: int) -> tuple[str, int]:
    exact = _power(of) is not None
    return ("and.b32", of - 1) if exact else ("rem.u32", of)


def _power(number: int) -> int | None:
    """Return the exponent of a power of two, None of any other number."""
    return None if number < 1 or number & (number - 1) else number.bit_length() - 1


LanguageWriter = Callable[[str, tuple[str, ...], list[OffsetTerm], int, Swizzle], str]
LANGUAGES: dict[str, LanguageWriter] = {"cuda": _cuda, "ptx": _ptx, "python": _python}
"""How each language writes it: the layout's notation, its coordinates, terms, offset and swizzle."""
