"""Generated index arithmetic, run in its own language at every lane, register and element."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ptxlab.device.opening import open_device
from ptxlab.fragments.code import code
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.multiplication import MatrixInstruction

WITH_RUN = [
    multiplication("m16n8k16"),
    multiplication("m8n8k4", "f16", "f32"),
    multiplication("m16n8k256", "b1"),
    multiplication("m16n16k16", "f16"),
]
"""One matrix, four, the most elements a register, and copies."""


def places(layout: FragmentLayout) -> list[tuple[int, int, int]]:
    registers, elements = range(layout.registers_per_lane), range(layout.elements_per_register)
    return list(itertools.product(range(32), registers, elements))


def expected(layout: FragmentLayout, place: tuple[int, int, int]) -> list[int]:
    row, col = layout.element(*place)
    several = [int(layout.matrix(place[0]))] if layout.matrices > 1 else []
    distinct = layout.registers_per_lane // layout.copies
    copies = [place[1] // distinct] if layout.copies > 1 else []
    return [int(row), int(col), *several, *copies]


def layouts(instruction: MatrixInstruction) -> tuple[Any, ...]:
    return tuple((o.kind, o.rows, o.cols, o.bits, o.copies) for o in instruction.operands)


def test_python_of_every_layout() -> None:
    checked = set()
    for instruction in {layouts(i): i for i in MULTIPLICATIONS}.values():
        names: dict[str, Any] = {}
        exec(code(instruction, "python"), names)
        for layout, key in zip(instruction.operands, layouts(instruction), strict=True):
            name = layout.operand.lower()
            if f"{name}_element" not in names:
                assert (name, layout.kind) == ("d", instruction.operand("C").kind)
                continue
            if (name, key) in checked:
                continue
            checked.add((name, key))
            for place in places(layout):
                element = names[f"{name}_element"](*place)
                assert list(element) == expected(layout, place)
                assert names[f"{name}_place"](*element) == place


def cuda(instruction: MatrixInstruction, layout: FragmentLayout) -> str:
    count = len(expected(layout, (0, 0, 0)))
    name = layout.operand.lower()
    results = ", ".join(f"out[{i}]" for i in range(count))
    return f"""{code(instruction, "cuda")}
extern "C" __global__ void all(const unsigned *at, unsigned *to) {{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned *out = to + 8 * i;
    {name}_element(at[3 * i], at[3 * i + 1], at[3 * i + 2], {results});
    {name}_place({results}, out[5], out[6], out[7]);
}}
"""


def ptx(instruction: MatrixInstruction, layout: FragmentLayout) -> str:
    text = code(instruction, "ptx")
    name = layout.operand.lower()
    there, back = (
        "{" + text.partition(f"// {name}_{end}:")[2].partition("{")[2].partition("\n}")[0] + "\n}"
        for end in ("element", "place")
    )
    results = ["row", "col", "matrix", "copy"]
    if layout.matrices == 1:
        results.remove("matrix")
    if layout.copies == 1:
        results.remove("copy")
    stores = [f"st.global.u32 [to+{4 * i}], {result};" for i, result in enumerate(results)]
    stores += [
        f"st.global.u32 [to+{20 + 4 * i}], {result};"
        for i, result in enumerate(("lane", "register", "element"))
    ]
    return "\n".join(
        [
            ".version 7.0\n.target sm_80\n.address_size 64",
            ".visible .entry all(.param .u64 p_at, .param .u64 p_to) {",
            ".reg .b32 lane, register, element, row, col, matrix, copy, i, n, cta; .reg .b64 at, to;",
            "mov.u32 i, %tid.x; mov.u32 n, %ntid.x; mov.u32 cta, %ctaid.x; mad.lo.u32 i, cta, n, i;",
            "ld.param.u64 at, [p_at]; ld.param.u64 to, [p_to];",
            "mad.wide.u32 at, i, 12, at; mad.wide.u32 to, i, 32, to;",
            "ld.global.u32 lane, [at]; ld.global.u32 register, [at+4];",
            "ld.global.u32 element, [at+8];",
            there,
            "mov.b32 lane, 99; mov.b32 register, 99; mov.b32 element, 99;",
            back,
            *stores,
            "ret; }",
        ]
    )


def run(source: str, at: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    with open_device("emulator", arch="sm_80") as device:
        kernel = device.load(source).kernel("all")
        with device.upload(at) as given, device.zeros((len(at), 8), "u32") as out:
            kernel.launch(len(at) // 32, 32, [given, out])
            return np.asarray(out.numpy(), np.uint32)


@pytest.mark.parametrize("language", ["cuda", "ptx"])
@pytest.mark.parametrize("instruction", WITH_RUN, ids=lambda i: i.name)
@pytest.mark.parametrize("operand", "ABC")
def test_compiled_code(
    instruction: MatrixInstruction, operand: str, language: str, tmp_path: Any
) -> None:
    layout = instruction.operand(operand)
    at = np.array(places(layout), np.uint32)
    if language == "cuda":
        source = tmp_path / "all.cu"
        source.write_text(cuda(instruction, layout))
        out = run(str(source), at)
    else:
        out = run(ptx(instruction, layout), at)
    right = np.array([expected(layout, tuple(map(int, place))) for place in at])  # type: ignore[arg-type]
    assert (out[:, : right.shape[1]] == right).all()
    assert (out[:, 5:] == at).all()


def test_wrong_arithmetic_is_noticed() -> None:
    layout = multiplication("m16n8k16").operand("A")
    at = np.array(places(layout), np.uint32)
    text = ptx(multiplication("m16n8k16"), layout)
    right = run(text, at)
    wrong = run(text.replace("bfe.u32 bits, lane, 2, 3;", "bfe.u32 bits, lane, 1, 3;"), at)
    assert (right[:, 0] != wrong[:, 0]).any()
    assert (wrong[:, 5:] != at).any()
