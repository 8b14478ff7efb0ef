"""A launch that a program has made is judged: its tensors are the arguments, by the names that the program has for them."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ptxlab.clients.borrowed import Borrowed
from ptxlab.clients.launched import Launched
from ptxlab.clients.session import Session
from ptxlab.emulator import Elements
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.judge.judgement import Judgement
from ptxlab.launch_config import LaunchConfig

# y[i, 0] = FACTOR * x[i, 0] where i < n, both of n rows of one number.
TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 param_0, .param .b8 param_1[8], .param .u32 param_2)
{
    .reg .pred out; .reg .b32 i, n; .reg .b64 x, y, at; .reg .f32 v;
    ld.param.u64 x, [param_0]; ld.param.u64 y, [param_1]; ld.param.u32 n, [param_2];
    mov.u32 i, %tid.x;
    setp.ge.u32 out, i, n;
    @out bra over;
    mul.wide.u32 at, i, 4;
    add.u64 x, x, at;
    add.u64 y, y, at;
    ld.global.f32 v, [x];
    mul.rn.f32 v, v, FACTOR;
    st.global.f32 [y], v;
over:
    ret;
}
"""


class Scaling:
    """A launch of the kernel on two tensors of ``n`` rows of one number."""

    def __init__(self, factor: str = "0f40400000", n: int = 20) -> None:
        self.session = Session("sm_80")
        self.kernel = self.session.load(TEXT.replace("FACTOR", factor), "scale.ptx").kernel("scale")
        self.arrays = [np.arange(n, dtype=np.float32), np.zeros(n, np.float32)]
        self.memory = [
            Borrowed(
                array.ctypes.data, array.nbytes, f"argument {name}", array, "float32",
                Elements(name, array.ctypes.data, 4, (1, 1), (n, 1), "float32"),
            )
            for name, array in zip("xy", self.arrays, strict=True)
        ]  # fmt: skip
        self.parameters = struct.pack("<QQI", *(array.ctypes.data for array in self.arrays), n)

    def launched(self) -> Launched:
        config = LaunchConfig.of(1, 32)
        self.session.launch(self.kernel, config, self.parameters, self.memory)
        assert self.session.last is not None
        return self.session.last

    def tensor(self, number: int, **changed: object) -> None:
        """Change what is known of a tensor."""
        borrowed = self.memory[number]
        assert borrowed.elements is not None
        known = {name: getattr(borrowed.elements, name) for name in Elements.__slots__}
        self.memory[number] = borrowed._replace(elements=Elements(**(known | changed)))


def test_a_launch_is_judged_beside_a_reference() -> None:
    launch = Scaling().launched()
    right = launch.judge(lambda x: {"y": 3 * x})
    assert right.passed
    assert isinstance(right, Judgement)
    assert (right.kernel, right.arch) == ("scale", "sm_80")
    assert right.as_text().startswith("judged         scale of <ptx> for sm_80: passed")
    named = launch.judge(lambda source, n: {"to": 3 * source}, names=("source", "to", "n"), seed=1)
    assert named.passed
    swapped = launch.judge(lambda x: {"param_0": x}, names=("x", "param_0", "param_1"))
    assert swapped.verdict == "not launched", "names of parameters are not those at other places"
    wrong = Scaling("0f40400002").launched().judge(lambda x: 3 * x)
    assert isinstance(wrong, Judgement)
    assert wrong.verdict == "not right"
    assert wrong.trials[0].compared[0].elements == 20
    assert wrong.trials[0].writer is not None


def test_what_a_judge_cannot_give() -> None:
    scaling = Scaling()
    with pytest.raises(PtxlabError, match="scale has 3 arguments, and 2 are named") as caught:
        scaling.launched().judge(lambda x: x, names=("x", "y"))
    assert caught.value.hint == "they are x, y, param_2"
    scaling.tensor(0, strides=(2, 1))
    with pytest.raises(Unsupported, match="x is not contiguous, with strides 2, 1"):
        scaling.launched().judge(lambda x: x)
    scaling.tensor(0, strides=(1, 1), name="y")
    with pytest.raises(Unsupported, match="two arguments are y"):
        scaling.launched().judge(lambda y: y)
    scaling.tensor(0, dtype="float42")
    with pytest.raises(Unsupported, match=r"y: .*float42"):
        scaling.launched().judge(lambda y: y)
    scaling.tensor(0, shape=None)
    with pytest.raises(
        Unsupported, match="what param_0 of scale points to, in argument x, is no tensor"
    ):
        scaling.launched().judge(lambda y: y)
    scaling.session.launch(
        scaling.kernel, LaunchConfig.of(1, 32, cooperative=True), scaling.parameters, scaling.memory
    )
    assert scaling.session.last is not None
    with pytest.raises(Unsupported, match="the launch of scale is cooperative"):
        scaling.session.last.judge(lambda y: y)
