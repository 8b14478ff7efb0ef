"""Kernels around a matrix instruction, generated from its operands: to look at, assemble, run.

Each warp, or warpgroup, is a CTA. It reads a record, does what the kernel is about, and writes a record. Records are
64-bit words, [CTAs, threads, words]: of every thread one word a register, then, where the kernel uses
shared memory, the thread's equal share of it, before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol, get_args

from ptxlab.isa.legality import Version
from ptxlab.isa.targets import WARP, ptx_since
from ptxlab.matrix.form import Form, Role, SignatureOperand

KERNEL = "probe"
OLDEST_PTX = (9, 0)
"""A ``.version`` that knows nearly every target; one of these and an instruction may need a later one."""
WORD_BYTES = 8
VECTOR_BYTES = 16
ALIGNMENT = 1024
"""Shared memory starts at a multiple of this, after which all swizzles repeat."""
SHARE_BYTES = WARP * VECTOR_BYTES
"""Shared memory comes in multiples of this: every lane copies whole vectors."""

BEFORE = {"wgmma": ("wgmma.fence.sync.aligned;",), "wgmma.sp": ("wgmma.fence.sync.aligned;",)}
_COMPLETED = ("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;")
AFTER = {
    "wgmma": _COMPLETED,
    "wgmma.sp": _COMPLETED,
    "tcgen05.ld": ("tcgen05.wait::ld.sync.aligned;",),
    "tcgen05.ld.red": ("tcgen05.wait::ld.sync.aligned;",),
    "tcgen05.st": ("tcgen05.wait::st.sync.aligned;",),
}
"""What belongs before and after an instruction of a family so that its registers may be used."""

TypedRegister = tuple[str, str]
"""A register's name and PTX type."""


