"""What other programs print of layouts: CuTe's atoms and tiled copies, and encodings of Triton's GPU dialect.

CuTe names an atom by its instruction, ``SM80_16x8x16_F32BF16BF16F32_TN``, and prints a tiled product or copy as
lines ``NAME: layout``. Triton's ``#ttg.blocked``, ``#ttg.linear``, ``#ttg.nvidia_mma`` and ``#ttg.dot_op`` of it
(TritonGPUAttrDefs.td, LinearLayoutConversions.cpp) say which thread holds what: here as thread-value layouts, from (thread, register) to the linear index of a tile whose
first dimension is contiguous, as CuTe has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.layouts.layout import Layout
from ptxlab.layouts.linear import Bases
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.thread_value import thread_value
from ptxlab.verbs.layout.notation import parse_layout

_ATOM = re.compile(
    r"(?:SM\d+|MMA)_(\d+x\d+x\d+)_(?:([A-Z0-9]+)_)?(SS|RS|TN|TT|NT|NN)(?:_(XOR|AND)POPC)?\b(?:<(.*)>)?"
)
_TYPES = re.compile(r"TF32|BF16|[FSUE]\d+(?:M\d+)?")
_CPP_TYPES = {
    "half_t": "f16",
    "bfloat16_t": "bf16",
    "tfloat32_t": "tf32",
    "float": "f32",
    "double": "f64",
}
_CPP_FORMAT = re.compile(r"(?:float_|type_erased_dynamic_float\d_)?(e\dm\d)(?:_unpacksmem)?_t$")
_COPY = re.compile(r"SM\d+_U(?:32|16)x(\d)_(LD|ST)SM_(N|T)\b")
_LINE = re.compile(r"^\s*(\w+):\s*(.*\S)\s*$", re.MULTILINE)
_ENCODING = re.compile(r"#?(?:ttg|triton_gpu)\.(\w+)<\{?(.*)\}?>", re.DOTALL)
_FIELD = re.compile(r"(\w+)\s*=\s*(\[[^=]*\]|\d+)(?=\s*[,}]|\s*$)")

THREAD_VALUES = "from (thread, value) to the place in a tile whose first dimension is contiguous"
"""What the layouts are that are given here."""

Fields = dict[str, Any]
"""What stands in an encoding: numbers, lists of them, lists of bases."""


def instruction(text: str) -> MatrixInstruction | None:
    """Return the instruction that an atom of CuTe is, by its name or by what is printed of it; None for other text."""
    if copy := _COPY.search(text):
        count, verb, trans = copy.groups()
        matrices = int(count) // (2 if trans == "T" else 1)
        name = f"{verb.lower()}matrix.x{matrices}{'.trans' * (trans == 'T')}"
        raise PtxlabError(
            f"{copy[0]} is {name}, which is no product",
            hint=f"ptxlab fragments --op {name} has its fragments, ptxlab layout 16x64 --plan {name} its addresses",
        )
    if atom := _ATOM.search(text):
        shape, types, how, operation, template = atom.groups()
        m, n, k = shape.split("x")
        told = [each.lower() for each in _TYPES.findall(types or "")] or _of_cpp(template or "")
        if not told:
            raise PtxlabError(
                f"{atom[0]} does not say its types",
                hint=f"as {atom[0]}<float_e4m3_t, float_e4m3_t, float>",
            )
        d, a, b, *_ = [{"u1": "b1", "b1": "b1"}.get(each, each) for each in told] * 3
        family = "wgmma" if how in ("SS", "RS") else "mma"
        name = f"{family}.m{m}n{n}k{k}" + (f".{how.lower()}" if family == "wgmma" else "")
        name += f".{operation.lower()}" if operation else ""
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


def _of_cpp(template: str) -> list[str]:
    """Return the types of D, A and B of an atom whose parameters are those of A, B and C."""
    names = [
        each.strip().removeprefix("cutlass::").removeprefix("cute::")
        for each in template.split(",")
    ]
    known = [
        _CPP_TYPES.get(name) or (m[1] if (m := _CPP_FORMAT.match(name)) else None) for name in names
    ]
    return [known[2], known[0], known[1]] if len(known) > 2 and all(known[:3]) else []  # type: ignore[list-item]


def thread_values(text: str) -> Layout | None:
    """Return the layout of a tiled copy that CuTe prints or of an encoding of Triton, None for other text."""
    lines = dict(_LINE.findall(text))
    if "TiledLayout_TV" in lines:
        layout = parse_layout(lines["TiledLayout_TV"])
        assert isinstance(layout, Layout)
        return layout
    both = encoding_bases(text)
    return both and _layout(*both)


def encoding_bases(text: str) -> tuple[Bases, Bases] | None:
    """Return where each bit of a thread, and of its registers, leads in an encoding of Triton, None for other text."""
    encoding = _ENCODING.search(_with_aliases(text))
    if encoding is None:
        return None
    kind, parent = encoding[1], _ENCODING.search(encoding[2])
    own = encoding[2] if parent is None else encoding[2].replace(parent[0], "")
    fields = _fields(own)
    readers = {"blocked": _blocked, "linear": _linear, "nvidia_mma": _nvidia_mma, "dot_op": _dot_op}
    if kind not in readers:
        raise Unsupported(
            f"the encoding {kind} is not read", hint=f"there are {', '.join(readers)}"
        )
    if kind == "dot_op":
        if parent is None or parent[1] != "nvidia_mma":
            raise Unsupported(
                "dot_op is read with #ttg.nvidia_mma<...> for its parent",
                hint="a name such as #mma is known where its line #mma = #ttg.nvidia_mma<...> stands before it",
            )
        fields |= _fields(parent[2])
    try:
        registers, threads = readers[kind](fields)
    except (KeyError, IndexError, TypeError) as error:
        raise PtxlabError(f"the encoding {kind} lacks {error}") from None
    return threads, registers


def _with_aliases(text: str) -> str:
    """Return an encoding with its names replaced by what the lines before it, ``#mma = #ttg...``, say they are."""
    *lines, last = text.strip().split("\n")
    for line in reversed(lines):
        name, equals, meaning = line.partition("=")
        if equals and name.strip().startswith("#"):
            last = re.sub(rf"{re.escape(name.strip())}\b", meaning.strip(), last)
    return last if "ttg." in last or "triton_gpu." in last else text


