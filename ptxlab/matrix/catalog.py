"""Every form of every matrix instruction, and finding one by what a person would call it."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache

from ptxlab.errors import PtxlabError, nearest
from ptxlab.matrix.form import AsyncInstruction, Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.naming import row_moves, spelling, tensor_memory, warp, warpgroup
from ptxlab.matrix.wmma import WMMA, WMMA_MOVES
from ptxlab.numbers.synonyms import type_called

MULTIPLICATIONS: tuple[MatrixInstruction, ...] = (*warp(), *WMMA)
"""Every warp-level instruction that multiplies matrices."""

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_SUGGESTED = 4
_SUGGESTED_NAMES = 3


class UnknownInstruction(PtxlabError):
    """No instruction answers the description; ``suggestions`` are the nearest that exist."""

    def __init__(self, message: str, suggestions: tuple[str, ...]) -> None:
        super().__init__(message, hint=f"the nearest are {', '.join(suggestions)}")
        self.suggestions = suggestions


@cache
def forms() -> tuple[Form, ...]:
    """Return every form, family by family.

    The tables of the asynchronous tensor cores are made when they are first asked for: they have
    thousands, which what only runs a program can spare.
    """
    from ptxlab.matrix.wgmma import WGMMA_ORDER

    return (*warp_level(), *warpgroup(), *WGMMA_ORDER, *tensor_memory())


def warp_level() -> tuple[Form, ...]:
    """Return the forms that a warp executes, family by family."""
    return (*MULTIPLICATIONS, *WMMA_MOVES, *row_moves())


@cache
def opcodes() -> tuple[str, ...]:
    """Return what matrix instructions begin with, up to the first dot."""
    return tuple(dict.fromkeys(form.name.split(".")[0] for form in forms()))


@cache
def families() -> tuple[str, ...]:
    """Return the families, in the order of their forms."""
    return tuple(dict.fromkeys(form.family for form in forms()))


def find(op: str, dtype: str | None = None, acc: str | None = None) -> Form:
    """Return the form that ``op``, a shape or a name or parts of one, means first of all; types by whatever name.

    That is what ``multiplication`` finds, or else, of a name that begins with an opcode such as
    ``ldmatrix.x4.trans``, the first of ``matching``. Raises UnknownInstruction when nothing fits.
    """
    op, dtype, acc = type_called(op), dtype and type_called(dtype), acc and type_called(acc)
    if form := _first_multiplication(op, dtype, acc):
        return form
    if dtype or acc or op.split(".")[0] not in opcodes():
        raise _unknown(op, dtype, acc)
    return matching(op)[0]


def multiplication(op: str, dtype: str | None = None, acc: str | None = None) -> MatrixInstruction:
    """Return the multiplication ``op`` (a shape, or a name) with inputs ``dtype`` and result ``acc``.

    A name may be in full or any parts of one in their order, ``wgmma.m64n256k16``; the parts ``rs`` and
    ``ss`` choose where A of ``wgmma`` lies. ``dtype`` is the type of A and B, or both as the instruction
    spells them, ``e4m3.e5m2``. What is left open takes the first form of the table: dense before
    sparse, bf16 before f16, for f16 an f16 accumulator, and A in registers. Raises UnknownInstruction
    when nothing fits.
    """
    op, dtype, acc = type_called(op), dtype and type_called(dtype), acc and type_called(acc)
    if form := _first_multiplication(op, dtype, acc):
        return form
    raise _unknown(op, dtype, acc)


def matching(name: str) -> tuple[Form, ...]:
    """Return the form ``name``, of any family, or those that have every part of it, ``ldmatrix.x4.trans``.

    The nearest comes first: which has no other parts, in whatever order; of the opcode that the name begins
    with, products before moves; with the parts in this order, as whole parts, and the fewest more; else as in the table. Of a part with a prefix (``kind::mxf4``) the end is enough, and a state space of shared
    memory counts as ``shared``; the parts ``rs``, ``ss`` and ``ts`` say where A lies. Raises
    UnknownInstruction for none.
    """
    name = type_called(name)
    wanted, same = _plain(name), spelling(name)
    parts = [part for part in wanted.split(".") if part]
    fitting = []
    for number in _with_words(parts):
        form, plain, _ = _described()[number]
        if _holds(plain.split("."), parts):
            rank = (
                plain.split(".")[0] != parts[0],
                not _multiplies(form),
                not in_order(plain, wanted),
                _shortened(plain, parts),
                form.name.count("."),
            )
            fitting.append((*rank, number))
    exact = _by_spelling().get(same, [])
    others = (forms()[number] for *_, number in sorted(fitting))
    if exact or fitting:
        return tuple(dict.fromkeys((*exact, *others)))
    raise UnknownInstruction(f"no matrix instruction is {name}", _nearest(parts))


def _multiplies(form: Form) -> bool:
    return isinstance(form, MatrixInstruction) or bool(
        isinstance(form, AsyncInstruction) and form.shapes
    )


@cache
def _by_spelling() -> dict[tuple[str, ...], list[Form]]:
    """Return all forms by how their keys are spelled."""
    spelled: dict[tuple[str, ...], list[Form]] = {}
    for form in forms():
        spelled.setdefault(spelling(form.key), []).append(form)
    return spelled


def _first_multiplication(op: str, dtype: str | None, acc: str | None) -> MatrixInstruction | None:
    return _first(MULTIPLICATIONS, op, dtype, acc) or _first(warpgroup(), op, dtype, acc)


def _unknown(op: str, dtype: str | None, acc: str | None) -> UnknownInstruction:
    asked = op + (f" dtype {dtype}" if dtype else "") + (f" acc {acc}" if acc else "")
    return UnknownInstruction(f"no instruction is {asked}", _suggestions(op, dtype, acc))


def _first(
    instructions: tuple[MatrixInstruction, ...], op: str, dtype: str | None, acc: str | None
) -> MatrixInstruction | None:
    """Return the first that fits, one that ``op`` names as a whole before one of which it has parts."""
    fitting = [i for i in instructions if _takes(i, dtype) and acc in (None, i.d_type)]
    same = spelling(op)
    whole = (i for i in fitting if op in (i.shape, i.name) or spelling(i.key) == same)
    partly = (i for i in fitting if "." in op and in_order(i.key, op))
    return next(whole, None) or next(partly, None)


def in_order(name: str, parts: str) -> bool:
    """Say whether the parts of a name are among those of ``name``, in that order.

    Of a part with a prefix (``kind::mxf4``) the end is enough.
    """
    rest = iter(name.split("."))
    wanted = [part for part in parts.split(".") if part]
    return all(any(want in (part, part.split("::")[-1]) for part in rest) for want in wanted)


def _takes(instruction: MatrixInstruction, dtype: str | None) -> bool:
    """Say whether it multiplies that type; ``int`` is all integers: none multiplies numbers of 32 bits."""
    both = f"{instruction.a_type}.{instruction.b_type}"
    if dtype == "s32":
        return instruction.d_type == dtype
    return dtype in (None, both) or f"{dtype}.{dtype}" == both


def _suggestions(op: str, dtype: str | None, acc: str | None) -> tuple[str, ...]:
    """Return a few forms of the shape that was asked for, or of names that look like ``op``.

    Forms with the types that were asked for come first.
    """
    known = (*MULTIPLICATIONS, *warpgroup())
    parts = op.split(".")
    near = [instruction for instruction in known if instruction.shape in parts]
    if not near:
        names = {name for i in known for name in (i.shape, i.name)}
        alike = nearest(op, sorted(names), most=3)
        near = [i for i in known if i.name in alike or i.shape in alike]
    ranked = sorted(
        near or MULTIPLICATIONS, key=lambda i: (not _takes(i, dtype), acc not in (None, i.d_type))
    )
    return tuple(dict.fromkeys(instruction.name for instruction in ranked))[:_SUGGESTED]


@cache
def _described() -> tuple[tuple[Form, str, frozenset[str]], ...]:
    plain = [_plain(form.key) for form in forms()]
    return tuple((f, name, _words(name)) for f, name in zip(forms(), plain, strict=True))


@cache
def _taken_apart() -> tuple[tuple[str, list[str], frozenset[str], re.Match[str] | None], ...]:
    """Return of each form its name, the parts of it, its words, and its shape."""
    apart = [(form.name, plain.split("."), words) for form, plain, words in _described()]
    shapes = [next(filter(None, map(_SHAPE.fullmatch, names)), None) for _, names, _ in apart]
    return tuple((*form, shape) for form, shape in zip(apart, shapes, strict=True))


@cache
def _by_word() -> dict[str, frozenset[int]]:
    """Return the numbers of the forms that have a word, by word."""
    numbers: dict[str, set[int]] = {}
    for number, (*_, words) in enumerate(_described()):
        for word in words:
            numbers.setdefault(word, set()).add(number)
    return {word: frozenset(having) for word, having in numbers.items()}


def _with_words(words: list[str]) -> frozenset[int]:
    """Return the numbers of the forms that have all these words, of none where there are no words."""
    having = [_by_word().get(word, frozenset()) for word in words]
    return frozenset.intersection(*having) if having else frozenset()


def _plain(name: str) -> str:
    """Return a name in which every state space of shared memory is ``shared``."""
    return name.replace("shared::cta", "shared").replace("shared::cluster", "shared")


def _words(name: str) -> frozenset[str]:
    parts = name.split(".")
    return frozenset((*parts, *(part.split("::")[-1] for part in parts)))


def _shortened(plain: str, wanted: list[str]) -> int:
    """Count the parts that are only the end of one with a prefix, as ``ld`` is of ``wait::ld``."""
    return len(set(wanted).difference(plain.split(".")))


def nearest_names(name: str) -> tuple[str, ...]:
    """Return the names of instructions that come nearest to one that is none, the nearest first."""
    return _nearest([part for part in _plain(name).split(".") if part])


def _nearest(parts: list[str]) -> tuple[str, ...]:
    """Return the names with the most of ``parts``, taking for a part nobody has the most alike.

    Of those with as many that which begins with the same opcode comes first, then which has the nearest sizes in
    place of a shape that there is not, and the fewest parts more.
    """
    known = _by_word().keys()
    sizes = next((m for part in parts if part not in known and (m := _SHAPE.fullmatch(part))), None)
    others = [part for part in parts if sizes is None or part != sizes[0]]
    alike = [part if part in known else next(iter(nearest(part, known)), "") for part in others]
    wanted = Counter(filter(None, alike))
    if not wanted and sizes is None:
        return families()
    ranked: dict[str, tuple[float, ...]] = {}
    for name, names, words, shape in _taken_apart():
        held = sum(min(n, names.count(part) or 1) for part, n in wanted.items() if part in words)
        first = bool(alike) and names[0] != alike[0]
        ranked[name] = (-held, first, _apart(sizes, shape), len(names))
    return tuple(sorted(ranked, key=lambda name: ranked[name])[:_SUGGESTED_NAMES])


def _apart(sizes: re.Match[str] | None, shape: re.Match[str] | None) -> float:
    """Return how far a shape is from sizes that are none of one, in powers of two; 0 where no sizes are asked for."""
    if sizes is None:
        return 0.0
    if shape is None or "0" in sizes.groups():
        return math.inf
    pairs = zip(sizes.groups(), shape.groups(), strict=True)
    return sum(abs(math.log2(int(a) / int(b))) for a, b in pairs)


def _holds(parts: list[str], wanted: list[str]) -> bool:
    """Say whether all ``wanted`` are among ``parts``; the types of A and B may be one word twice."""
    rest = [*parts]
    for want in wanted:
        held = next((part for part in rest if want in (part, part.split("::")[-1])), None)
        if held is None:
            return False
        rest.remove(held)
    return True
