"""What warps do without waiting for it: mbarriers, copies of the tensor memory accelerator, products in Tensor Memory.

A copy lands at once, a product is done at once, and whom a phase of an mbarrier holds back goes on when others have ended it: that
is the order in which the machine code is followed, and the clock of the SM comes later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import PARAMETERS, Launch
from ptxlab.machine.operands import ZERO_REGISTER, Operand, Predicate, SassAddress, SassRegister
from ptxlab.machine.registers import Registers
from ptxlab.machine.values import Array, Where
from ptxlab.matrix import instruction_descriptor
from ptxlab.prediction import mbarriers as phases
from ptxlab.prediction import tensor_work, tma
from ptxlab.prediction.accesses import Accesses
from ptxlab.prediction.cluster_launch import Answer, WaitingClusters
from ptxlab.prediction.mbarriers import OFFSET, Key, Operation, SmMbarriers
from ptxlab.prediction.requests import SECTOR
from ptxlab.prediction.tensor_work import Columns, Commit, Queued, TensorCopy, TensorProduct
from ptxlab.prediction.tma import Copy
from ptxlab.prediction.warps import Asked
from ptxlab.tensormap.encoding import MAP_BYTES

PARITY = 1 << 31
"""The bit of a token's upper word, and of what a wait is given, that says which phase is meant."""


