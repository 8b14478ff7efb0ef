"""What every form of a matrix instruction has, whatever its family, and what its operands are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ptxlab.isa.legality import Version
from ptxlab.isa.targets import TARGETS, Target
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.pictured import Pictured

Role = Literal["result", "source", "constant", "address", "tensor memory"]

Fidelity = Literal["exact", "model", "ordering", "unverified"]
"""How near the emulator comes to a GPU: to the bit; as near as the PTX ISA bounds the error; there is
nothing to compute; or by the nearest rule that is known, where no public measurement settles the bits."""

SM_10X_TO_12X = ("sm_100f", "sm_110f", "sm_120f")
SM_12X = ("sm_120f",)
SM_12X_ONLY = ("sm_120a", "sm_121a")

WHERE_A_LIES = {"rs": "registers", "ss": "shared memory", "ts": "Tensor Memory"}
"""What a variant says."""

_SHORT = 4
"""Fewer numbers are written one by one."""


@dataclass(frozen=True, slots=True)
class SharedOperand:
    """An operand that lies in shared memory, where a matrix descriptor says.

    ``rows`` x ``cols`` is the matrix as mathematics writes it, of elements of ``bits``. ``majors``
    are the directions in which its elements may be contiguous, ``k`` or ``mn``.
    """

    operand: str
    rows: int
    cols: int
    dtype: str
    bits: int
    majors: tuple[str, ...] = ("k",)

    @property
    def matrices(self) -> int:
        """How many independent matrices it is."""
        return 1


@dataclass(frozen=True, slots=True)
class SignatureOperand:
    """One operand: what the ISA calls it, and what it takes.

    Of registers, ``count`` of ``type`` each, a predicate among them, or any that can hold a value of the
    type ``holds`` where it says one (``UNTYPED``: those of plain bits); of constants, so many in braces if more than one, each among
    its ``allowed`` ones or a register, and ``value`` stands for it in an example. One alone that is not
    ``fixed`` may be a register too. An address is of shared
    memory, or lies in a register and is one of Tensor Memory. ``layout`` says which lane holds which
    element, None where an operand is no matrix or several.
    """

    name: str
    role: Role
    meaning: str
    count: int = 1
    type: str = "b32"
    layout: FragmentLayout | None = None
    braces: bool = True
    value: str = "0"
    holds: str = ""
    allowed: tuple[range, ...] = ()
    fixed: bool = True

    @property
    def registers(self) -> tuple[str, ...]:
        """Names for its registers, ``d0``, ``d1``, ...; none of constants and of shared addresses."""
        if self.role in ("constant", "address"):
            return ()
        prefix = self.name.replace("-", "_")
        return tuple(f"{prefix}{i}" for i in range(self.count))


_OWN_REGISTER_TYPES = ("f32", "f64", "s32")
UNTYPED = "untyped"
"""What only registers of plain bits hold."""

_HELD = {"f16": "f16x2", "bf16": UNTYPED, "tf32": UNTYPED}


def fragment(name: str, role: Role, layout: FragmentLayout, holds: str = "") -> SignatureOperand:
    """Return the operand that is the registers of a fragment."""
    size = f"{layout.rows} x {layout.cols} of {layout.dtype}"
    several = f"{layout.matrices} matrices of " if layout.matrices > 1 else ""
    kind = layout.dtype if layout.dtype in _OWN_REGISTER_TYPES else f"b{layout.register_bits}"
    return SignatureOperand(
        name,
        role,
        several + size,
        layout.registers_per_lane,
        kind,
        layout,
        holds=holds or _HELD.get(layout.dtype, ""),
    )


def register(name: str, meaning: str, kind: str = "b32") -> SignatureOperand:
    """Return the operand that is one register, or predicate, without braces."""
    return SignatureOperand(name, "source", meaning, type=kind, braces=False)


def descriptor(name: str, meaning: str) -> SignatureOperand:
    """Return the operand that is a matrix descriptor."""
    return SignatureOperand(
        f"{name}-desc",
        "source",
        f"matrix descriptor of {meaning}",
        type="b64",
        braces=False,
        holds="u64",
    )


def constant(
    name: str, meaning: str, value: str = "0", allowed: tuple[range, ...] = ()
) -> SignatureOperand:
    """Return the operand that is a number, for which ``value`` stands in an example."""
    return SignatureOperand(name, "constant", meaning, value=value, allowed=allowed)


def address(meaning: str) -> SignatureOperand:
    """Return the operand that is an address of shared memory."""
    return SignatureOperand("p", "address", meaning)


def tensor_memory(name: str, meaning: str) -> SignatureOperand:
    """Return the operand that is an address of Tensor Memory."""
    return SignatureOperand(name, "tensor memory", f"Tensor Memory address of {meaning}")


@dataclass(frozen=True, slots=True)
class Form(Pictured, ABC):
    """One form of a matrix instruction: its full ``name`` within its ``family``, what it needs, and
    its operands.

    ``minimum_targets`` are the lowest targets that run it, one a family; ``minimum_ptx`` is what
    ``.version`` must be at least. ``section`` is the title of the PTX ISA's section on it, or on its
    fragments. ``operands`` are those in registers whose layout is known, ``shared`` those that a matrix
    descriptor describes. ``variant`` tells forms of one name apart, by where A lies.
    """

    family: str
    name: str
    minimum_targets: tuple[str, ...]
    minimum_ptx: Version
    section: str = field(repr=False)
    operands: tuple[FragmentLayout, ...] = field(default=(), repr=False)
    shared: tuple[SharedOperand, ...] = field(default=(), repr=False)
    variant: str = ""

    @property
    @abstractmethod
    def signature(self) -> tuple[SignatureOperand, ...]:
        """All operands, in the order PTX writes them."""

    @property
    def optional(self) -> tuple[SignatureOperand, ...]:
        """What may be written behind those."""
        return ()

    @property
    def fidelity(self) -> Fidelity:
        """How near the emulator comes to a GPU whose tensor cores are measured."""
        return "exact"

    @property
    def rounds(self) -> bool:
        """Whether its bits depend on how the tensor cores of a chip round sums."""
        return False

    def fidelity_on(self, *targets: Target) -> Fidelity:
        """How near the emulator comes to GPUs that are ``targets``: to the least known of them."""
        known = all(target.measured for target in targets)
        return self.fidelity if known or not self.rounds else "unverified"

    def written(self, counts: Sequence[int]) -> tuple[SignatureOperand, ...]:
        """Return what the operands of an instruction are that has so many, each of ``counts`` elements."""
        more = self.optional if len(counts) > len(self.signature) else ()
        return (*self.signature, *more)

    @property
    def key(self) -> str:
        """The name, and the variant where one name has several: what tells it from all others."""
        return f"{self.name}.{self.variant}" if self.variant else self.name

    @property
    def line(self) -> str:
        """The name, with N for what alone sets it apart from others of its line of a table."""
        return self.name

    @property
    def flops(self) -> int | None:
        """The multiplications and additions; None of what multiplies nothing."""
        return None

    @property
    def minimum_target(self) -> str:
        """The lowest targets, as a person would say them: ``sm_80``, or ``sm_100f or sm_120f``."""
        return alternatives(self.minimum_targets)

    @property
    def version(self) -> str:
        """The first PTX version that has it, as after ``.version``: ``8.0``."""
        return "{}.{}".format(*self.minimum_ptx)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the known targets that run it."""
        return tuple(name for name, target in TARGETS.items() if self.runs_on(target))

    def runs_on(self, target: Target) -> bool:
        """Say whether ``target`` has the instruction."""
        return any(target.runs(needed) for needed in self.minimum_targets)

    @property
    def layout_open(self) -> bool:
        """Whether PTX leaves the layouts open, as those of ``wmma``: these are ptxlab's own."""
        return self.family == "wmma"

    def operand(self, name: str) -> FragmentLayout:
        """Return the layout of operand A, B, C, D or R. Raises KeyError for one it has not."""
        for layout in self.operands:
            if layout.operand == name.upper():
                return layout
        raise KeyError(f"{self.name} has no operand {name} in registers")


