"""PTX that asks memory for what the tests say, and finding the line that does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.isa.targets import TARGETS
from ptxlab.launch_config import LaunchConfig
from ptxlab.observe.counters import Counts
from ptxlab.observe.profile import Profile, ProfiledLine, count

MARK = "// here"

PROBE = """\
.version 8.8
.target {target}
.address_size 64
.visible .entry probe(.param .u64 offsets, .param .u64 sizes, .param .u64 data)
{{
    .reg .b16 h;
    .reg .b32 i, n, offset, size, x<8>;
    .reg .b64 p, q, generic, wide, y<4>;
    .reg .pred on;
    .shared .align 128 .b8 tile[16384];
    .local .align 16 .b8 mine[512];
    mov.u32 i, %ctaid.x;
    mov.u32 n, %ntid.x;
    mov.u32 size, %tid.x; mad.lo.u32 i, i, n, size;
    ld.param.u64 p, [offsets];
    mad.wide.u32 p, i, 4, p;
    ld.global.u32 offset, [p];
    ld.param.u64 p, [sizes];
    mad.wide.u32 p, i, 4, p;
    ld.global.u32 size, [p];
    setp.ne.u32 on, size, 0;
    ld.param.u64 p, [data];
    cvt.u64.u32 wide, offset;
    add.u64 q, p, wide;
    cvta.shared.u64 generic, wide;
    {body}
    ret;
}}
"""


@cache
def device(target: str = "sm_80") -> EmulatorDevice:
    return EmulatorDevice(TARGETS[target])


def probe(
    body: str,
    offsets: Sequence[int] | np.ndarray[Any, Any],
    sizes: Sequence[int] | np.ndarray[Any, Any] | None = None,
    *,
    grid: int = 1,
    target: str = "sm_80",
) -> Profile:
    """Count ``body`` with an ``offset`` and a ``size`` (0 is not ``on``) for every thread of ``grid`` CTAs.

    ``q`` is the address of ``offset`` in global memory of 16 KiB, ``generic`` that in shared memory.
    """
    on = device(target)
    given = np.asarray(offsets, np.uint32)
    counts = np.ones_like(given) if sizes is None else np.asarray(sizes, np.uint32)
    text = PROBE.format(target=target, body=body.replace("\n", "\n    "))
    arguments = [on.upload(given), on.upload(counts), on.zeros(1 << 14, "u8")]
    return count(
        on.load(text).kernel("probe"), LaunchConfig.of(grid, len(given) // grid), arguments
    )


def marked(profile: Profile) -> list[ProfiledLine]:
    """Return the lines with a mark, from the top."""
    return [line for line in profile.lines if MARK in profile.text[line.number - 1]]


def here(profile: Profile) -> Counts:
    """Return what was counted on the line with the mark."""
    [line] = marked(profile)
    return line.counts