class AsynchronousCopies:
    """The mbarriers of some CTAs, and the copies that end their phases."""

    def __init__(
        self,
        launch: Launch,
        registers: Registers,
        accesses: Accesses,
        ctas: Sequence[int],
        pairs: bool = False,
    ) -> None:
        self._registers, self._accesses = registers, accesses
        self._memory = accesses.memory
        self._waiting = WaitingClusters(launch, ctas)
        self._parameters = launch.parameters
        self._threads = launch.threads
        self._warps = launch.warps * len(ctas)
        self._mbarriers = SmMbarriers()
        self._reserved = launch.shared_base
        self._both = 2 if pairs else 1
        self._allocated: dict[int, int] = defaultdict(int)

    def reached(self, waits: Sequence[Operation]) -> bool:
        return all(self._mbarriers.phase(wait.key) >= wait.count for wait in waits)

    def ask(
        self, i: DecodedInstruction, where: Where, address: Callable[[SassAddress], Array]
    ) -> Asked:
        """Return what the warps of some threads ask; ``address`` gives that of each thread."""
        threads = np.arange(self._registers.threads)[where]
        if not len(threads):
            return ((),) * self._warps
        operations: list[tuple[int, Any]]
        if i.does == "phase":
            places = next(
                address(operand) for operand in i.operands if isinstance(operand, SassAddress)
            )
            operations = list(self._operations(i, threads, places))
        else:
            others = {"bulk copy": self._copy, "next cluster": self._next}
            ask = others.get(i.does, self._queued)
            operations = self._once(threads, lambda thread: ask(i, thread))
        return phases.by_warp(operations, self._warps)

    def named(self, i: DecodedInstruction, where: Where) -> Asked:
        """Return which barrier of the CTA each warp means by a register."""
        threads = np.arange(self._registers.threads)[where]
        numbers = self._word(i, i.sources[0], threads)
        warps, first = np.unique(threads // WARP, return_index=True)
        meant = [
            (warp, Operation(phases.NAMED, (int(threads[at]) // self._threads, int(numbers[at]))))
            for warp, at in zip(warps.tolist(), first, strict=True)
        ]
        return phases.by_warp(meant, self._warps)

    def run(self, i: DecodedInstruction, where: Where, asked: Asked) -> None:
        """Do what was asked, but wait."""
        registers, count = self._registers, len(np.arange(self._registers.threads)[where])
        first = next((request for of_warp in asked for request in of_warp), None)
        if i.dest is not None and i.dest.number != ZERO_REGISTER and isinstance(first, Operation):
            phase = self._mbarriers.phase(first.key) if first.kind == phases.ARRIVE else 0
            token = np.full(count, phase % 2 * PARITY, np.uint32)
            registers.write_row(i.dest, where, [np.zeros(count, np.uint32), token])
        if i.dest is not None and isinstance(first, Columns) and first.granules:
            registers.write_row(i.dest, where, [self._first_granule(where, first.granules)])
        for predicate in i.outs:
            registers.tell(predicate, where, np.ones(count, bool))
        for request in (request for of_warp in asked for request in of_warp):
            if isinstance(request, Answer):
                self._waiting.told(request)
                self._accesses.tell(request.cta, request.address, request.words)
            if isinstance(request, Copy):
                if request.key is not None:
                    self._mbarriers.landed(request.key, request.nbytes, request.ctas)
            elif isinstance(request, Commit):
                self._mbarriers.do(Operation(phases.ARRIVE, request.key, 1))
            elif isinstance(request, Operation) and request.kind in (phases.INIT, phases.ARRIVE):
                self._mbarriers.do(request)

    # ---- mbarriers --------------------------------------------------------------------------

    def _operations(
        self, i: DecodedInstruction, threads: Array, places: Array
    ) -> list[tuple[int, Operation]]:
        """Return what each warp asks of each barrier that its threads name."""
        warps = threads // WARP
        whole = warps.astype(np.int64) << 32 | (np.broadcast_to(places, threads.shape)).astype(
            np.int64
        )
        operations = []
        for pair in np.unique(whole).tolist():
            warp, address = pair >> 32, pair & 0xFFFFFFFF
            lanes = threads[whole == pair]
            key = (int(lanes[0]) // self._threads, address & OFFSET)
            operations.append((warp, self._operation(i, lanes, key, address & ~OFFSET)))
        return operations

    def _operation(self, i: DecodedInstruction, lanes: Array, key: Key, rank: int) -> Operation:
        if i.has("CCTL") or key[1] < self._reserved:  # by which a pair meets to allocate
            return Operation(phases.NOTHING, key)
        if i.has("EXCH"):
            (low,) = set(self._word(i, i.sources[-1], lanes).tolist())
            return Operation(phases.INIT, key, phases.expected(low))
        if i.has("ARRIVE"):
            counts, expects = phases.form(i)
            nbytes = int(self._word(i, i.sources[-1], lanes).sum()) if expects else 0
            times = self._both if phases.is_remote(i) and not rank else 1
            count = len(lanes) if counts else 0
            return Operation(phases.ARRIVE, key, count * times, nbytes * times, bool(rank))
        if i.has("PHASECHK"):
            (parity,) = set((self._word(i, i.sources[-1], lanes) // PARITY).tolist())
            ended = self._mbarriers.phase(key)
            return Operation(phases.WAIT, key, ended + (ended % 2 == parity))
        raise Unsupported(f"'{i.sass.text}' is not in the model of time")

    # ---- copies -----------------------------------------------------------------------------

    @staticmethod
    def _once(threads: Array, ask: Callable[[Array], Any]) -> list[tuple[int, Any]]:
        """Return what each warp asks: uniform registers are those of any of its threads."""
        warps, first = np.unique(threads // WARP, return_index=True)
        return [(warp, ask(threads[[at]])) for warp, at in zip(warps.tolist(), first, strict=True)]

    def _copy(self, i: DecodedInstruction, thread: Array) -> Copy:
        near, other = (
            operand.uniform for operand in i.operands if isinstance(operand, SassAddress)
        )
        assert near is not None
        assert other is not None
        stores = i.copies_out
        key = None
        if not stores:
            cta = int(thread[0]) // self._threads
            key = (cta, self._uniform(i, near.number + 1, thread) & OFFSET)
        if not i.known.boxes:
            copy = self._row(i, near if stores else other, key, thread)
        else:
            signed = self._coordinates(i, near.number + (1 if stores else 2), thread)
            data = self._map(self._address(i, other, thread))
            copy = tma.copied(data, signed, key, self._ctas(i, thread), i.sass.text)
            if i.has("2CTA"):  # the other CTA of the pair tells the same mbarrier
                copy = replace(copy, nbytes=copy.nbytes * self._both)
        self._memory.require(
            np.array(copy.sectors[:1] + copy.sectors[-1:], np.uint64) * np.uint64(SECTOR)
        )
        return copy

    def _next(self, i: DecodedInstruction, thread: Array) -> Answer:
        """Return what comes of asking for a cluster that has not begun: by two addresses, as a load is asked for."""
        answer, barrier = (
            self._uniform(i, operand.uniform.number, thread) + operand.offset & OFFSET
            for operand in i.operands
            if isinstance(operand, SassAddress) and operand.uniform is not None
        )
        return self._waiting.next(answer, (int(thread[0]) // self._threads, barrier))

    def _row(
        self, i: DecodedInstruction, where: SassRegister, key: Key | None, thread: Array
    ) -> Copy:
        """Return the copy of bytes in a row from, or to, a global address."""
        if not (i.has("S") and i.has("G")):
            raise Unsupported(f"'{i.sass.text}' is not in the model of time")
        units = self._last(i, thread) & 0xFFFF
        return tma.in_a_row(self._address(i, where, thread), units, key, self._ctas(i, thread))

    # ---- the tensor core --------------------------------------------------------------------

    def _queued(self, i: DecodedInstruction, thread: Array) -> Queued:
        ctas = 2 if i.has("2CTA") else 1
        if i.does == "tensor product":
            return self._product(i, thread, ctas)
        if i.does == "tensor copy":
            return TensorCopy(tensor_work.written(i))
        if i.does == "tensor commit":
            (barrier,) = (o.uniform for o in i.operands if isinstance(o, SassAddress))
            assert barrier is not None
            cta = int(thread[0]) // self._threads
            return Commit((cta, self._uniform(i, barrier.number, thread) & OFFSET), ctas)
        granules = self._word(i, i.sources[-1], thread)
        return Columns(0 if i.has("AND") else int(granules[0]))

    def _product(self, i: DecodedInstruction, thread: Array, ctas: int) -> TensorProduct:
        addresses = [operand for operand in i.operands if isinstance(operand, SassAddress)]
        (told,) = (o.uniform for o in addresses if o.what == "idesc")
        assert told is not None
        shape = instruction_descriptor.shape(self._uniform(i, told.number, thread))
        if shape.sparse or any(map(i.has, tensor_work.UNTIMED)):
            raise Unsupported(f"nobody says how long '{i.sass.text}' takes")
        return TensorProduct(shape.m, shape.n, ctas, addresses[0].what == "gdesc")

    def _first_granule(self, where: Where, granules: int) -> Array:
        """Return where in Tensor Memory the columns begin that threads allocate, each CTA as if alone."""
        ctas = np.arange(self._registers.threads)[where] // self._threads
        first = np.array([self._allocated[cta] for cta in ctas.tolist()], np.uint32)
        for cta in np.unique(ctas).tolist():
            self._allocated[cta] += granules
        return first

    def _ctas(self, i: DecodedInstruction, thread: Array) -> int:
        """Return to how many CTAs of a cluster a copy comes."""
        return (self._last(i, thread) >> 16).bit_count() if i.has("MULTICAST") else 1

    def _last(self, i: DecodedInstruction, thread: Array) -> int:
        """Return the word that says for whom a copy is, and of bytes in a row how many."""
        last = next(
            operand for operand in reversed(i.operands) if isinstance(operand, SassRegister)
        )
        return self._uniform(i, last.number, thread)

    def _coordinates(self, i: DecodedInstruction, first: int, thread: Array) -> list[int]:
        """Return where a box begins, by the uniform registers from the ``first`` on."""
        dimensions = next(
            (modifier for modifier in i.sass.modifiers if modifier[:-1].isdigit()), ""
        )
        if not dimensions or i.has("IM2COL"):
            raise Unsupported(f"'{i.sass.text}' is not in the model of time")
        words = range(first, first + int(dimensions[:-1]))
        coordinates = (self._uniform(i, number, thread) for number in words)
        return [
            coordinate - (1 << 32) if coordinate >> 31 else coordinate for coordinate in coordinates
        ]

    def _address(self, i: DecodedInstruction, pair: SassRegister, thread: Array) -> int:
        """Return the address that two uniform registers hold."""
        low, high = (self._uniform(i, pair.number + n, thread) for n in (0, 1))
        return low | high << 32

    def _map(self, address: int) -> bytes:
        """Return the bytes of a tensor map, of the parameters or in global memory."""
        offset = address - PARAMETERS
        if 0 <= offset < len(self._parameters):
            return self._parameters[offset : offset + MAP_BYTES]
        places = np.arange(address, address + MAP_BYTES, 4, dtype=np.uint64)
        words = self._memory.load(places)
        return b"" if words is None else words.tobytes()

    def _uniform(self, i: DecodedInstruction, number: int, thread: Array) -> int:
        return int(self._word(i, SassRegister(number), thread)[0])

    def _word(self, i: DecodedInstruction, operand: Operand, threads: Array) -> Array:
        assert not isinstance(operand, Predicate)
        value = self._registers.value(operand, threads)
        if value is None:
            raise Unsupported(f"'{i.sass.text}' depends on data that is not computed")
        words: Array = value if np.ndim(value) else np.broadcast_to(value, threads.shape)
        return words
