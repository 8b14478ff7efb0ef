"""Refusing, before anything runs, what is not emulated and what the target or version does not have."""

from __future__ import annotations

from ptxlab.emulator.context import Context
from ptxlab.emulator.refused import reason
from ptxlab.errors import PtxSyntaxError, Unsupported
from ptxlab.isa import legality


def require(context: Context, version: tuple[int, int]) -> None:
    """Check the instruction in hand by the rules of ``isa.legality``; ``version`` is the module's.

    Raises Unsupported where the emulator refuses its family or the target lacks it, PtxSyntaxError
    where the version is too old.
    """
    instruction = context.instruction
    why = reason(instruction.name)
    if why is not None:
        context.refuse(instruction.name, hint=why)
    sources = max(len(instruction.operands) - 1, 0)
    needed = legality.needs(instruction.opcode, instruction.modifiers, sources)
    require_target(context, needed.missing(context.target))
    if version < needed.ptx:
        major, minor = needed.ptx
        raise PtxSyntaxError(
            f"{instruction.name} is newer than the module's .version {version[0]}.{version[1]}",
            location=context.location(),
            hint=f"write .version {major}.{minor} or newer",
        )


def require_target(context: Context, missing: tuple[str, ...]) -> None:
    """Refuse the instruction in hand if it needs one of ``missing``, targets the chosen one is not."""
    if not missing:
        return
    known = " or ".join(f"{name}{_reach(name)}" for name in missing)
    raise Unsupported(
        f"{context.instruction.name} does not exist on {context.target.name}",
        location=context.location(),
        hint=f"it needs {known}",
    )


def _reach(name: str) -> str:
    """Say how far a target's instructions reach: one chip, its family, or all newer ones."""
    if name.endswith("a"):
        return ""
    return " (the a targets of its family)" if name.endswith("f") else " or newer"
