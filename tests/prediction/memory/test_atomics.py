"""Atomics that meet at an address: who meets, and that it takes as long as somebody measured."""

from __future__ import annotations

import numpy as np
import pytest

from ptxlab.errors import Unsupported
from ptxlab.prediction.model import Prediction
from ptxlab.prediction.predict import predict
from tests.prediction.running import without_launch

PROGRAM = """\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 shift, .param .u32 lanes)
{
  .reg .b32 t<8>; .reg .b64 p, w; .reg .pred u;
  ld.param.u64 p, [out]; ld.param.u32 t3, [shift]; ld.param.u32 t4, [lanes];
  mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mad.lo.u32 t2, t1, 256, t0;
  shr.u32 t2, t2, t3; mul.wide.u32 w, t2, 4; add.u64 p, p, w;
  and.b32 t5, t0, 31; setp.ge.u32 u, t5, t4; @u bra end; mov.u32 t6, 0;
more:
  .pragma "nounroll";
  atom.global.add.u32 t7, [p], t0;
  add.u32 t6, t6, 1; setp.lt.u32 u, t6, 32; @u bra more;
end:
  ret;
}
"""
"""Each thread adds 32 times to a word: its own, that of as many threads as 2 to the ``shift``, or of a warp's first lanes."""

TILES = """\
.version 8.7
.target sm_80
.address_size 64
.visible .entry k(.param .u64 counter, .param .u32 tiles)
{
  .shared .b32 told; .reg .b32 t<8>; .reg .f32 f; .reg .b64 p; .reg .pred u;
  ld.param.u64 p, [counter]; ld.param.u32 t1, [tiles]; mov.u32 t0, %tid.x; mov.f32 f, 0f3F800000;
next:
  setp.ne.u32 u, t0, 0; @u bra all;
  atom.global.add.u32 t2, [p], 1; st.shared.u32 [told], t2;
all:
  bar.sync 0; ld.shared.u32 t3, [told]; bar.sync 0;
  setp.ge.u32 u, t3, t1; @u bra end; mov.u32 t4, 0;
more:
  .pragma "nounroll";
  fma.rn.f32 f, f, f, f; add.u32 t4, t4, 1; setp.lt.u32 u, t4, 256; @u bra more;
  bra next;
end:
  ret;
}
"""
"""CTAs that take tiles as a counter tells them, until there are no more."""

CTAS = 15_000_000 // 256
FEW = 1024
OWN, OF_CTA, ONE = 0, 8, 31


@pytest.fixture(scope="module")
def words() -> np.ndarray:
    return np.zeros(CTAS * 256, np.uint32)


def added(words: np.ndarray, shift: int, lanes: int = 1, ctas: int = CTAS) -> Prediction:
    return predict(PROGRAM, "rtx4090", ctas, 256, [words, shift, lanes])


def test_additions_to_one_word_take_as_long_as_was_measured(words: np.ndarray) -> None:
    """62e9 a second, of 15 million threads with 32 each, a warp's together, and with what a browser takes to ask for them.

    Source: PWhiddy/webgpu-atomics-benchmark, RTX 4090.
    """
    prediction = added(words, ONE)
    assert prediction.bound == "atomics"
    assert 15e6 * 32 / prediction.seconds == pytest.approx(62e9, rel=1 / 3)


def test_a_lane_takes_as_long_as_a_warp(words: np.ndarray) -> None:
    first, every = (added(words, ONE, lanes, FEW).seconds for lanes in (1, 32))
    assert every / first > 20


def test_words_of_their_own_are_not_waited_for(words: np.ndarray) -> None:
    """A word of each CTA is come to by its threads alone: 256 x 32 times, whatever the grid."""
    own, of_cta = (added(words, shift, 32, FEW) for shift in (OWN, OF_CTA))
    assert own.used["atomics"] < 0.05
    taken = of_cta.used["atomics"] * without_launch(of_cta) * 2520e6
    assert taken == pytest.approx(256 * 32, rel=0.01)


def test_ctas_that_a_counter_gives_tiles_take_them_in_turn() -> None:
    """Of an RTX 4090's 128 CTAs each has as many; what is as large as to be there for each is no counter."""
    counter, table = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
    two, four, eight = (predict(TILES, "rtx4090", 128, 128, [counter, 128 * n]) for n in (2, 4, 8))
    assert four.uneven is None
    assert (eight.cycles - four.cycles) / (four.cycles - two.cycles) == pytest.approx(2, rel=0.05)
    with pytest.raises(Unsupported, match="data that is not computed"):
        predict(TILES, "rtx4090", 128, 128, [table, 128])
