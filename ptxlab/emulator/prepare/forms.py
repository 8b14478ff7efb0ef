"""From instructions to the forms they are: which there are, which one is meant, and why it is none.

What is not emulated, and what the target or the version does not have, is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.effects import NO_EFFECTS, Effects
from ptxlab.emulator.prepare.row import ROWS, ModifierSlot, Row, RowForm, UnknownForm
from ptxlab.errors import PtxSyntaxError, Unsupported, did_you_mean
from ptxlab.isa.legality import Needs
from ptxlab.isa.targets import target_named
from ptxlab.matrix.form import Form
from ptxlab.matrix.naming import named
from ptxlab.numbers.types import is_type
from ptxlab.syntax.tree import Address, Instruction, Node

_TEXTURE = "textures and surfaces are not emulated"
_STACK = "the stack of a thread cannot be moved; a .local array stands still"
_FABRIC = "one GPU is emulated, and no fabric between several"
_UNSAID = "what it does is not in the public text of the PTX ISA"
_REPORT = "what a copy reports to an mbarrier is not modelled"
_READ = "it signals that A was read, and products that are emulated read and write at once"
_TABLE = "where the table lies that B is looked up in, the PTX ISA says in figures alone"
_MAGNITUDE = "how numbers of 12 bits with a sign lie in 16 is not in the public text of the PTX ISA"
_OVERRIDDEN = "copies with tensor maps of which an instruction overrides parts are not modelled"

REFUSED: dict[str, str] = {
    "multimem": "one GPU is emulated, and no memory of several",
    "fabric": _FABRIC,
    "cp.async.bulk.wait_group.sync_restrict::proxy::async": _UNSAID,
    "fence.alias": _UNSAID,
    "tensormap.query": _UNSAID,
    "tex": _TEXTURE,
    "tld4": _TEXTURE,
    "txq": _TEXTURE,
    "suld": _TEXTURE,
    "sust": _TEXTURE,
    "sured": _TEXTURE,
    "suq": _TEXTURE,
    "istypep": _TEXTURE,
    "alloca": _STACK,
    "stacksave": _STACK,
    "stackrestore": _STACK,
}
"""Why families of instructions are refused, by the dotted beginning of their names.

Anything else that is not known is refused as well, only without a reason.
"""


_REFUSED_MODIFIERS = {
    **dict.fromkeys(("generic::fabric", "fabric::generic", "fabric::fabric"), _FABRIC),
    **dict.fromkeys(
        ("override::global_address", "override::global_dim", "override::global_dim_stride"),
        _OVERRIDDEN,
    ),
    "decompress::lut": _TABLE,
    "kind::ti16": _MAGNITUDE,
    "mbarrier::report": _REPORT,
    "sync_restrict::shared::read::mma::a": _READ,
}
"""Why instructions with a modifier are refused, by its name or the first two parts of it."""


def refuse(name: str, why: str) -> None:
    """Refuse the instructions whose name begins so: some forms of an opcode that has others."""
    REFUSED[name] = why


@lru_cache(maxsize=4096)
def reason(name: str) -> str | None:
    """Return why an instruction is refused, by the longest beginning of its name that is known."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        why = REFUSED.get(".".join(parts[:count]))
        if why is not None:
            return why
    return None


def opcodes() -> tuple[str, ...]:
    """Return the opcodes that have forms from registers to registers."""
    return tuple(
        name for name, rows in ROWS.items() if any(row.compute or row.make for row in rows)
    )


def forms(opcode: str) -> tuple[RowForm, ...]:
    """Return every form of ``opcode`` from registers to registers, each once.

    Raises KeyError for a name unknown.
    """
    forms: dict[tuple[str, int], RowForm] = {}
    for made in ROWS[opcode]:
        if made.compute or made.make:
            for form in made.forms():
                forms.setdefault((form.name, form.sources), form)
    return tuple(forms.values())


@lru_cache(maxsize=4096)
def find(opcode: str, modifiers: tuple[str, ...], sources: int | None = None) -> RowForm:
    """Return the form of an instruction, by its number of source operands where that decides.

    Raises KeyError for an opcode without rows, UnknownForm for modifiers that no row has.
    """
    fitting = [
        RowForm(made, filled)
        for made in ROWS[opcode]
        if (filled := made.match(modifiers)) is not None
    ]
    if not fitting:
        raise UnknownForm(_why_not(ROWS[opcode], modifiers))
    return next((form for form in fitting if form.sources == sources), fitting[0])


def form_of(instruction: Instruction) -> RowForm:
    """Return the form of ``instruction``. Raises like ``find``."""
    sources = max(len(instruction.operands) - 1, 0)
    return find(instruction.opcode, instruction.modifiers, sources)


def effects_of(instruction: Instruction) -> Effects:
    """Return what an instruction does beside computing: nothing that is known of one that no row has."""
    try:
        return form_of(instruction).effects
    except (KeyError, UnknownForm):
        return NO_EFFECTS


def is_collective(instruction: Instruction) -> bool:
    """Say whether an instruction has lanes of a warp tell each other something."""
    try:
        return form_of(instruction).row.collective
    except (KeyError, UnknownForm):
        return False


