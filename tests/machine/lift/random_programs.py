"""Random programs of PTX whose threads have nothing to do with each other, run as PTX and as their machine code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from ptxlab import open_device
from ptxlab.arrays import Array
from ptxlab.device.protocol import Module
from ptxlab.emulator.prepare.row import RowForm
from ptxlab.errors import Unsupported
from tests.emulator.native.programs import BANKS, LOCAL, ROW, Program, letter_of, rows
from tests.machine.lift.programs import LEFT_OPEN

_GUARD_LOST = re.compile(r"set\.")
"""ptxas loses part of their guard: docs/ptxas.md."""
_OTHER = re.compile(
    r"testp"  # what its register held before is lost: docs/ptxas.md
    r"|setp\.\w+\.and\.ftz"  # that a branch forgets: docs/ptxas.md
    r"|fns|sh[lr]\.\w16"  # of the least offset, and of constants above 16 bits: docs/ptxas.md
    r"|div\.full"  # last bits
    r"|(rcp|div|sqrt)\.r[zmp]\.ftz"  # whether what rounds up to the least normal number is flushed
    r"|slct\.\w+\.f32"  # of an absolute value that is no number: docs/ptxas.md
    r"|copysign|.*(f16|f32x2|tf32|xorsign)"  # the payload of a NaN, which what comes next may take for a number
    r"|lop3\.(and|or)"  # without the predicate, which chance leaves out, ptxas has no such form
    r"|(mul|add|sub|mad|fma)\.(ftz\.)?(sat\.)?f(32|64)$"  # they may be contracted
)


class AloneProgram(Program):
    """Has no races, and no form of which PTX leaves the result open, or which ptxas is known to get wrong."""

    def takes(self, form: RowForm, mostly: float = 1) -> bool:
        return (
            super().takes(form, 0)
            and not LEFT_OPEN.match(form.name)
            and not _OTHER.match(form.name)
        )

    def guarded(self, text: str) -> str:
        return f"{text};" if _GUARD_LOST.match(text) else super().guarded(text)

    def memory(self, *, stray: bool = False) -> str:
        """Return a load from local memory or a store there, but of floating-point numbers."""
        T = self.any_of("u8", "s16", "u32", "s32", "b32", "u64", "s64")
        size = int(T[1:]) // 8
        data, at = self.some(letter_of(T), 1)[0], size * self.draw.randrange(LOCAL // size)
        if self.draw.random() < 0.5:
            return f"ld.local.{T} {data}, [own_l+{at}]"
        return f"st.local.{T} [own_l+{at}], {data}"

    def together(self) -> str:
        return "bar.warp.sync -1;"

    def barrier(self) -> str:
        return "bar.sync 0;"


def differences(programs: Sequence[Program]) -> dict[Program, list[str] | Unsupported]:
    """Return what both engines leave otherwise of each program, or why its machine code does not run.

    One NaN is as good as another. Those of a target are one module: to assemble and to disassemble it takes
    hardly longer than one of them.
    """
    told: dict[Program, list[str] | Unsupported] = {}
    for target, own in groupby(sorted(programs, key=_target), _target):
        several = list(own)
        text = "".join([several[0].head, *(program.kernel for program in several)])
        ptx, sass = (
            open_device("emulator", arch=target, engine=engine).load(text)
            for engine in ("ptx", "sass")
        )
        for program in several:
            try:
                told[program] = list(_compared(program, _left(ptx, program), _left(sass, program)))
            except Unsupported as error:
                told[program] = error
    return told


def _target(program: Program) -> str:
    return program.target.name


def _left(module: Module, program: Program) -> Array:
    """Return the registers of all threads at the end."""
    data = module.device.upload(rows(program))
    module.kernel(program.name).launch(program.grid, program.block, [data])
    return data.numpy()[: program.grid * program.block * ROW.itemsize].view(ROW)


def _compared(program: Program, *left: Array) -> Iterator[str]:
    for bank in BANKS:
        a, b = (each[bank] for each in left)
        differ = a != b
        if bank in "fg":
            a, b = (each.view(f"f{each.dtype.itemsize}") for each in (a, b))
            differ &= ~(np.isnan(a) & np.isnan(b))
        for thread, number in np.argwhere(differ)[:1].tolist():
            where = f"{bank}{number} of thread {thread}"
            yield f"{where}: {a[thread, number]!r} is {b[thread, number]!r}\n{program.text}"
