"""What the tensor memory accelerator is told by uniform registers, which are set by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.machine.launch import PARAMETERS, Launch
from ptxlab.machine.memory import GlobalWords, MemoryRange
from ptxlab.machine.registers import Registers
from ptxlab.machine.values import ALL
from ptxlab.prediction.following.accesses import Accesses
from ptxlab.prediction.following.asynchronous import AsynchronousCopies
from ptxlab.prediction.following.lifted import computations
from ptxlab.prediction.predict import predict
from ptxlab.prediction.sm.tma import Copy
from ptxlab.tensormap.encoding import encode
from ptxlab.tensormap.tensor_map import TensorMap
from tests.machine.test_operations import instruction

BASE = 0x200000
REGION = MemoryRange(BASE, 1 << 20)
UNIFORM = 256


def copied(
    text: str, words: Mapping[int, int | None], parameters: bytes = b"", told: bool = True
) -> Copy:
    """Return the copy that an instruction asks for, with uniform registers of some ``words``, None for unknown ones."""
    launch = Launch(TARGETS["sm_90a"], LaunchConfig.of(1, 32), parameters, [REGION])
    registers = Registers(launch, [0])
    accesses = Accesses(launch, registers, GlobalWords([REGION]), 1)
    for number, value in words.items():
        word = None if value is None else np.full(32, value & 0xFFFFFFFF, np.uint32)
        registers.words.write(UNIFORM + number, ALL, word)
    copies, i = AsynchronousCopies(launch, registers, accesses, [0]), instruction(text)
    [computation] = computations([i], launch.target)
    if computation is None:
        raise Unsupported("not in the model of time")
    [demand] = computation.demands(registers, ALL)
    ((copy,),) = copies.asked(copies.orders(i, demand, told), told)
    assert isinstance(copy, Copy)
    return copy


def test_bytes_in_a_row_may_be_many() -> None:
    """6144 units of 16 bytes; the mask of a multicast lies above them."""
    words = {8: 1024, 9: 64, 4: BASE + 32, 5: 0, 12: 6144 | 0b1011 << 16}
    copy = copied("UBLKCP.S.G [UR8], [UR4], UR12", words)
    assert (copy.nbytes, copy.key, copy.ctas) == (6144 * 16, (0, 64), 1)
    assert copy.sectors == tuple(range(BASE // 32 + 1, BASE // 32 + 1 + 3072))
    assert copied("UBLKCP.S.G.MULTICAST [UR8], [UR4], UR12", words).ctas == 3
    out = copied("UBLKCP.G.S [UR4], [UR8], UR12", words)
    assert (out.key, out.loads, len(out.sectors)) == (None, False, 3072)


def tensor() -> bytes:
    """Return a map of 64 x 64 numbers, of which boxes of 8 rows of 16 are copied."""
    return encode(TensorMap("f32", BASE, (64, 64), (256,), (16, 8), (1, 1)))


def test_a_box_that_begins_before_its_tensor_is_the_rest_of_it() -> None:
    """Coordinates are signed: of 8 rows the last 3, of 16 columns the last 8."""
    words = {8: 1024, 9: 64, 10: -8, 11: -5, 4: PARAMETERS & 0xFFFFFFFF, 5: PARAMETERS >> 32}
    copy = copied("UTMALDG.2D [UR8], [UR4]", words, tensor())
    assert copy.sectors == tuple(BASE // 32 + 8 * row for row in range(3))
    whole = copied("UTMALDG.2D [UR8], [UR4]", words | {10: 16, 11: 2}, tensor())
    assert whole.sectors == tuple(
        BASE // 32 + 8 * row + 2 + n for row in range(2, 10) for n in (0, 1)
    )
    assert whole.nbytes == 8 * 16 * 4
    aside = copied("UTMALDG.2D [UR8], [UR4]", words | {10: 4, 11: 2}, tensor())
    assert aside.sectors == tuple(
        BASE // 32 + 8 * row + n for row in range(2, 10) for n in range(3)
    )


def test_where_a_box_is_need_not_be_known_if_nobody_asks() -> None:
    """Who waits for it waits for as many bytes anywhere."""
    words = {8: 1024, 9: 64, 10: None, 11: 0, 4: PARAMETERS & 0xFFFFFFFF, 5: PARAMETERS >> 32}
    copy = copied("UTMALDG.2D [UR8], [UR4]", words, tensor(), told=False)
    assert (copy.nbytes, copy.key, copy.sectors) == (8 * 16 * 4, (0, 64), ())
    with pytest.raises(Unsupported, match="depends on data that is not computed"):
        copied("UTMALDG.2D [UR8], [UR4]", words, tensor())
    with pytest.raises(Unsupported, match="depends on data that is not computed"):
        copied("UTMALDG.2D [UR8], [UR4]", words | {4: None}, tensor(), told=False)


def test_what_is_no_copy_of_a_box_is_refused() -> None:
    words = {8: 1024, 9: 64, 10: 0, 11: 0, 4: PARAMETERS & 0xFFFFFFFF, 5: PARAMETERS >> 32}
    for text in (
        "UTMALDG.IM2COL.2D [UR8], [UR4]",
        "UTMALDG [UR8], [UR4]",
        "UBLKCP.S.S [UR8], [UR4], UR10",
    ):
        with pytest.raises(Unsupported, match="not in the model of time"):
            copied(text, words, tensor())


def test_a_barrier_that_counts_is_refused() -> None:
    source = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b32 t, r; .reg .b64 q; .reg .pred u;
  ld.param.u64 q, [out]; mov.u32 t, %tid.x; setp.gt.u32 u, t, 5; bar.red.popc.u32 r, 0, u;
  st.global.u32 [q], r; ret;
}
"""
    with pytest.raises(Unsupported, match="not in the model of time"):
        predict(source, "a100", 1, 64, [np.zeros(4, np.uint32)])
