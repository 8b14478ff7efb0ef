"""One operand of an instruction: what the ISA calls it, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ptxlab.matrix.fragment import FragmentLayout

Role = Literal["result", "source", "constant", "address", "tensor memory"]


@dataclass(frozen=True, slots=True)
class SignatureOperand:
    """One operand: what the ISA calls it, and what it takes.

    Of registers, ``count`` of ``type`` each, a predicate among them; of constants, so many in braces if
    more than one, for which ``value`` stands in an example. An address is of shared memory, or lies in
    a register and is one of Tensor Memory. ``layout`` says which lane holds which element, None where
    an operand is no matrix or several.
    """

    name: str
    role: Role
    meaning: str
    count: int = 1
    type: str = "b32"
    layout: FragmentLayout | None = None
    braces: bool = True
    value: str = "0"

    @property
    def registers(self) -> tuple[str, ...]:
        """Names for its registers, ``d0``, ``d1``, ...; none of constants and of shared addresses."""
        if self.role in ("constant", "address"):
            return ()
        prefix = self.name.replace("-", "_")
        return tuple(f"{prefix}{i}" for i in range(self.count))


_OWN_REGISTER_TYPES = ("f32", "f64", "s32")


def fragment(name: str, role: Role, layout: FragmentLayout) -> SignatureOperand:
    """Return the operand that is the registers of a fragment."""
    size = f"{layout.rows} x {layout.cols} of {layout.dtype}"
    several = f"{layout.matrices} matrices of " if layout.matrices > 1 else ""
    kind = layout.dtype if layout.dtype in _OWN_REGISTER_TYPES else f"b{layout.register_bits}"
    return SignatureOperand(name, role, several + size, layout.registers_per_lane, kind, layout)


def register(name: str, meaning: str, kind: str = "b32") -> SignatureOperand:
    """Return the operand that is one register, or predicate, without braces."""
    return SignatureOperand(name, "source", meaning, type=kind, braces=False)


def descriptor(name: str, meaning: str) -> SignatureOperand:
    """Return the operand that is a matrix descriptor."""
    return register(f"{name}-desc", f"matrix descriptor of {meaning}", "b64")


def constant(name: str, meaning: str, value: str = "0") -> SignatureOperand:
    """Return the operand that is a number, for which ``value`` stands in an example."""
    return SignatureOperand(name, "constant", meaning, value=value)


def address(meaning: str) -> SignatureOperand:
    """Return the operand that is an address of shared memory."""
    return SignatureOperand("p", "address", meaning)


def tensor_memory(name: str, meaning: str) -> SignatureOperand:
    """Return the operand that is an address of Tensor Memory."""
    return SignatureOperand(name, "tensor memory", f"Tensor Memory address of {meaning}")