def _why_not(rows: Sequence[Row], modifiers: Sequence[str]) -> str:
    """Say what is wrong with modifiers, by the rows that come nearest to them."""
    for name in modifiers:
        if not any(name in slot.choices for made in rows for slot in made.slots):
            unknown = f"modifier .{name} is not modelled"
            return f"does not take type .{name}" if is_type(name) else unknown
    misfits = [misfit(made, modifiers) for made in rows]
    least = min(map(_size, misfits))
    nearest = [misfit for misfit in misfits if _size(misfit) == least]
    left, missing, taken = nearest[0]
    if left:
        typed = is_type(left[0])
        beside = f" with .{'.'.join(taken)}" if taken else ""
        return f"does not take {'type ' if typed else ''}.{left[0]}{beside}"
    if missing:
        choices = dict.fromkeys(name for _, slots, _ in nearest for name in slots[0].choices)
        return f"needs {'one of ' if len(choices) > 1 else ''}.{', .'.join(choices)}"
    return f"takes its modifiers in another order: .{'.'.join(taken)}"


_Misfit = tuple[list[str], list[ModifierSlot], list[str]]


def _size(misfit: _Misfit) -> tuple[int, int]:
    left, missing, _ = misfit
    return len(left) + len(missing), len(left)


def misfit(made: Row, modifiers: Sequence[str]) -> _Misfit:
    """Return what a row does not take, which slots it then misses, and what it does take."""
    left, missing, taken = list(modifiers), [], []
    for slot in made.slots:
        name = next((name for name in left if name in slot.choices), None)
        if name is not None:
            left.remove(name)
            taken.append(name)
        elif "" not in slot.choices:
            missing.append(slot)
    return left, missing, taken


def _refuse_modifiers(context: Context) -> None:
    """Refuse the instruction in hand where a modifier of it is why."""
    instruction = context.instruction
    for modifier in instruction.modifiers:
        for known in (modifier, "::".join(modifier.split("::")[:2])):
            if known in _REFUSED_MODIFIERS:
                name = f"{instruction.name}: modifier .{modifier}"
                context.refuse(name, hint=_REFUSED_MODIFIERS[known])


def legal_form(context: Context) -> RowForm:
    """Return the form of the instruction in hand, which the target and the version have.

    Raises Unsupported where the emulator does not have it or the target lacks it, PtxSyntaxError
    where the version is too old.
    """
    instruction = context.instruction
    why = reason(instruction.name)
    if why is not None:
        context.refuse(instruction.name, hint=why)
    if instruction.opcode not in ROWS:
        hint = did_you_mean(instruction.opcode, ROWS)
        context.refuse(f"instruction {instruction.name}", hint=hint)
    try:
        form = form_of(instruction)
    except UnknownForm as unknown:
        _refuse_modifiers(context)
        context.refuse_form(unknown)
    if form.row.lifted and not context.module.lifted:
        context.refuse(instruction.name, hint="only machine code waits like that")
    if form.row.tabled and form.matrix is None:
        _refuse_modifiers(context)
        from ptxlab.matrix.catalog import nearest_names

        # The tables have all that ptxas takes, beside what is refused by name above.
        nearest = ", ".join(nearest_names(form.name))
        context.reject(f"ptxas takes no {form.name}", hint=f"the nearest are {nearest}")
    require(context, instruction.name, form.needs)
    return form


def matrix_form(context: Context, form: RowForm) -> Form:
    """Return what the tables call the instruction in hand: of two variants that where its A lies."""
    matrix, operands = form.matrix, context.instruction.operands
    if matrix is not None and matrix.variant:
        held = len(operands) > 1 and len(context.elements(operands[1])) > 1
        in_tensor_memory = len(operands) > 1 and isinstance(operands[1], Address)
        lies = "rs" if held else "ts" if in_tensor_memory else "ss"
        matrix = named(f"{form.name}.{lies}") or matrix
    assert matrix is not None
    return matrix


def require(context: Context, name: str, needed: Needs, node: Node | None = None) -> None:
    """Check that the target and the version have what needs that: the instruction in hand, or a ``node``.

    Raises Unsupported or PtxSyntaxError where they do not.
    """
    target = context.target
    missing = needed.missing(target)
    if missing:
        known = " or ".join(f"{other}{_reach(other)}" for other in missing)
        raise Unsupported(
            f"{name} does not exist on {target.name}",
            location=context.location(node),
            hint=f"it needs {known}",
        )
    written_for = target_named(context.module.targets[0])
    if absent := needed.missing(written_for):
        known = " or ".join(f"{other}{_reach(other)}" for other in absent)
        raise PtxSyntaxError(
            f"{name} is not in the module's .target {written_for.name}",
            location=context.location(node),
            hint=f"it needs {known}",
        )
    least = needed.version(written_for)
    if context.module.version < least:
        written = "{}.{}".format(*context.module.version)
        raise PtxSyntaxError(
            f"{name} is newer than the module's .version {written}",
            location=context.location(node),
            hint="write .version {}.{} or newer".format(*least),
        )


def _reach(name: str) -> str:
    """Say how far a target's instructions reach: one chip, its family, or all newer ones."""
    if name.endswith("a"):
        return ""
    return " (the a targets of its family)" if name.endswith("f") else " or newer"