@dataclass(frozen=True, slots=True)
class KernelStep:
    """Lines of PTX, and the registers that are written to the record after them."""

    lines: tuple[str, ...]
    results: tuple[TypedRegister, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """What a kernel does between its records.

    ``registers`` are all it uses, ``sources`` those that come from the record. With ``shared_bytes``
    it has as much shared memory, which begins at the address in register ``base``, and unless it is only
    ``read`` is in the record that is written. ``alone`` says that there is one warp.
    """

    registers: tuple[TypedRegister, ...]
    sources: tuple[TypedRegister, ...]
    steps: tuple[KernelStep, ...]
    shared_bytes: int = 0
    alone: bool = False
    threads: int = WARP
    read: bool = False

    @property
    def results(self) -> tuple[TypedRegister, ...]:
        return tuple(register for step in self.steps for register in step.results)

    def kernel(self, name: str) -> str:
        """Return the kernel, which takes the addresses of the records it reads and writes."""
        share = self.shared_bytes // self.threads
        given = WORD_BYTES * len(self.sources) + share
        wanted = WORD_BYTES * len(self.results) + (0 if self.read else share)
        lines = [
            *(f".reg .{kind} {register};" for register, kind in self.registers),
            ".reg .b32 lane, thread, truth;",
            ".reg .b64 from, to;",
            "mov.u32 lane, %tid.x;",
            "mov.u32 thread, 0;" if self.alone else "mov.u32 thread, %ctaid.x;",
            f"mad.lo.u32 thread, thread, {self.threads}, lane;",
            "ld.param.u64 from, [in];",
            "ld.param.u64 to, [out];",
            f"mad.wide.u32 from, thread, {given}, from;",
            f"mad.wide.u32 to, thread, {wanted}, to;",
            *self._load(),
            *(self._fill() if share else ()),
            *self._work(),
            *(self._drain() if share and not self.read else ()),
            "ret;",
        ]
        head = f".visible .entry {name}(.param .u64 in, .param .u64 out)"
        return "\n".join([head, "{", *(f"    {line}" for line in lines), "}"])

    def _load(self) -> Iterator[str]:
        for i, (register, kind) in enumerate(self.sources):
            held, into = ("b32", "truth") if kind == "pred" else (kind, register)
            yield f"ld.global.{held} {into}, [from+{WORD_BYTES * i}];"
            if kind == "pred":
                yield f"setp.ne.b32 {register}, truth, 0;"

    def _work(self) -> Iterator[str]:
        slots = count()
        for step in self.steps:
            yield from step.lines
            for register, kind in step.results:
                yield f"st.global.{kind} [to+{WORD_BYTES * next(slots)}], {register};"

    def _fill(self) -> Iterator[str]:
        share = self.shared_bytes // self.threads
        yield f".shared .align {ALIGNMENT} .b8 tile[{self.shared_bytes}];"
        yield ".reg .b32 base, own, v0, v1, v2, v3;"
        yield "mov.u32 base, tile;"
        yield f"mad.lo.u32 own, lane, {share}, base;"
        for at in range(0, share, VECTOR_BYTES):
            first = WORD_BYTES * len(self.sources) + at
            for i in range(4):
                yield f"ld.global.b32 v{i}, [from+{first + 4 * i}];"
            yield f"st.shared.v4.b32 [own+{at}], {{v0, v1, v2, v3}};"
        yield "bar.sync 0;"

    def _drain(self) -> Iterator[str]:
        yield "bar.sync 0;"
        for at in range(0, self.shared_bytes // self.threads, VECTOR_BYTES):
            first = WORD_BYTES * len(self.results) + at
            yield f"ld.shared.v4.b32 {{v0, v1, v2, v3}}, [own+{at}];"
            for i in range(4):
                yield f"st.global.b32 [to+{first + 4 * i}], v{i};"


def statement(form: Form, constants: Sequence[int] = ()) -> str:
    """Return the instruction with its operands, ``mma... {d0, d1}, {a0}, {b0}, {c0, c1};``.

    Its constants are ``constants``, in order, and then what the operands have by default.
    """
    rest = iter(constants)
    operands = ", ".join(_text(operand, rest) for operand in form.signature)
    return f"{form.name} {operands}".rstrip() + ";"


def body(form: Form, choices: Sequence[Sequence[int]] = ((),)) -> Body:
    """Return what runs the instruction once for each of the ``choices`` of its constants.

    The operands that are registers come from the record. An address of shared memory is each lane's
    own, the first of the record, and counts from the first byte there is.
    """
    sources, results = registers(form, "source"), registers(form, "result")
    addressed = any(operand.role == "address" for operand in form.signature)
    if addressed:
        sources = (("p", "b32"), *sources)
    before = ("add.u32 p, p, base;",) * addressed
    steps = (KernelStep((*before, statement(form, chosen)), results) for chosen in choices)
    return Body((*sources, *results), sources, tuple(steps), SHARE_BYTES * addressed)


def registers(form: Form, *roles: Role) -> tuple[TypedRegister, ...]:
    """Return the registers of the operands in these roles, in the order PTX writes them."""
    operands = [operand for operand in form.signature if operand.role in roles]
    return tuple((register, o.type) for o in operands for register in o.registers)


def programs(forms: Sequence[Form], target: str) -> str:
    """Return the PTX of one kernel each, ``probe0`` and so on, for a warp that runs the instruction once."""
    return module([(form, _alone(form)) for form in forms], target)


def _alone(form: Form) -> Body:
    sources = registers(form, "source", "tensor memory")
    results = registers(form, "result")
    around = BEFORE.get(form.family, ()), AFTER.get(form.family, ())
    step = KernelStep((*_tile(form), *around[0], statement(form), *around[1]), results)
    return Body((*sources, *results), sources, (step,), alone=True)


class KernelBody(Protocol):
    """What makes a kernel of some ``threads`` that reads a record and writes one."""

    @property
    def threads(self) -> int: ...

    @property
    def shared_bytes(self) -> int: ...

    @property
    def sources(self) -> tuple[TypedRegister, ...]: ...

    @property
    def results(self) -> tuple[TypedRegister, ...]: ...

    def kernel(self, name: str) -> str: ...


def module(kernels: Sequence[tuple[Form, KernelBody]], target: str) -> str:
    """Return the PTX of one kernel each, ``probe0`` and so on."""
    texts = (body.kernel(f"{KERNEL}{i}") for i, (_, body) in enumerate(kernels))
    return "\n".join([*_header(target, [form for form, _ in kernels]), *texts]) + "\n"


def collection(forms: Sequence[Form], target: str, version: Version | None = None) -> str:
    """Return the PTX of one kernel each, ``probe0`` and so on, that hold nothing else.

    ``version`` is the ``.version``; without it, one that knows them all.
    """
    lines = _header(target, forms, version)
    for number, form in enumerate(forms):
        lines += [f".visible .entry {KERNEL}{number}()", "{"]
        declared = [
            f".reg .{kind} {register};" for register, kind in registers(form, *get_args(Role))
        ]
        lines += [f"    {line}" for line in (*declared, *_tile(form), statement(form))]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _tile(form: Form) -> tuple[str, ...]:
    """Return what makes an address operand that of the first byte of shared memory."""
    if not any(operand.role == "address" for operand in form.signature):
        return ()
    return ".shared .align 128 .b8 tile[4096];", ".reg .b32 p;", "mov.u32 p, tile;"


def _header(target: str, forms: Sequence[Form], version: Version | None = None) -> list[str]:
    """Return the lines a module for ``target`` begins with that has all ``forms``."""
    major, minor = version or max(
        [OLDEST_PTX, ptx_since(target) or OLDEST_PTX, *(form.minimum_ptx for form in forms)]
    )
    return [f".version {major}.{minor}", f".target {target}", ".address_size 64"]


def _text(operand: SignatureOperand, constants: Iterator[int]) -> str:
    if operand.role == "address":
        return f"[{operand.name}]"
    if operand.role == "tensor memory":
        return f"[{operand.registers[0]}]"
    parts = operand.registers or tuple(
        str(next(constants, operand.value)) for _ in range(operand.count)
    )
    several = operand.registers or operand.count > 1
    return f"{{{', '.join(parts)}}}" if operand.braces and several else parts[0]