def _fields(text: str) -> Fields:
    return {name: _numbers(value) for name, value in _FIELD.findall(text)}


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
    """Return those of D of an mma.m16n8 (version 2), or of a warp's 16 x n of a wgmma (version 3), and of the warps."""
    version, shape = fields["versionMajor"], fields["instrShape"]
    if version == 2 and shape[-2:] == [16, 8]:
        n = 8
    elif version == 3 and len(shape) == 3 and shape[0] == 16:
        n = shape[1]
    else:
        raise Unsupported(
            "of nvidia_mma version 2 is read, with instrShape = [16, 8], and 3, with [16, n, k]"
        )
    registers, lanes = _tile((16, n), 2, inner=1)
    return registers, [*lanes, *_warps(fields, (16, n))]


def _dot_op(fields: Fields) -> tuple[Bases, Bases]:
    """Return those of A or B, ``opIdx``, of an mma with ``kWidth`` neighbours along k in a register; warps along k have copies."""
    width, index = fields["kWidth"], fields["opIdx"]
    if fields["versionMajor"] != 2 and index != 0:
        raise Unsupported("B of a wgmma lies in shared memory")
    size = (16, 8 * width) if index == 0 else (8 * width, 8)
    registers, lanes = _tile(size, width, inner=1 - index)
    return registers, [*lanes, *_warps(fields, size, copies=1 - index)]


def _tile(size: tuple[int, int], width: int, inner: int) -> tuple[Bases, Bases]:
    """Return those of a tile: along ``inner`` registers of ``width`` and 4 lanes, along the other 8 lanes, then what is left of both."""

    def along(dimension: int, first: int, end: int) -> Bases:
        steps = [1 << bit for bit in range(end.bit_length() - 1) if 1 << bit >= first]
        return [tuple(step * (d == dimension) for d in range(2)) for step in steps]

    outer = 1 - inner
    registers = [
        *along(inner, 1, width), *along(outer, 8, size[outer]), *along(inner, 4 * width, size[inner])
    ]  # fmt: skip
    return registers, [*along(inner, width, 4 * width), *along(outer, 1, 8)]


def _warps(fields: Fields, size: tuple[int, int], copies: int | None = None) -> Bases:
    """Return those of the warps: with version 2 the last dimension first, with 3 the first; none along ``copies``."""
    warps: Bases = []
    step = list(size)
    for dimension in (1, 0) if fields["versionMajor"] == 2 else (0, 1):
        count = fields["warpsPerCTA"][dimension]
        while count > 1:
            warps.append(tuple(step[dimension] * (d == dimension != copies) for d in range(2)))
            step[dimension] *= 2
            count //= 2
    return warps


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
