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


def descriptor(name: str, meaning: str) -> SignatureOperand:
    """Return the operand that is a matrix descriptor."""
    return SignatureOperand(
        f"{name}-desc", "source", f"matrix descriptor of {meaning}", 1, "b64", None, False
    )


def predicate(name: str, meaning: str) -> SignatureOperand:
    """Return an operand that is a predicate."""
    return SignatureOperand(name, "source", meaning, 1, "pred", None, False)


def tensor_memory(name: str, meaning: str) -> SignatureOperand:
    """Return an operand that is an address of Tensor Memory."""
    return SignatureOperand(name, "tensor memory", f"Tensor Memory address of {meaning}")
