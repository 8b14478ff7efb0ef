"""``cudaDeviceProp``: the attributes of the GPU, laid out as CUDA 12 and CUDA 13 have them.

Source: driver_types.h of both; CUDA Runtime API, "Device Management".
"""

from __future__ import annotations

import struct
from functools import partial

from ptxlab.clients.driver import devices
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import Refused
from ptxlab.clients.driver.table import answers, store

_MEMBERS = """
q8 i12 i10 q11 i1 i2 i3 i4 i5 i6 i7 i13- q9 i75 i76 q14 q51 i15- i16 i17- i18 i19 i20- 1x- 39x q30 i31 i32 i33
i34 i50 i35 i40 i41 i36- i37 i38 i108 i39 i78 i79 i80 q81 i82 i83 i84 i85 i86 i87- i88 i89 i90 i91 i95 i96- q97
i100 i101 i106 i109 q111 i99 i112 i113 i114 i115 i116 i117 i118 i119 i121 i122 i120 i129 63x
"""
"""What follows totalGlobalMem: an int (``i``) or size_t (``q``) with the device attribute of a number, or ints that are 0.

Those with ``-`` CUDA 13 has no more.
"""


def _properties(gpu: EmulatedGpu, at: int, *, cuda: int) -> None:
    layout, values = "@256s16s12xQ", [devices.total_memory(gpu)]
    for member in _MEMBERS.split():
        if member.endswith("-") and cuda >= 13:
            continue
        word = member.rstrip("-")
        if word.endswith("x"):
            layout += f"{4 * int(word[:-1])}x"
        else:
            layout += "i" if word[0] == "i" else "Q"
            values.append(_attribute(gpu, int(word[1:])))
    name = gpu.session.device.name.encode()
    store(at, struct.pack(layout, name, devices.identity(gpu), *values))


def _attribute(gpu: EmulatedGpu, which: int) -> int:
    """Return a device attribute, 0 where nobody has told it."""
    try:
        return devices.attribute(gpu, which)
    except Refused:
        return 0


for _cuda, _name in ((12, "cudaGetDeviceProperties_v2"), (13, "cudaGetDeviceProperties")):
    answers(_name, "u64 device", needs="runtime")(partial(_properties, cuda=_cuda))