def alternatives(targets: tuple[str, ...]) -> str:
    """Write ``sm_80``, or ``sm_100f, sm_110f or sm_120f``."""
    *first, last = targets
    return f"{', '.join(first)} or {last}" if first else last


@dataclass(frozen=True, slots=True)
class Shapes:
    """The m and n an instruction descriptor may name, and the k that follows from the kind."""

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: int

    def __str__(self) -> str:
        ms = ", ".join(map(str, self.m))
        return f"m {ms}; n {in_steps(self.n)}; k {self.k}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncInstruction(Form):
    """One instruction whose operands are addresses and descriptors: its operands in PTX's order, and what it does in a few words.

    ``shapes`` are those of a multiplication, empty for all else.
    """

    meaning: str
    signature: tuple[SignatureOperand, ...] = ()
    shapes: tuple[Shapes, ...] = ()


def in_steps(numbers: tuple[int, ...]) -> str:
    """Write numbers whose last ones are in equal steps as ``8, 16, 32 to 256 in steps of 16``."""
    if len(numbers) < _SHORT:
        return ", ".join(map(str, numbers))
    step = numbers[-1] - numbers[-2]
    first = len(numbers) - 1
    while first and numbers[first] - numbers[first - 1] == step:
        first -= 1
    if len(numbers) - first < _SHORT:
        return ", ".join(map(str, numbers))
    run = f"{numbers[first]} to {numbers[-1]} in steps of {step}"
    return ", ".join([*map(str, numbers[:first]), run])
