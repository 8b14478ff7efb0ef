"""Formulas derived from layouts: true at every place, and the ones the ISA prints."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxlab.matrix.bit_fields import BitFields, IndexVariable, Values, derive, of_fragment
from ptxlab.matrix.catalog import MULTIPLICATIONS, multiplication
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.matrix.tensor_memory import TENSOR_MEMORY_MOVES
from ptxlab.matrix.wgmma import WGMMA
from tests.together import in_one_test

OTHERS = [
    *(o for form in WGMMA for o in form.operands if form.n in (24, 256)),
    *(move.layout for move in TENSOR_MEMORY_MOVES if move.count in (1, 4)),
]
LAYOUTS = list(
    {
        (o.kind, o.rows, o.cols, o.bits, o.copies, o.threads): o
        for o in (*(o for i in MULTIPLICATIONS for o in i.operands), *OTHERS)
    }.values()
)


def formulas(fields: BitFields) -> dict[str, str]:
    return {output.variable.name: output.expression for output in fields.outputs}


@in_one_test("layout", LAYOUTS)
def test_the_printed_formulas_are_true_at_every_place_and_back(layout: FragmentLayout) -> None:
    there = formulas(of_fragment(layout))
    back = formulas(of_fragment(layout).inverse())
    compiled = {name: compile(text, name, "eval") for name, text in (there | back).items()}
    sizes = (layout.threads, layout.registers_per_lane, layout.elements_per_register)
    lane, register, element = np.indices(sizes)
    index = {layout.holder: lane, "register": register, "element": element}
    element_index = {name: eval(compiled[name], {}, index) for name in there}
    row, col = layout.element(lane, register, element)
    assert (element_index["row"] == row).all()
    assert (element_index["col"] == col).all()
    assert np.all(element_index.get("matrix", 0) == layout.matrix(lane))
    assert back.keys() == index.keys()
    for name in back:
        assert np.all(eval(compiled[name], {}, element_index) == index[name])


def test_m16n8k16_has_the_formulas_of_the_isa() -> None:
    """PTX ISA, "Matrix Fragments for mma.m16n8k16": groupID is lane >> 2, i is 2 * register + element."""
    a = of_fragment(multiplication("m16n8k16").operand("A"))
    assert formulas(a) == {
        "row": "(lane >> 2) + 8 * (register & 1)",
        "col": "element + 2 * (lane & 3) + 8 * (register >> 1)",
    }
    assert formulas(a.inverse()) == {
        "lane": "(col >> 1 & 3) + 4 * (row & 7)",
        "register": "(row >> 3) + 2 * (col >> 3)",
        "element": "col & 1",
    }


ROW_COL = (IndexVariable("row", 3), IndexVariable("col", 3))
TO = (IndexVariable("at", 6),)


def test_an_exclusive_or_of_fields_is_found_and_inverted() -> None:
    swizzled = derive(ROW_COL, TO, lambda v: {"at": v["row"] << 3 | (v["row"] ^ v["col"])})
    assert swizzled.outputs[0].overlaps
    assert "^" in swizzled.outputs[0].expression
    back = swizzled.inverse()
    for row, col in itertools.product(range(8), range(8)):
        at = swizzled({"row": row, "col": col})
        assert eval(swizzled.outputs[0].expression, {}, {"row": row, "col": col}) == at["at"]
        assert back(at) == {"row": row, "col": col}


def test_what_carries_or_forgets_is_refused() -> None:
    def carries(values: Values) -> Values:
        return {"at": values["row"] + values["col"]}

    with pytest.raises(ValueError, match="no exclusive or of bits"):
        derive(ROW_COL, TO, carries)
    forgetful = derive(ROW_COL, TO, lambda values: {"at": values["row"]})
    with pytest.raises(ValueError, match="no inverse"):
        forgetful.inverse()
    narrow = derive(ROW_COL, (IndexVariable("at", 3),), lambda values: {"at": values["row"]})
    with pytest.raises(ValueError, match="no inverse"):
        narrow.inverse()
