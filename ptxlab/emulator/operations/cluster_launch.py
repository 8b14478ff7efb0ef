"""clusterlaunchcontrol: a cluster takes over the work of one that has not begun, which then never does.

The answer is 16 bytes that only the query instructions read. They lie where the machine code that ptxas makes of
these looks for them: the first CTA's x, y and z of 16 bits each, and a bit that says whether there is one.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: clusterlaunchcontrol.try_cancel"
and "clusterlaunchcontrol.query_cancel".
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator.operations.bulk import SIGNAL, BulkCopies, Signal
from ptxlab.emulator.operations.memory import state_space
from ptxlab.emulator.prepare.context import Context
from ptxlab.emulator.prepare.program import Access
from ptxlab.emulator.prepare.row import RowForm, row
from ptxlab.emulator.run.access import CLUSTER
from ptxlab.emulator.run.code import Step
from ptxlab.emulator.run.memory import ITEM
from ptxlab.emulator.run.steps import write
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.transfer import Transfer
from ptxlab.emulator.run.wave import Frame, Wave, unravel
from ptxlab.errors import LaunchError
from ptxlab.syntax.tree import Name

ANSWER_BYTES = 16
_EVERY_CTA = "multicast::cluster::all"
_WORDS = np.dtype(np.uint32)


def try_cancel(context: Context, form: RowForm) -> Step:
    """Ask for the work of the next cluster; its answer, and an mbarrier is told of it, comes some time later."""
    target, barrier = context.operands(2)
    base, offset = context.address(target)
    space = CLUSTER if form["cast"] else state_space(form.modifiers)
    name = "clusterlaunchcontrol.try_cancel"
    answer = Access(space, base, offset, ANSWER_BYTES, context.line, f"{name} write", True)
    signal = Signal.of(context, form, barrier)
    every = bool(form["cast"])

    def run(frame: Frame, threads: Threads) -> None:
        wave = frame.wave
        clusters = wave.cta_of[threads.index] // wave.config.cluster_ctas
        answers = [_asked(wave, answer, threads, at, int(c)) for at, c in enumerate(clusters)]
        words = np.array(answers, _WORDS).view(ITEM[ANSWER_BYTES]).reshape(-1)
        copies = BulkCopies.of(frame, threads, None)
        if every:
            ranks = wave.config.cluster_ctas
            thread, rank = np.divmod(np.arange(threads.size * ranks), ranks)
            copies = BulkCopies(threads, thread, rank)
        targets = copies.units(
            answer, frame, np.arange(len(copies.thread)), np.zeros(len(copies.thread))
        )
        items = words[copies.thread]
        transfer = Transfer([], targets, copies.thread, ANSWER_BYTES, None, items)
        signal.start(frame, copies, transfer, np.full(len(items), ANSWER_BYTES))

    return run


def _asked(wave: Wave, answer: Access, threads: Threads, at: int, cluster: int) -> list[int]:
    """Return the words of an answer. Raise LaunchError for a cluster that was refused before."""
    if wave.refused[cluster]:
        raise LaunchError(
            f"{answer.verb.rpartition(' ')[0]} by {wave.thread(int(threads.index[at]))}, whose cluster has "
            "been told that there is no more",
            location=wave.locate(answer.line),
            hint="after an answer that nothing was cancelled it is undefined to ask again",
        )
    number = wave.cancel()
    wave.refused[cluster] = number is None
    if number is None:
        return [0, 0, 0, 0]
    x, y, z = unravel(number, wave.config.grid)
    return [x, y | z << 16, 1, 0]


def _words(threads: Threads, source: Array) -> Array:
    value = np.broadcast_to(threads.pick(source), (threads.size,))
    return np.ascontiguousarray(value).view(_WORDS).reshape(threads.size, -1)


def is_canceled(context: Context, form: RowForm) -> Step:
    """Say whether the answer is that a cluster was cancelled."""
    target, answer = context.operands(2)
    destination, source = context.destination(target, "pred"), context.source(answer, "b128")

    def run(frame: Frame, threads: Threads) -> None:
        words = _words(threads, source.read(frame.registers))
        write(frame, threads.spread, [destination], [words[:, 2] & 1 != 0])

    return run


def first_cta(context: Context, form: RowForm) -> Step:
    """Return the index of the first CTA of the cluster that was cancelled, or one of its coordinates."""
    target, answer = context.operands(2)
    source = context.source(answer, "b128")
    axis = form["axis"]
    numbers = ["xyz".index(axis[-1])] if axis else [0, 1, 2, 2]
    given = context.elements(target)
    destinations = [
        (context.destination(operand, "b32"), number)
        for operand, number in zip(given, numbers, strict=True)
        if isinstance(operand, Name)
    ]

    def run(frame: Frame, threads: Threads) -> None:
        words = _words(threads, source.read(frame.registers))
        axes = (words[:, 0], words[:, 1] & 0xFFFF, words[:, 1] >> 16)
        columns = [np.ascontiguousarray(axes[number]) for _, number in destinations]
        write(frame, threads.spread, [destination for destination, _ in destinations], columns)

    return run


_row = partial(row, mix="control", needs="sm_100 8.6")
_row(
    f"clusterlaunchcontrol.try_cancel.async{{.<space>}}.{SIGNAL}{{.<cast>}}.b128",
    "[b128] [b64]",
    step=try_cancel,
    needs={"": "sm_100 8.6", _EVERY_CTA: "sm_100f sm_110f sm_120f 8.6"},
    space="shared::cta",
    cast=_EVERY_CTA,
)
_row("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128", "b128 -> pred", step=is_canceled)
_row(
    "clusterlaunchcontrol.query_cancel.get_first_ctaid.<vec>.b32.b128",
    "b128 -> b32*vec",
    step=first_cta,
    vec="v4",
)
_row(
    "clusterlaunchcontrol.query_cancel.<axis>.b32.b128",
    "b128 -> b32",
    step=first_cta,
    axis="get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z",
)
