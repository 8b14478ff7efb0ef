"""Running one matrix instruction on the emulator: registers in, registers out, for many warps."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.isa.targets import TARGETS
from ptxlab.matrix.multiplication import MatrixInstruction

REGISTER = {"f32": "f32", "f64": "f64", "s32": "s32"}


def pytest_make_parametrize_id(val: object) -> str | None:
    return val.name if isinstance(val, MatrixInstruction) else None


class Program:
    """The PTX of one instruction: its statement, and the registers it takes and gives.

    ``more`` is the text of the operands after C; in it ``e``, ``sa`` and ``sb`` are registers.
    """

    def __init__(self, form: MatrixInstruction, more: str = "", name: str | None = None) -> None:
        self.form = form
        groups = {o: form.operand(o).registers_per_lane for o in "DABC"}
        text = ", ".join(
            "{" + ", ".join(f"{o.lower()}{i}" for i in range(count)) + "}"
            for o, count in groups.items()
        )
        if form.family == "wmma" or name is None:
            name = form.name
        self.statement = f"{name} {text}{more};"
        self.extra = [r for r in ("e", "sa", "sb") if re.search(rf"\b{r}\b", more)]

    @property
    def inputs(self) -> list[tuple[str, str]]:
        """Name and type of every register that goes in, in order."""
        return [
            (f"{o.lower()}{i}", self._type(o))
            for o in "ABC"
            for i in range(self.form.operand(o).registers_per_lane)
        ] + [(register, "b32") for register in self.extra]

    @property
    def outputs(self) -> list[tuple[str, str]]:
        """Name and type of every register of D."""
        count = self.form.operand("D").registers_per_lane
        return [(f"d{i}", self._type("D")) for i in range(count)]

    def _type(self, operand: str) -> str:
        return REGISTER.get(self.form.operand(operand).dtype, "b32")

    @property
    def declarations(self) -> str:
        """The ``.reg`` lines of all registers."""
        return "\n".join(f".reg .{kind} {name};" for name, kind in self.inputs + self.outputs)

    def kernel(self, target: str) -> str:
        """Return a module: each thread reads its record, 8 bytes a register, and writes D so."""
        loads = "\n".join(
            f"ld.global.{kind} {name}, [rd+{8 * i}];" for i, (name, kind) in enumerate(self.inputs)
        )
        stores = "\n".join(
            f"st.global.{kind} [rq+{8 * i}], {name};" for i, (name, kind) in enumerate(self.outputs)
        )
        return f"""
.version 9.4
.target {target}
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
{self.declarations}
.reg .b32 r<4>; .reg .b64 rd; .reg .b64 rq;
mov.u32 r0, %tid.x; mov.u32 r1, %ctaid.x; mov.u32 r2, %ntid.x;
mad.lo.u32 r0, r1, r2, r0;
ld.param.u64 rd, [in]; ld.param.u64 rq, [out];
mad.wide.u32 rd, r0, {8 * len(self.inputs)}, rd;
mad.wide.u32 rq, r0, {8 * len(self.outputs)}, rq;
{loads}
{self.statement}
{stores}
}}
"""


Execute = Callable[..., Array]


@pytest.fixture(scope="session")
def devices() -> Callable[[str], Device]:
    opened: dict[str, Device] = {}

    def get(arch: str) -> Device:
        if arch not in opened:
            opened[arch] = open_device("emulator", arch=arch)
        return opened[arch]

    return get


@pytest.fixture
def execute(devices: Callable[[str], Device]) -> Execute:
    """Return D's registers, [warps, 32, registers], of those of A, B, C and ``more``."""

    def run(
        form: MatrixInstruction,
        a: Array,
        b: Array,
        c: Array,
        *,
        arch: str,
        more: str = "",
        extra: tuple[Array, ...] = (),
        name: str | None = None,
    ) -> Array:
        program = Program(form, more, name)
        registers = [a, b, c, *(word[..., None] for word in extra)]
        record = np.concatenate([r.astype(np.uint64) for r in registers], axis=-1)
        warps = record.shape[0]
        device = devices(arch)
        kernel = device.load(program.kernel(arch)).kernel("k")
        count = form.operand("D").registers_per_lane
        with device.upload(record) as source, device.zeros((warps, 32, count), "u64") as out:
            block = 64 if warps % 2 == 0 else 32
            kernel.launch(32 * warps // block, block, [source, out])
            return out.numpy()

    return run


@pytest.fixture(scope="session")
def program() -> type[Program]:
    return Program


def least_target(form: MatrixInstruction) -> str:
    return next(name for name, target in TARGETS.items() if form.runs_on(target))


@pytest.fixture(scope="session")
def least() -> Callable[[MatrixInstruction], str]:
    """Return the lowest known target that runs an instruction."""
    return least_target
