"""What warps do without waiting for it: mbarriers, copies of the tensor memory accelerator, products in Tensor Memory.

What an instruction asks for is the PTX that it becomes (``lifted``). A copy lands at once, a product is done at once, and whom a
phase of an mbarrier holds back goes on when others have ended it: that is the order in which the machine code is followed, and the
clock of the SM comes later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ptxlab.emulator.prepare.row import RowForm
from ptxlab.emulator.run.mbarriers import MbarrierState
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import PARAMETERS, Launch
from ptxlab.machine.operands import SassAddress
from ptxlab.machine.registers import Registers
from ptxlab.machine.values import ALL, Array, Where, numbers, runs, warps_of
from ptxlab.matrix import instruction_descriptor
from ptxlab.prediction.following.accesses import Accesses
from ptxlab.prediction.following.cluster_launch import Answer, WaitingClusters
from ptxlab.prediction.following.lifted import Demand, Results
from ptxlab.prediction.sm import mbarriers as phases
from ptxlab.prediction.sm import tensor_work, tma
from ptxlab.prediction.sm.mbarriers import OFFSET, Key, Operation, SmMbarriers
from ptxlab.prediction.sm.requests import SECTOR
from ptxlab.prediction.sm.tensor_work import Columns, Commit, Queued, TensorCopy, TensorProduct
from ptxlab.prediction.sm.tma import Copy
from ptxlab.prediction.sm.warps import Asked
from ptxlab.tensormap.encoding import MAP_BYTES

Order = Operation | Copy | Queued
Asking = tuple[int, Sequence[int] | Array, Order]
"""Which warp asks, with which threads of those that execute an instruction, for what."""

_PAIR = "cta_group::2"


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
        self.mbarriers = SmMbarriers()
        self._reserved = launch.shared_base
        self._both = 2 if pairs else 1
        self._allocated: dict[int, int] = defaultdict(int)

    def reached(self, waits: Sequence[Operation]) -> bool:
        return all(self.mbarriers.phase(wait.key) >= wait.count for wait in waits)

    def orders(self, i: DecodedInstruction, demand: Demand, told: bool) -> list[Asking]:
        """Return what warps ask for with a demand, and which of its threads do; of all but mbarriers the first of a warp.

        Where nobody is ``told`` it is enough that boxes come, which have no sectors, and for whom a CTA waits.
        """
        if not len(demand.threads):
            return []
        if i.does == "phase":
            return [*self._operations(demand, told)]
        warps, first = warps_of(demand.threads)
        orders: dict[str, Callable[..., Iterable[Order]]] = {
            "bulk copy": partial(self._copies, told=told),
            "next cluster": self._next,
            "tensor copy": self._tensor_copies,
            "tensor commit": self._commits,
            "tensor allocation": self._columns,
        }
        of_leaders = orders[i.does](i, demand, first)
        return [*zip(warps.tolist(), ([lane] for lane in first), of_leaders, strict=True)]

    def asked(self, orders: Sequence[Asking], told: bool) -> Asked:
        """Return what each warp asks for, or all where nobody is ``told`` who."""
        if not told:
            return (tuple(order for *_, order in orders),)
        return phases.by_warp(((warp, order) for warp, _, order in orders), self._warps)

    def do(self, demand: Demand, orders: Sequence[Asking]) -> Results:
        """Do what is demanded, but wait, and return what comes of it: what is waited for is told to have ended."""
        results = self._results(demand, orders)
        for _, _, order in orders:
            self._do(order)
        return results

    def named(self, i: DecodedInstruction, where: Where) -> Asked:
        """Return which barrier of the CTA each warp means by a register."""
        threads = numbers(where, self._registers.threads)
        barriers = self._registers.value(i.sources[0], threads)
        if barriers is None:
            raise Unsupported(f"'{i.sass.text}' depends on data that is not computed")
        warps, first = warps_of(threads)
        meant = [
            (warp, Operation(phases.NAMED, (int(threads[at]) // self._threads, int(barriers[at]))))
            for warp, at in zip(warps.tolist(), first, strict=True)
        ]
        return phases.by_warp(meant, self._warps)

    def _results(self, demand: Demand, orders: Sequence[Asking]) -> Results:
        """Return what is written: an arrival the state of its mbarrier before, who takes columns the first of them."""
        count = len(demand.threads)
        held = np.ones(count, bool)
        match demand.form.opcode, demand.form.effects.mbarrier:
            case "columns", _:
                taken = [order.granules for _, _, order in orders if isinstance(order, Columns)]
                return [self._first_granule(demand.threads, taken[0]), held] if taken[0] else []
            case "mbarrier", "wait":
                return [held]
            case "mbarrier", "arrive":
                state = np.zeros((2, count), np.int64)
                for _, lanes, order in orders:
                    if isinstance(order, Operation) and order.kind == phases.ARRIVE:
                        state[:, lanes] = np.array([self.mbarriers.state(order.key)]).T
                nothing = np.zeros(count, np.int64)
                return [MbarrierState(state[0], nothing, nothing, state[1]).words()]
        return []

    def _do(self, order: Order) -> None:
        if isinstance(order, Answer):
            self._waiting.told(order)
            self._accesses.tell(order.cta, order.address, order.words)
        if isinstance(order, Copy):
            if order.key is not None:
                self.mbarriers.landed(order.key, order.nbytes, order.ctas)
        elif isinstance(order, Commit):
            self.mbarriers.do(Operation(phases.ARRIVE, order.key, 1))
        elif isinstance(order, Operation) and order.kind in (phases.INIT, phases.ARRIVE):
            self.mbarriers.do(order)

    # ---- mbarriers --------------------------------------------------------------------------

    def _operations(self, demand: Demand, told: bool) -> Iterator[Asking]:
        """Yield what each warp asks of each barrier that its threads name; who waits, where nobody is ``told``, what each CTA does."""
        threads, effects = demand.threads, demand.form.effects
        waits = effects.mbarrier == "wait"
        addresses = demand.known(0).astype(np.int64)
        given: Array = np.ones(len(threads), np.int64)
        if len(demand.sources) > 1 and (addresses & OFFSET >= self._reserved).any():
            given[:] = demand.known(1)
        asking = threads // (self._threads if waits and not told else WARP)
        whole = (asking.astype(np.int64) << 32 | addresses) << 1 | (given if waits else 0)
        order: Where = ALL
        begins = runs(whole)
        if len(np.unique(whole[begins])) < len(begins):
            order = np.argsort(whole, kind="stable")
            begins, given = runs(whole[order]), given[order]
        lanes, ends = np.arange(len(threads))[order], [*begins[1:].tolist(), len(threads)]
        ctas = threads[lanes[begins]] // self._threads
        asked = zip(
            (whole[lanes[begins]] >> 1).tolist(), ctas.tolist(), begins.tolist(), ends, strict=True
        )
        for pair, cta, begin, end in asked:
            address = pair & 0xFFFFFFFF
            key, rank = (cta, address & OFFSET), address & ~OFFSET
            operation = self._operation(demand.form, given[begin:end], key, rank)
            yield pair >> 32, lanes[begin:end], operation

    def _operation(self, form: RowForm, given: Array, key: Key, rank: int) -> Operation:
        """Return what lanes of a warp ask of a barrier that are ``given`` a number each."""
        effects, first = form.effects, int(given[0])
        if key[1] < self._reserved or effects.mbarrier == "inval":  # a pair, to allocate
            return Operation(phases.NOTHING, key)
        if effects.mbarrier == "wait":
            ended = self.mbarriers.phase(key)
            return Operation(phases.WAIT, key, ended + (ended % 2 == first))
        if effects.mbarrier == "init" and (given == first).all():
            return Operation(phases.INIT, key, first)
        if effects.mbarrier not in ("arrive", "expect_tx") or effects.behind:
            raise Unsupported(f"{form.name} is not in the model of time")
        times = self._both if "shared::cluster" in form.modifiers and not rank else 1
        total, expects = int(given.sum()), effects.mbarrier == "expect_tx"
        nbytes = total if effects.tx or expects else 0
        count = 0 if expects else len(given) if effects.tx else total
        return Operation(phases.ARRIVE, key, count * times, nbytes * times, bool(rank))

    # ---- copies: uniform registers are those of any thread of a warp, of each its leader ----

    def _copies(
        self, i: DecodedInstruction, demand: Demand, leaders: Array, told: bool
    ) -> list[Copy]:
        form, loads = demand.form, demand.form.effects.begins == "signals"
        if "global" not in form.modifiers or form["mode"] not in ("", "tile"):
            raise Unsupported(f"'{i.sass.text}' is not in the model of time")
        far, last = (1 if loads else 0), len(demand.sources) - 1
        keys: Sequence[Key | None] = [None] * len(leaders)
        ctas = [1] * len(leaders)
        if loads:
            keys = self._keys(demand, 2 if i.known.boxes else 3, leaders)
        if form["multicast"]:
            ctas = [mask.bit_count() for mask in demand.at(last, leaders)]
        if i.known.boxes:
            copies = self._boxes(i, demand, far, keys, ctas, leaders, told)
        else:
            addresses, nbytes = demand.at(far, leaders), demand.at(2, leaders)
            copies = list(map(tma.in_a_row, addresses, nbytes, keys, ctas))
        ends = {end for copy in copies for end in (*copy.sectors[:1], *copy.sectors[-1:])}
        self._memory.require(np.array(sorted(ends), np.uint64) * np.uint64(SECTOR))
        return copies

    def _boxes(
        self,
        i: DecodedInstruction,
        demand: Demand,
        number: int,
        keys: Sequence[Key | None],
        ctas: Sequence[int],
        leaders: Array,
        told: bool,
    ) -> list[Copy]:
        """Return copies of boxes of the tensor map, and at the coordinates, that a source is."""
        # The other CTA of a pair tells the same mbarrier.
        both = self._both if _PAIR in demand.form.modifiers else 1
        boxes = (
            demand.at(number, leaders)
            if told
            else [(each, ()) for each in demand.maps_at(number, leaders)]
        )
        copies = []
        for (address, coordinates), key, count in zip(boxes, keys, ctas, strict=True):
            begin = tuple(word - (word >> 31 << 32) for word in coordinates)
            copy = tma.copied(self._map(address), begin, key, count, i.sass.text, told)
            copies.append(copy if both == 1 else replace(copy, nbytes=copy.nbytes * both))
        return copies

    def _keys(self, demand: Demand, number: int, leaders: Array) -> list[Key]:
        """Return the mbarrier of its CTA that each warp means by a source."""
        ctas = (demand.threads[leaders] // self._threads).tolist()
        return [
            (cta, address & OFFSET)
            for cta, address in zip(ctas, demand.at(number, leaders), strict=True)
        ]

    def _map(self, address: int) -> bytes:
        """Return the bytes of a tensor map, of the parameters or in global memory."""
        offset = address - PARAMETERS
        if 0 <= offset < len(self._parameters):
            return self._parameters[offset : offset + MAP_BYTES]
        places = np.arange(address, address + MAP_BYTES, 4, dtype=np.uint64)
        words = self._memory.load(places)
        return b"" if words is None else words.tobytes()

    def _next(self, i: DecodedInstruction, demand: Demand, leaders: Array) -> list[Answer]:
        """Return what comes of asking for clusters that have not begun."""
        answers, barriers = (self._keys(demand, number, leaders) for number in range(2))
        asked = zip(answers, barriers, strict=True)
        return [self._waiting.next(answer, barrier) for (_, answer), barrier in asked]

    # ---- the tensor core --------------------------------------------------------------------

    def products(self, i: DecodedInstruction, threads: Array) -> list[Asking]:
        """Return the products that warps queue: what they are of is not followed, and their shape a register tells."""
        warps, first = warps_of(threads)
        addresses = [operand for operand in i.operands if isinstance(operand, SassAddress)]
        (described,) = (address.uniform for address in addresses if address.what == "idesc")
        assert described is not None
        words = self._registers.value(described, threads[first])
        if words is None:
            raise Unsupported(f"'{i.sass.text}' depends on data that is not computed")
        shapes = {word: instruction_descriptor.shape(word) for word in {*words.tolist()}}
        if any(shape.sparse for shape in shapes.values()) or any(map(i.has, tensor_work.UNTIMED)):
            raise Unsupported(f"nobody says how long '{i.sass.text}' takes")
        ctas, shared = 2 if i.has("2CTA") else 1, addresses[0].what == "gdesc"
        products = {
            word: TensorProduct(shape.m, shape.n, ctas, shared) for word, shape in shapes.items()
        }
        return [
            (warp, [lane], products[word])
            for warp, lane, word in zip(warps.tolist(), first, words.tolist(), strict=True)
        ]

    def _tensor_copies(
        self, i: DecodedInstruction, demand: Demand, leaders: Array
    ) -> list[TensorCopy]:
        return [TensorCopy(tensor_work.written(i))] * len(leaders)

    def _commits(self, i: DecodedInstruction, demand: Demand, leaders: Array) -> list[Commit]:
        return [Commit(key, self._together(demand)) for key in self._keys(demand, 0, leaders)]

    def _columns(self, i: DecodedInstruction, demand: Demand, leaders: Array) -> list[Columns]:
        taken = "find" in demand.form.modifiers
        return [Columns(count if taken else 0) for count in demand.at(0, leaders)]

    @staticmethod
    def _together(demand: Demand) -> int:
        """Return how many CTAs do it together."""
        return 2 if _PAIR in demand.form.modifiers else 1

    def _first_granule(self, threads: Array, granules: int) -> Array:
        """Return where in Tensor Memory the columns begin that threads allocate, each CTA as if alone."""
        ctas = threads // self._threads
        first = np.array([self._allocated[cta] for cta in ctas.tolist()], np.uint32)
        for cta in np.unique(ctas).tolist():
            self._allocated[cta] += granules
        return first
