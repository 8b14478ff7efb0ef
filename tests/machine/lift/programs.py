"""Programs of one form of an instruction after the other, each stored apart, and what both engines leave of them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ptxlab import open_device
from ptxlab.arrays import Array
from ptxlab.device.loading import load_assembled
from ptxlab.emulator.prepare.row import CARRY, RowForm
from ptxlab.errors import ToolchainError
from ptxlab.isa.targets import target_named
from ptxlab.machine.image import ModuleImage, read_image
from ptxlab.machine.lift import lift
from ptxlab.numbers.types import TYPES
from ptxlab.syntax.tree import PtxModule
from tests.emulator.native.programs import (
    BANKS,
    EDGES,
    HEAD,
    KERNEL,
    LOCAL,
    REGISTERS,
    ROW,
    VERSION,
    Program,
    by_opcode,
    letter_of,
)
from tests.emulator.native.programs import _moves as moves

BLOCK, SLOT = 64, 8
_TYPES = {"p": "u16", "f": "f32", "g": "f64", "h": "u16", "r": "u32", "d": "u64"}
_DECLARED = {"p": "pred", "f": "f32", "g": "f64", "h": "b16", "r": "b32", "d": "b64"}

LEFT_OPEN = re.compile(
    r"v(add|sub|absdiff|min|max|shl|shr|mad|set|avrg)"  # ptxas forms what is in between otherwise
    r"|(bfe|bfi)\.\w64"  # positions above 255: ptxas does not cut them to eight bits
    r"|(add|sub|mad)c\b"  # of a carry that nothing wrote
    r"|mapa|getctarank|createpolicy|cvt\.pack|activemask|elect"
    r"|.*\.approx|div\.full|sin|cos|ex2|lg2|tanh"  # last bits are not the same in every order
    r"|fns"  # from a bit above the last, or so many as have no sign, it finds anything
    r"|cvt\.rp\.ftz.*f16.*f32"  # ptxas drops .ftz
)
"""Where PTX and ptxas may differ, and why."""


@cache
def forms_of(arch: str) -> list[RowForm]:
    """Return the forms of a target that both engines must agree on, in an order by chance."""
    target = target_named(arch)
    forms = [
        form
        for own in by_opcode()
        for form in own
        if not form.needs.missing(target)
        and form.needs.version(target) <= VERSION
        and not LEFT_OPEN.match(form.name)
    ]
    random.Random(1).shuffle(forms)
    return forms


@dataclass(frozen=True)
class Slot:
    """Where a program stores a result: ``kind`` is its PTX type."""

    at: int
    kind: str
    form: RowForm
    line: str


class FormsProgram(Program):
    """Runs forms on the same random registers, one after the other."""

    def __init__(self, seed: int, forms: Sequence[RowForm], arch: str) -> None:
        self.seed, self.draw, self.target = seed, random.Random(seed), target_named(arch)
        self.block, self.grid, self.compiled = BLOCK, 1, set()
        self.slots: list[Slot] = []
        self.body = [self._line(number, form) for number, form in enumerate(forms)]
        self.size = SLOT * len(self.slots)
        self.module, self.image = self._assembled()

    def _line(self, number: int, form: RowForm) -> str:
        letters = [letter_of(T) for T in form.results if T != CARRY]
        names = [f"x{number}_{n}" for n in range(len(letters))]
        given = [
            self.operand(kind, T)
            for kind, T in zip(form.row.sources, form.operands, strict=True)
            if T != CARRY
        ]
        computed = f"{form.name} {', '.join(['|'.join(names), *given])};"
        declared = [
            f".reg .{_DECLARED[letter]} {name};"
            for letter, name in zip(letters, names, strict=True)
        ]
        stored = []
        for letter, name in zip(letters, names, strict=True):
            at = SLOT * len(self.slots)
            if letter == "p":
                stored.append(f"selp.u16 short, 1, 0, {name};")
            held = "short" if letter == "p" else name
            stored.append(f"st.global.{_TYPES[letter]} [result+{at}], {held};")
            self.slots.append(Slot(at, _TYPES[letter], form, computed))
        return " ".join([*declared, computed, *stored])

    def _assembled(self) -> tuple[PtxModule, ModuleImage]:
        """Assemble the program without the lines that ptxas takes no constants in."""
        lines = list(self.body)
        while True:
            head = [".reg .b64 result;", f"mad.wide.u32 result, tid, {self.size}, raced;"]
            body = "\n".join([*head, *moves("ld"), *lines])
            self.text = HEAD.format(version=VERSION, target=self.target.name) + KERNEL.format(
                name="k", n=REGISTERS, local=LOCAL, shared=512, items=16, block=BLOCK,
                row=ROW.itemsize, rows=BLOCK * ROW.itemsize, body=body,
            )  # fmt: skip
            try:
                module, cubin = load_assembled(self.text, self.target)
                return module, read_image(cubin.image, cubin.arch)
            except ToolchainError as error:
                line = error.location.line if error.location else 0
                lines[lines.index(self.text.splitlines()[line - 1])] = "// none"

    def lifted(self) -> PtxModule:
        return lift(self.image, ["k"], "k.sass", self.module)

    def results(self, program: PtxModule | str) -> list[tuple[Slot, Array]]:
        """Run a program; return what it stored for every thread."""
        device = open_device("emulator", arch=self.target.name)
        buffer = device.upload(self._rows())
        device.load(program).kernel("k").launch(1, BLOCK, [buffer])
        stored = buffer.numpy()[BLOCK * ROW.itemsize :].reshape(BLOCK, self.size)
        results = []
        for slot in self.slots:
            dtype = np.dtype(f"{slot.kind[0]}{int(slot.kind[1:]) // 8}")
            own = stored[:, slot.at : slot.at + dtype.itemsize].copy()
            results.append((slot, own.view(dtype).reshape(-1)))
        return results

    def _rows(self) -> Array:
        choose, rows = np.random.default_rng(self.seed), np.zeros(BLOCK, ROW)
        for bank, T in BANKS.items():
            shape, bits = (BLOCK, REGISTERS), TYPES[T].bits
            words = choose.integers(0, (1 << bits) - 1, shape, np.uint64, endpoint=True)
            words >>= choose.choice(np.array([0, 0, bits // 2, bits - 3], np.uint64), shape)
            edge = choose.choice(np.array(EDGES[T], np.uint64), shape)
            words = np.where(choose.random(shape) < 0.4, edge, words)
            rows[bank] = words & 1 if bank == "p" else words
        return np.concatenate([rows.view(np.uint8), np.zeros(BLOCK * self.size, np.uint8)])


def differences(program: FormsProgram, lifted: PtxModule) -> list[str]:
    """Return the lines whose results are not the same bits on both engines; NaN is one as good as another."""
    wanted, actual = program.results(program.text), program.results(lifted)
    told = []
    for (slot, theirs), (_, ours) in zip(wanted, actual, strict=True):
        differ = (theirs != ours) & ~(_is_nan(slot, theirs) & _is_nan(slot, ours))
        if differ.any():
            lane = int(differ.argmax())
            told.append(f"{slot.line} lane {lane}: {theirs[lane]!r} is {ours[lane]!r}")
    return told


def _is_nan(slot: Slot, words: Array) -> Array:
    """Say which results are NaN, or have one in a half, of a form that makes numbers."""
    kinds = [T for T in slot.form.results if T != CARRY]
    if slot.kind in ("f32", "f64"):
        return np.isnan(words)
    if not any("f16" in T or T in ("b16", "b32") for T in kinds) and "f16" not in slot.form.name:
        return np.zeros(words.shape, bool)
    halves = words.view(np.uint16).reshape(words.shape[0], -1)
    exponent = np.uint16(0x7F80 if "bf16" in slot.form.name else 0x7C00)
    return np.asarray(((halves & np.uint16(0x7FFF)) > exponent).any(axis=1))


def programs(arch: str, first: int, count: int, each: int = 24) -> Iterable[FormsProgram]:
    """Return programs of the forms of a target, some in each."""
    every = forms_of(arch)
    for number in range(first, first + count):
        own = every[number * each : (number + 1) * each]
        if own:
            yield FormsProgram(number, own, arch)
