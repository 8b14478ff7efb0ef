"""A layout as code: Python is called, PTX is run, both against the layout itself and against arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxlab import open_device
from ptxlab.layouts.code import code, swizzled
from ptxlab.layouts.layout import ComposedLayout, Layout, Mapping, Swizzle
from ptxlab.toolchain.nvrtc import compile_cuda
from tests.together import in_one_test

TILE = Layout.row_major((8, 64))
LAYOUTS: list[Mapping] = [
    TILE,
    Layout(((2, 3), (5, 4)), ((1, 24), (2, 100))),
    Layout((4, (3, 2), 5), (1, (8, 40), 0)),
    Swizzle(3, 3, 3).compose(TILE),
    Swizzle(2, 4, -3).compose(Layout.col_major((16, 32))),
    ComposedLayout(Swizzle(1, 0, 3), 5, Layout((6, 7), (7, 1))),
    Layout((7,), (3,)),
    Layout((5, (2, 3, 4)), (24, (12, 4, 1))),
]


def offset_of(layout: Mapping) -> Any:
    names: dict[str, Any] = {}
    exec(code(layout, "python"), names)
    return names["offset_of"]


def coordinates(layout: Mapping) -> list[tuple[int, ...]]:
    plain = layout if isinstance(layout, Layout) else layout.layout
    return list(np.ndindex(*(part.size for part in plain.parts)))


@in_one_test("layout", LAYOUTS)
def test_python_gives_the_offsets(layout: Mapping) -> None:
    function = offset_of(layout)
    for coordinate in coordinates(layout):
        assert function(*coordinate) == layout(*coordinate)


def test_the_swizzle_of_128_bytes_by_hand() -> None:
    """Row r of eight 16-byte units, unit c of 16-bit elements: it lies where unit c ^ r was."""
    function = offset_of(Swizzle(3, 3, 3).compose(TILE))
    for row in range(8):
        for unit in range(8):
            assert function(row, 8 * unit) == 64 * row + 8 * (unit ^ row)
    assert swizzled(Swizzle(3, 3, 3)) == "offset ^ (offset >> 3 & 56)"


@in_one_test("layout", LAYOUTS)
def test_ptx_gives_the_offsets(layout: Mapping) -> None:
    places = coordinates(layout)
    names = [f"i{i}" for i in range(len(places[0]))]
    names = ["row", "col"] if len(names) == 2 else names
    loads = "".join(f"ld.global.u32 {name}, [from+{4 * i}];" for i, name in enumerate(names))
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 places, .param .u64 out)
{{
    .reg .b32 t, offset, {", ".join(names)};
    .reg .b64 from, to;
    mov.u32 t, %tid.x;
    ld.param.u64 from, [places];
    mad.wide.u32 from, t, {4 * len(names)}, from;
    {loads}
    {code(layout, "ptx")}
    ld.param.u64 to, [out];
    mad.wide.u32 to, t, 4, to;
    st.global.u32 [to], offset;
}}"""
    device = open_device("emulator")
    out = device.zeros(len(places), "u32")
    given = device.upload(np.array(places, np.uint32))
    device.load(text).kernel().launch(1, len(places), [given, out])
    assert out.numpy().tolist() == [layout(*coordinates) for coordinates in places]


def test_cuda_compiles() -> None:
    text = "".join(
        f"namespace n{i} {{\n{code(layout, 'cuda')}}}\n" for i, layout in enumerate(LAYOUTS)
    )
    checks = (
        "static_assert(n3::offset_of(1, 0) == 72);\nstatic_assert(n0::offset_of(7, 63) == 511);\n"
        "static_assert(n7::offset_of(0, 6) == 1 && n7::offset_of(0, 10) == 9);"
    )
    compile_cuda(f'{text}{checks}\nextern "C" __global__ void k() {{}}', path="x.cu", arch="sm_80")
