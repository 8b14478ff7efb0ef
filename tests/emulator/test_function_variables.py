"""Variables in global and constant memory that a function declares for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError, PtxSyntaxError, Unsupported

HEAD = ".version 8.3 .target sm_80 .address_size 64\n"
COUNT = """
.visible .entry {name}(.param .u64 out) {{
    .reg .b64 d<2>; .reg .b32 r;
    .global .u32 counter = {start};
    ld.param.u64 d0, [out];
    atom.global.add.u32 r, [counter], 1;
    st.global.u32 [d0], r;
    ret;
}}"""


def seen(device: Device, module: Any, kernel: str) -> int:
    with device.zeros(1, "u32") as out:
        module.kernel(kernel).launch(1, 1, [out])
        return int(out.numpy()[0])


def test_a_variable_is_its_functions_own_and_stays(device: Device) -> None:
    text = HEAD + ".global .u32 counter = 100;" + COUNT.format(name="a", start=5)
    module = device.load(text + COUNT.format(name="b", start=50))
    assert [seen(device, module, name) for name in "abab"] == [5, 50, 6, 51]


def test_all_threads_share_it(run: Any) -> None:
    words = run(
        ".global .u32 sum; .global .u32 four[4] = {1, 2, 3, 4}; .const .u32 c = 7;"
        "atom.global.add.u32 r2, [sum], 1; ld.const.u32 r3, [c]; ld.global.u32 r4, four[2];"
        "mad.lo.u32 r3, r3, 100, r4; st.global.v2.u32 [d1], {r2, r3};",
        words=2,
    )
    assert sorted(words[:, 0]) == list(range(32))
    assert set(words[:, 1]) == {703}


def test_an_inner_block_sees_it_until_its_own_hides_it(run: Any) -> None:
    body = """
    .global .u32 outer = 3;
    .reg .b64 a;
    { ld.global.u32 r2, [outer]; }
    { .shared .u32 outer; mov.u32 r3, 9; st.shared.u32 [outer], r3; ld.shared.u32 r3, [outer]; }
    st.global.v2.u32 [d1], {r2, r3};
    """
    assert np.array_equal(run(body, words=2, block=1), [[3, 9]])


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (".shared .u32 x = 5;", "takes no initial value"),
        (".local .u32 x = 5;", "takes no initial value"),
        (".visible .global .u32 x;", "outside of functions"),
        (".global .u32 x; { .global .u32 x; }", "a second variable 'x'"),
    ],
)
def test_what_a_function_cannot_declare(emulate: Any, declaration: str, message: str) -> None:
    with pytest.raises((PtxSyntaxError, Unsupported), match=message):
        emulate(declaration)


def test_constants_are_not_written(emulate: Any) -> None:
    with pytest.raises(LaunchError, match="constant memory"):
        emulate(".const .u32 c = 7; mov.u64 d2, c; cvta.const.u64 d2, d2; st.u32 [d2], r0;")
