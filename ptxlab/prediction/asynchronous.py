"""What warps do without waiting for it: mbarriers, copies of the tensor memory accelerator, products in Tensor Memory.

A copy lands at once, a product is done at once, and whom a phase of an mbarrier holds back goes on when others have ended it: that
is the order in which the machine code is followed, and the clock of the SM comes later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import PARAMETERS, Launch
from ptxlab.machine.operands import ZERO_REGISTER, Operand, Predicate, SassAddress, SassRegister
from ptxlab.machine.registers import Registers
from ptxlab.machine.values import Array, Where, numbers
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

    def _numbers(self, where: Where) -> Array:
        return numbers(where, self._registers.threads)

    def reached(self, waits: Sequence[Operation]) -> bool:
        return all(self._mbarriers.phase(wait.key) >= wait.count for wait in waits)

    def ask(
        self, i: DecodedInstruction, where: Where, address: Callable[[SassAddress], Array]
    ) -> Asked:
        """Return what the warps of some threads ask; ``address`` gives that of each thread."""
        threads = self._numbers(where)
        if not len(threads):
            return ((),) * self._warps
        operations: list[tuple[int, Any]]
        if i.does == "phase":
            places = next(
                address(operand) for operand in i.operands if isinstance(operand, SassAddress)
            )
            operations = list(self._operations(i, threads, places))
        else:
            warps, first = np.unique(threads // WARP, return_index=True)
            others: dict[str, Callable[..., Sequence[Any]]]
            others = {"bulk copy": self._copies, "next cluster": self._next}
            asked = others.get(i.does, self._queued)(i, threads[first])
            operations = list(zip(warps.tolist(), asked, strict=True))
        return phases.by_warp(operations, self._warps)

    def named(self, i: DecodedInstruction, where: Where) -> Asked:
        """Return which barrier of the CTA each warp means by a register."""
        threads = self._numbers(where)
        barriers = self._word(i, i.sources[0], threads)
        warps, first = np.unique(threads // WARP, return_index=True)
        meant = [
            (warp, Operation(phases.NAMED, (int(threads[at]) // self._threads, int(barriers[at]))))
            for warp, at in zip(warps.tolist(), first, strict=True)
        ]
        return phases.by_warp(meant, self._warps)

    def run(self, i: DecodedInstruction, where: Where, asked: Asked) -> None:
        """Do what was asked, but wait."""
        registers, count = self._registers, len(self._numbers(where))
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
        order = np.argsort(whole, kind="stable")
        whole, threads = whole[order], threads[order]
        bounds = np.flatnonzero(np.append(True, whole[1:] != whole[:-1]))
        ctas = threads[bounds] // self._threads

        @cache
        def words() -> Array:
            return self._word(i, i.sources[-1], threads)

        operations = []
        ends = [*bounds[1:].tolist(), len(threads)]
        groups = zip(whole[bounds].tolist(), ctas.tolist(), bounds.tolist(), ends, strict=True)
        for pair, cta, first, end in groups:
            warp, address = pair >> 32, pair & 0xFFFFFFFF
            key, lanes = (cta, address & OFFSET), slice(first, end)
            operations.append((warp, self._operation(i, lanes, words, key, address & ~OFFSET)))
        return operations

    def _operation(
        self,
        i: DecodedInstruction,
        lanes: slice,
        words: Callable[[], Array],
        key: Key,
        rank: int,
    ) -> Operation:
        """Return what some ``lanes`` of a warp ask of a barrier; ``words`` gives the last operand of all."""
        if i.has("CCTL") or key[1] < self._reserved:  # by which a pair meets to allocate
            return Operation(phases.NOTHING, key)
        if i.has("PHASECHK"):
            (parity,) = set((words()[lanes] // PARITY).tolist())
            ended = self._mbarriers.phase(key)
            return Operation(phases.WAIT, key, ended + (ended % 2 == parity))
        if i.has("EXCH"):
            (low,) = set(words()[lanes].tolist())
            return Operation(phases.INIT, key, phases.expected(low))
        if i.has("ARRIVE"):
            counts, expects = phases.form(i)
            nbytes = int(words()[lanes].sum()) if expects else 0
            times = self._both if phases.is_remote(i) and not rank else 1
            count = lanes.stop - lanes.start if counts else 0
            return Operation(phases.ARRIVE, key, count * times, nbytes * times, bool(rank))
        raise Unsupported(f"'{i.sass.text}' is not in the model of time")

    # ---- copies: uniform registers are those of any thread of a warp, of each its leader ----

    def _copies(self, i: DecodedInstruction, leaders: Array) -> list[Copy]:
        near, other, *_ = (  # behind them may stand how to cache it
            operand.uniform for operand in i.operands if isinstance(operand, SassAddress)
        )
        assert near is not None
        assert other is not None
        stores = i.copies_out
        keys: list[Key | None] = [None] * len(leaders)
        if not stores:
            keys = [*self._barriers(near.number + 1, 0, i, leaders)]
        if i.known.boxes:
            copies = self._boxes(i, near.number + (1 if stores else 2), other, keys, leaders)
        else:
            copies = self._rows(i, near if stores else other, keys, leaders)
        ends = {end for copy in copies for end in (*copy.sectors[:1], *copy.sectors[-1:])}
        self._memory.require(np.array(sorted(ends), np.uint64) * np.uint64(SECTOR))
        return copies

    def _barriers(
        self, number: int, offset: int, i: DecodedInstruction, leaders: Array
    ) -> Iterator[Key]:
        """Yield the mbarrier of its CTA that each warp means by a uniform register."""
        ctas = (leaders // self._threads).tolist()
        for cta, address in zip(ctas, self._uniform(i, number, leaders), strict=True):
            yield cta, address + offset & OFFSET

    def _boxes(
        self,
        i: DecodedInstruction,
        first: int,
        described: SassRegister,
        keys: Sequence[Key | None],
        leaders: Array,
    ) -> list[Copy]:
        """Return copies of boxes, whose coordinates are in the uniform registers from the ``first`` on."""
        both = (
            self._both if i.has("2CTA") else 1
        )  # the other CTA of the pair tells the same mbarrier
        copies = []
        for coordinates, address, key, ctas in zip(
            self._coordinates(i, first, leaders),
            self._addresses(i, described, leaders),
            keys,
            self._ctas(i, leaders),
            strict=True,
        ):
            copy = tma.copied(self._map(address), coordinates, key, ctas, i.sass.text)
            copies.append(copy if both == 1 else replace(copy, nbytes=copy.nbytes * both))
        return copies

    def _rows(
        self,
        i: DecodedInstruction,
        where: SassRegister,
        keys: Sequence[Key | None],
        leaders: Array,
    ) -> list[Copy]:
        """Return copies of bytes in a row from, or to, a global address."""
        if not (i.has("S") and i.has("G")):
            raise Unsupported(f"'{i.sass.text}' is not in the model of time")
        addresses, ctas = self._addresses(i, where, leaders), self._ctas(i, leaders)
        units = [last & 0xFFFF for last in self._last(i, leaders)]
        return list(map(tma.in_a_row, addresses, units, keys, ctas))

    def _next(self, i: DecodedInstruction, leaders: Array) -> list[Answer]:
        """Return what comes of asking for clusters that have not begun: by two addresses, as a load is asked for."""
        answers, barriers = (
            self._barriers(operand.uniform.number, operand.offset, i, leaders)
            for operand in i.operands
            if isinstance(operand, SassAddress) and operand.uniform is not None
        )
        asked = zip(answers, barriers, strict=True)
        return [self._waiting.next(answer, barrier) for (_, answer), barrier in asked]

    # ---- the tensor core --------------------------------------------------------------------

    def _queued(self, i: DecodedInstruction, leaders: Array) -> list[Queued]:
        ctas = 2 if i.has("2CTA") else 1
        if i.does == "tensor product":
            return self._products(i, leaders, ctas)
        if i.does == "tensor copy":
            return [TensorCopy(tensor_work.written(i))] * len(leaders)
        if i.does == "tensor commit":
            (barrier,) = (o.uniform for o in i.operands if isinstance(o, SassAddress))
            assert barrier is not None
            return [Commit(key, ctas) for key in self._barriers(barrier.number, 0, i, leaders)]
        granules = self._word(i, i.sources[-1], leaders).tolist()
        return [Columns(0 if i.has("AND") else count) for count in granules]

    def _products(self, i: DecodedInstruction, leaders: Array, ctas: int) -> list[Queued]:
        addresses = [operand for operand in i.operands if isinstance(operand, SassAddress)]
        (told,) = (o.uniform for o in addresses if o.what == "idesc")
        assert told is not None
        shapes = [instruction_descriptor.shape(w) for w in self._uniform(i, told.number, leaders)]
        if any(shape.sparse for shape in shapes) or any(map(i.has, tensor_work.UNTIMED)):
            raise Unsupported(f"nobody says how long '{i.sass.text}' takes")
        shared = addresses[0].what == "gdesc"
        return [TensorProduct(shape.m, shape.n, ctas, shared) for shape in shapes]

    def _first_granule(self, where: Where, granules: int) -> Array:
        """Return where in Tensor Memory the columns begin that threads allocate, each CTA as if alone."""
        ctas = self._numbers(where) // self._threads
        first = np.array([self._allocated[cta] for cta in ctas.tolist()], np.uint32)
        for cta in np.unique(ctas).tolist():
            self._allocated[cta] += granules
        return first

    def _ctas(self, i: DecodedInstruction, leaders: Array) -> list[int]:
        """Return to how many CTAs of a cluster each copy comes."""
        if not i.has("MULTICAST"):
            return [1] * len(leaders)
        return [(last >> 16).bit_count() for last in self._last(i, leaders)]

    def _last(self, i: DecodedInstruction, leaders: Array) -> list[int]:
        """Return the words that say for whom copies are, and of bytes in a row how many."""
        last = next(
            operand for operand in reversed(i.operands) if isinstance(operand, SassRegister)
        )
        return self._uniform(i, last.number, leaders)

    def _coordinates(
        self, i: DecodedInstruction, first: int, leaders: Array
    ) -> Iterator[tuple[int, ...]]:
        """Return where boxes begin, by the uniform registers from the ``first`` on."""
        dimensions = next(
            (modifier for modifier in i.sass.modifiers if modifier[:-1].isdigit()), ""
        )
        if not dimensions or i.has("IM2COL"):
            raise Unsupported(f"'{i.sass.text}' is not in the model of time")
        words = range(first, first + int(dimensions[:-1]))
        signed = (
            [word - (1 << 32) if word >> 31 else word for word in self._uniform(i, number, leaders)]
            for number in words
        )
        return zip(*signed, strict=True)

    def _addresses(self, i: DecodedInstruction, pair: SassRegister, leaders: Array) -> list[int]:
        """Return the addresses that two uniform registers hold."""
        halves = (self._uniform(i, pair.number + n, leaders) for n in (0, 1))
        return [low | high << 32 for low, high in zip(*halves, strict=True)]

    def _map(self, address: int) -> bytes:
        """Return the bytes of a tensor map, of the parameters or in global memory."""
        offset = address - PARAMETERS
        if 0 <= offset < len(self._parameters):
            return self._parameters[offset : offset + MAP_BYTES]
        places = np.arange(address, address + MAP_BYTES, 4, dtype=np.uint64)
        words = self._memory.load(places)
        return b"" if words is None else words.tobytes()

    def _uniform(self, i: DecodedInstruction, number: int, leaders: Array) -> list[int]:
        words: list[int] = self._word(i, SassRegister(number), leaders).tolist()
        return words

    def _word(self, i: DecodedInstruction, operand: Operand, threads: Array) -> Array:
        assert not isinstance(operand, Predicate)
        value = self._registers.value(operand, threads)
        if value is None:
            raise Unsupported(f"'{i.sass.text}' depends on data that is not computed")
        words: Array = value if np.ndim(value) else np.broadcast_to(value, threads.shape)
        return words
