"""What other programs print of layouts: CuTe's atoms and tiled copies, and encodings of Triton's GPU dialect.

CuTe names an atom by its instruction, ``SM80_16x8x16_F32BF16BF16F32_TN``, and prints a tiled product or copy as
lines ``NAME: layout``. Triton's ``#ttg.blocked``, ``#ttg.linear`` and ``#ttg.nvidia_mma`` (TritonGPUAttrDefs.td) say
which thread holds what: here as thread-value layouts, from (thread, register) to the linear index of a tile whose
first dimension is contiguous, as CuTe has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.layouts.layout import Layout
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.thread_value import thread_value
from ptxlab.verbs.layout.notation import parse_layout

_ATOM = re.compile(r"SM(\d+)_(\d+x\d+x\d+)_([A-Z0-9]+)_(SS|RS|TN|TT|NT|NN)\b")
_TYPES = re.compile(r"TF32|BF16|[FSUE]\d+(?:M\d+)?")
_LINE = re.compile(r"^\s*(\w+):\s*(.*\S)\s*$", re.MULTILINE)
_FIELD = re.compile(r"(\w+)\s*=\s*(\[[^=]*\]|\d+)(?=\s*[,}]|\s*$)")

Bases = list[tuple[int, ...]]
Fields = dict[str, Any]
"""What stands in an encoding: numbers, lists of them, lists of bases."""


def instruction(text: str) -> MatrixInstruction | None:
    """Return the instruction that an atom of CuTe is, by its name or by what is printed of it; None for other text."""
    if atom := _ATOM.search(text):
        _, shape, types, how = atom.groups()
        m, n, k = shape.split("x")
        d, a, b, *_ = [each.lower() for each in _TYPES.findall(types)] * 3
        family = "wgmma" if how in ("SS", "RS") else "mma"
        name = f"{family}.m{m}n{n}k{k}" + (f".{how.lower()}" if family == "wgmma" else "")
        return multiplication(name, f"{a}.{b or a}", d)
    lines = dict(_LINE.findall(text))
    if "Shape_MNK" not in lines or "LayoutA_TV" not in lines:
        return None
    printed = {each: parse_layout(lines[f"Layout{each}_TV"]) for each in "ABC"}
    m, n, k = map(int, re.findall(r"\d+", lines["Shape_MNK"]))
    for form in MULTIPLICATIONS:
        if (form.m, form.n, form.k) == (m, n, k) and all(
            thread_value(form.operand(each)) == printed[each] for each in "ABC"
        ):
            return form
    raise Unsupported(f"no instruction of {m} x {n} x {k} has its fragments as this atom says")


def thread_values(text: str) -> Layout | None:
    """Return the layout of a tiled copy that CuTe prints or of an encoding of Triton, None for other text."""
    lines = dict(_LINE.findall(text))
    if "TiledLayout_TV" in lines:
        layout = parse_layout(lines["TiledLayout_TV"])
        assert isinstance(layout, Layout)
        return layout
    encoding = re.search(r"#?(?:ttg|triton_gpu)\.(\w+)<\{?(.*?)\}?>", text, re.DOTALL)
    if encoding is None:
        return None
    fields = {name: _numbers(value) for name, value in _FIELD.findall(encoding[2])}
    readers = {"blocked": _blocked, "linear": _linear, "nvidia_mma": _nvidia_mma}
    if encoding[1] not in readers:
        raise Unsupported(
            f"the encoding {encoding[1]} is not read", hint=f"there are {', '.join(readers)}"
        )
    try:
        registers, threads = readers[encoding[1]](fields)
    except (KeyError, IndexError, TypeError) as error:
        raise PtxlabError(f"the encoding {encoding[1]} lacks {error}") from None
    return _layout(threads, registers)


def _numbers(text: str) -> Any:
    """Read ``3``, ``[1, 2]`` or ``[[1, 2], [3, 4]]``."""
    if "[[" in text.replace(" ", ""):
        return [
            list(map(int, re.findall(r"\d+", row))) for row in re.findall(r"\[([\d,\s]+)\]", text)
        ]
    numbers = list(map(int, re.findall(r"\d+", text)))
    return numbers if text.startswith("[") else numbers[0]


def _blocked(fields: Fields) -> tuple[Bases, Bases]:
    """Return where each bit of the register, and of the thread, leads: lanes beside registers, warps beside lanes."""
    order, parts = fields["order"], ("sizePerThread", "threadsPerWarp", "warpsPerCTA")
    done = [1] * len(order)
    bases: list[Bases] = []
    for part in parts:
        made: Bases = []
        for dimension in order:
            size = fields[part][dimension]
            while size > 1:
                made.append(tuple(done[dimension] * (d == dimension) for d in range(len(order))))
                done[dimension] *= 2
                size //= 2
        bases.append(made)
    registers, lanes, warps = bases
    return registers, [*lanes, *warps]


def _linear(fields: Fields) -> tuple[Bases, Bases]:
    registers, lanes, warps = (
        list(map(tuple, fields.get(each) or [])) for each in ("register", "lane", "warp")
    )
    return registers, [*lanes, *warps]


def _nvidia_mma(fields: Fields) -> tuple[Bases, Bases]:
    """Return those of D of an mma.m16n8, with warps beside each other as they are told, the last dimension first."""
    if fields["versionMajor"] != 2 or fields["instrShape"][-2:] != [16, 8]:
        raise Unsupported("of nvidia_mma version 2 is read, with instrShape = [16, 8]")
    warps: Bases = []
    step = [16, 8]
    for dimension in (1, 0):
        size = fields["warpsPerCTA"][dimension]
        while size > 1:
            warps.append(tuple(step[dimension] * (d == dimension) for d in range(2)))
            step[dimension] *= 2
            size //= 2
    return [(0, 1), (8, 0)], [(0, 2), (0, 4), (1, 0), (2, 0), (4, 0), *warps]


def _layout(threads: Sequence[tuple[int, ...]], registers: Sequence[tuple[int, ...]]) -> Layout:
    """Return the layout in which each bit goes where its basis says, which must be one place for each."""
    bases = [*threads, *registers]
    dimensions = len(bases[0]) if bases else 1
    sizes = [1 + sum({basis[d] for basis in bases}) for d in range(dimensions)]
    if any(sum(map(bool, basis)) > 1 for basis in bases):
        raise Unsupported(
            "a bit that leads to two dimensions at once makes no layout of sizes and strides"
        )
    strides = [prod(sizes[:d]) for d in range(dimensions)]

    def modes(some: Sequence[tuple[int, ...]]) -> Layout:
        steps = tuple(sum(a * b for a, b in zip(basis, strides, strict=True)) for basis in some)
        return Layout((2,) * len(steps), steps).coalesce() if steps else Layout(1, 0)

    first, second = modes(threads), modes(registers)
    return Layout((first.shape, second.shape), (first.stride, second.stride))
