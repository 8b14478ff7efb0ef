"""What is known of matrix instructions beyond the tables: who runs them, and what they compile to.

Nothing here is a list: the emulator and ptxas are asked. Hardware speaks through receipts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TypeVar

from ptxlab.cache import cached, source
from ptxlab.emulator import prepare
from ptxlab.emulator.prepare.forms import reason
from ptxlab.errors import PtxlabError, PtxSyntaxError, ToolchainError, Unsupported
from ptxlab.fragments import receipts
from ptxlab.fragments.probe_kernel import KERNEL, collection, programs
from ptxlab.isa.targets import TARGETS, Arithmetic
from ptxlab.machine.sass import sass
from ptxlab.matrix import catalog
from ptxlab.matrix.form import Fidelity, Form
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.matrix.rules import arithmetic
from ptxlab.syntax.parser import parse
from ptxlab.toolchain import link_ptx
from ptxlab.toolchain.wheels import ToolAbsent

Made = TypeVar("Made")

ROOMS = ("isa", "numbers", "layouts", "matrix", "tensormap", "syntax", "emulator", "fragments")
"""The rooms whose source says what the emulator runs."""


def emulated(forms: Iterable[Form]) -> frozenset[str]:
    """Return the names of the forms that the emulator runs, of all families that have some of ``forms``.

    Asking about a large family takes a second, so the answer is kept on disk until the source of the emulator
    changes.
    """
    families = dict.fromkeys(form.family for form in forms)
    return frozenset(name for family in families for name in _emulated_of(family))


@cache
def _emulated_of(family: str) -> tuple[str, ...]:
    def asked() -> bytes:
        of_family = [form for form in catalog.forms() if form.family == family]
        return "\n".join(sorted(run_by_emulator(of_family))).encode()

    return tuple(cached("emulated", [source(*ROOMS), family], asked).decode().splitlines())


def run_by_emulator(forms: Sequence[Form]) -> set[str]:
    """Return the names of those the emulator runs, by preparing a program of each.

    The first of each line of a table is asked about, on the newest known target that has it.
    """
    names: set[str] = set()
    lines: dict[tuple[str, str], list[Form]] = {}
    for form in forms:
        lines.setdefault((form.line, form.variant), []).append(form)
    by_target: dict[str, list[Form]] = {}
    for first, *_ in lines.values():
        if first.targets and not reason(first.name):
            by_target.setdefault(first.targets[-1], []).append(first)
    for target, group in by_target.items():

        def prepared(some: Sequence[Form], target: str = target) -> None:
            module = parse(collection(some, target), "<probes>")
            for entry in module.entries:
                prepare(module, TARGETS[target], entry.name)

        for some, made in in_parts(group, prepared):
            if not isinstance(made, PtxlabError):
                names.update(
                    form.name
                    for first_form in some
                    for form in lines[first_form.line, first_form.variant]
                )
    return names


def in_parts(
    forms: Sequence[Form], make: Callable[[Sequence[Form]], Made]
) -> Iterator[tuple[Sequence[Form], Made | PtxlabError]]:
    """Make something of all forms, or else of each half; yield what for which.

    Of a form that is refused even alone it is the error. Raises ToolAbsent, which is about no form.
    """
    try:
        yield forms, make(forms)
    except ToolAbsent:
        raise
    except (PtxSyntaxError, ToolchainError, Unsupported) as error:
        if len(forms) == 1:
            yield forms, error
        else:
            middle = len(forms) // 2
            yield from in_parts(forms[:middle], make)
            yield from in_parts(forms[middle:], make)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What an instruction is on ``targets``: SASS opcodes in order, each with how often it follows."""

    targets: tuple[str, ...]
    opcodes: tuple[tuple[str, int], ...]


def compiled(form: Form, targets: Sequence[str]) -> tuple[Compiled, ...]:
    """Return what ptxas makes of ``form`` on each of ``targets``, equal ones together.

    Raises ToolAbsent (a ToolchainError) where nvJitLink or nvdisasm is not installed.
    """
    lines: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for target in targets:
        [made] = opcodes([form], target)
        lines.setdefault(made, []).append(target)
    return tuple(Compiled(tuple(names), opcodes) for opcodes, names in lines.items())


def opcodes(forms: Sequence[Form], target: str) -> list[tuple[tuple[str, int], ...]]:
    """Return the SASS opcodes that ptxas makes of each form, each with how often it follows.

    All are assembled and disassembled together.
    """
    ptx = programs(forms, target)
    functions = sass(link_ptx(ptx, arch=target))
    rows = ptx.splitlines()
    made = []
    for number, form in enumerate(forms):
        kernel = f"{KERNEL}{number}"
        begin = next(n for n, row in enumerate(rows) if f".entry {kernel}(" in row)
        line = next(n for n, row in enumerate(rows[begin:], begin + 1) if form.name in row)
        names = [
            instruction.name
            for instruction in functions[kernel].instructions
            if instruction.line == line or "GMMA" in instruction.opcode
        ]  # ptxas gives a warpgroup's multiplication another line
        made.append(tuple((name, len(list(run))) for name, run in groupby(names)))
    return made


@dataclass(frozen=True, slots=True)
class FormExplanation:
    """One instruction. ``others`` are further ones that the same words describe.

    ``arithmetic`` pairs targets with what they do, ``fidelity`` is that on those asked for.
    ``not_compiled`` says why ``compiled`` is empty.
    """

    form: Form
    others: tuple[Form, ...]
    arithmetic: tuple[tuple[tuple[str, ...], str], ...]
    emulated: bool
    fidelity: Fidelity
    hardware: str | None
    compiled: tuple[Compiled, ...]
    not_compiled: str | None


def explain(forms: Sequence[Form], targets: Sequence[str] = ()) -> FormExplanation:
    """Explain the first of ``found``; compile it for ``targets``, or one of each generation."""
    form = forms[0]
    made: tuple[Compiled, ...] = ()
    reason = None
    try:
        made = compiled(form, targets or _generations(form))
    except ToolchainError as error:  # absent, or older than the instruction
        reason = error.message.splitlines()[0]
    return FormExplanation(
        form,
        tuple(forms[1:]),
        _arithmetic(form, targets) if isinstance(form, MatrixInstruction) else (),
        form.name in run_by_emulator([form]),
        form.fidelity_on(*(TARGETS[name] for name in targets)),
        receipts.hardware(form),
        made,
        reason,
    )


def _generations(form: Form) -> tuple[str, ...]:
    """Return the first known target of every generation of tensor cores that has the instruction."""
    first: dict[Arithmetic, str] = {}
    for name in form.targets:
        first.setdefault(TARGETS[name].arithmetic, name)
    return tuple(first.values())


def _arithmetic(
    form: MatrixInstruction, targets: Sequence[str]
) -> tuple[tuple[tuple[str, ...], str], ...]:
    groups: dict[str, list[str]] = {}
    for name in targets or form.targets:
        groups.setdefault(arithmetic(form, TARGETS[name]), []).append(name)
    return tuple((tuple(names), note) for note, names in groups.items())
