"""The memory instructions of the machine: where they go, what they cost, and words that are known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from ptxlab.emulator.prepare.row import RowForm
from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.layouts.local_memory import WORD, places
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import NOWHERE, STACK, Launch
from ptxlab.machine.memory import GlobalWords, Rows, Words
from ptxlab.machine.registers import Registers
from ptxlab.machine.row import accessed_bytes, matrices
from ptxlab.machine.values import Array
from ptxlab.numbers.types import TYPES
from ptxlab.prediction.following.lifted import Demand, Results
from ptxlab.prediction.refusal import Undecided
from ptxlab.prediction.sm.mbarriers import OFFSET
from ptxlab.prediction.sm.requests import (
    LINE,
    Request,
    of_atomics,
    of_global,
    of_matrices,
    of_shared,
)

MATRIX_ROWS, MATRIX_ROW_BYTES = 8, 16

U32, U64 = np.uint32, np.uint64
LOW = U64(0xFFFFFFFF)
_PATTERN_BYTES = 32 << 20
"""Patterns of addresses are kept in so much: the same one elsewhere costs the same."""


class Accesses:
    """The memories of some CTAs, and what was asked of them."""

    def __init__(
        self, launch: Launch, registers: Registers, memory: GlobalWords, ctas: int
    ) -> None:
        self._registers = registers
        self.memory = memory
        self._base = launch.shared_base
        size = launch.target.shared_bytes + self._base
        self._shared_words = -(-size // 4)
        self._shared = Words(None, self._shared_words * ctas)
        self._cta = np.repeat(np.arange(ctas), launch.threads)
        self._local = Words(None, registers.threads * (STACK // 4))
        self.spilled = Rows(self._local, registers.threads)
        """Local memory: the same word of all threads lies together, so that what none writes takes no memory."""
        self.taken: dict[str, int] = defaultdict(int)
        """How often something known was loaded or stored, by space: what is done again then may come out otherwise."""
        self._seen: dict[tuple[int, str, int, bytes], tuple[int, Request]] = {}
        self._seen_bytes = 0
        self._turns: dict[tuple[int, int], int] = defaultdict(int)
        """How often a CTA, by its number among these, was told what is in a counter, by instruction."""
        self._turns_before = dict(self._turns)
        self._memories = self._shared, self._local, *memory.regions

    def watch(self) -> None:
        """Take note of what changes in memory from now on, so that it can be taken back."""
        self._turns_before = dict(self._turns)
        for words in self._memories:
            words.watch()

    def settle(self, taken_back: bool) -> None:
        """Watch no more, with what has changed ``taken_back`` or not."""
        if taken_back:
            self._turns = defaultdict(int, self._turns_before)
        for words in self._memories:
            words.settle(taken_back)

    def tell(self, cta: int, address: int, words: Sequence[int]) -> None:
        """Write words to the shared memory of a CTA, by its number on the SM."""
        places = cta * self._shared_words + address // 4 + np.arange(len(words))
        self._shared.store(places, np.array(words, np.uint32))

    def request(self, i: DecodedInstruction, demand: Demand) -> Request:
        """Return what an instruction asks memory for that makes a demand."""
        space, addresses = self._place(i, demand)
        if space == "global":
            self.memory.require(addresses[0])
        return self._request(i, demand.threads, space, addresses, accessed_bytes(i.sass.modifiers))

    # ---- values -----------------------------------------------------------------------------

    def answer(self, i: DecodedInstruction, demand: Demand) -> Results | None:
        """Load or store; what matrices, copies, atomics and stores of less than a word make of memory is not known."""
        row, threads, (space, addresses) = i.known, demand.threads, self._place(i, demand)
        nbytes, copied, address = accessed_bytes(i.sass.modifiers), space == "copy", addresses[0]
        if i.has("ADD") and row.atomic and space == "global" and nbytes == 4:
            told = self._told_in_turn(i, demand, address)
            if told is not None:
                self.taken[space] += 1
                return [told]
        if row.matrix:
            naming = threads % WARP < MATRIX_ROWS * matrices(i.sass.modifiers)
            threads, address, nbytes = threads[naming], address[naming], MATRIX_ROW_BYTES
        where = "shared" if copied else space
        memory, places = self._words(threads, where, address, max(nbytes // 4, 1))
        known = not (row.matrix or row.atomic or copied)
        if row.loads and known:
            loaded = [memory.load(at) for at in places]
            self.taken[where] += any(words is not None for words in loaded)
            return _narrowed(demand.form, address, loaded)
        given = demand.sources[1] if known and row.stores and nbytes >= 4 else None
        if row.stores or copied:
            values = given if isinstance(given, tuple) else [given] * len(places)
            for at, value in zip(places, values, strict=True):
                memory.store(at, value)
                self.taken[where] += value is not None or space != "global"
        return None

    def _told_in_turn(self, i: DecodedInstruction, demand: Demand, address: Array) -> Array | None:
        """Return what lanes are told is in a counter that one of each CTA adds to, None where it is not one.

        All CTAs are taken to come there in turn, by number, and again when all have been.
        """
        ctas = self._cta[demand.threads]
        if len(np.unique(ctas)) < len(ctas) or not self.memory.is_counter(address):
            return None
        held, added = self.memory.load(address), demand.sources[1]
        if held is None or added is None:
            return None
        before = np.array([self._registers.ctas[cta] for cta in ctas.tolist()])
        for n, cta in enumerate(ctas.tolist()):
            before[n] += self._turns[i.number, cta] * self._registers.launch.ctas
            self._turns[i.number, cta] += 1
        told: Array = held + added.astype(np.uint32) * before.astype(np.uint32)
        return told

    def _words(
        self, threads: Array, space: str, addresses: Array, count: int
    ) -> tuple[GlobalWords | Words, list[Array]]:
        """Return the memory of a space, and where in it the ``count`` words of each thread are."""
        if space == "global":
            return self.memory, [addresses + U64(4 * n) for n in range(count)]
        first, step = (addresses >> U64(2)).astype(np.int64), 1
        if space == "shared":
            memory, first = self._shared, first + self._cta[threads] * self._shared_words
        else:
            if len(first) and int(first.max()) >= STACK // 4:
                raise Unsupported(
                    f"the kernel uses more than {STACK >> 10} KiB of local memory a thread"
                )
            memory, step = self._local, self._registers.threads
            first = self.spilled.places(first, threads)
        return memory, [first + n * step for n in range(count)]

    # ---- addresses --------------------------------------------------------------------------

    def _place(self, i: DecodedInstruction, demand: Demand) -> tuple[str, list[Array]]:
        """Return the space that is accessed, and where; generic addresses may be of shared memory."""
        space = i.known.space
        addresses = [
            np.broadcast_to(demand.known(number), demand.threads.shape).astype(U64)
            for number in range(2 if space == "copy" else 1)
        ]
        if space == "shared":
            addresses[0] &= U64(OFFSET)
        if space != "generic":
            return space, addresses
        shared = addresses[0] >> U64(32) == U64(NOWHERE)
        if shared.all():
            return "shared", [addresses[0] & LOW]
        if shared.any():
            raise Unsupported(f"'{i.sass.text}' accesses shared and global memory at once")
        return "global", addresses

    # ---- costs ------------------------------------------------------------------------------

    def _request(
        self, i: DecodedInstruction, threads: Array, space: str, addresses: list[Array], nbytes: int
    ) -> Request:
        tables = [self._table(address, threads) for address in addresses]
        asked = self._asked(i, threads)
        base = int(tables[-1][0, 0])
        pattern = blake2b(asked.data, digest_size=16)
        for table in tables:
            pattern.update((table - table[0, 0]).data)
        key = (i.number, space, 0 if space == "shared" else base % LINE, pattern.digest())
        seen = self._seen.get(key)
        if seen is None:
            seen = base, self._counted(i, space, tables, asked, nbytes)
            self._remember(key, seen)
        first, request = seen
        return request.moved((base - first) // LINE)

    def _remember(self, key: tuple[int, str, int, bytes], seen: tuple[int, Request]) -> None:
        if self._seen_bytes > _PATTERN_BYTES:
            self._seen.clear()
            self._seen_bytes = 0
        self._seen[key] = seen
        self._seen_bytes += seen[1].nbytes

    def _counted(
        self, i: DecodedInstruction, space: str, tables: list[Array], asked: Array, nbytes: int
    ) -> Request:
        if space == "shared":
            if i.known.matrix:
                return Request(of_matrices(tables[0], matrices(i.sass.modifiers)))
            return Request(of_shared(tables[0], asked, nbytes))
        first, table, each = tables[0], tables[-1], asked
        carried = nbytes if i.known.stores else max(nbytes, WORD)
        if space == "local":
            warps = np.arange(len(table), dtype=U64)[:, None, None] << U64(32)
            words = places(table, nbytes) + warps
            first, table = words[:, 0], words.reshape(len(words), -1)
            each = np.tile(asked, words.shape[1])
            carried //= words.shape[1]
        return Request(
            of_shared(first, asked, nbytes),
            *of_global(table, each, carried),
            lanes=of_atomics(table, each) if i.known.atomic else None,
        )

    def _table(self, addresses: Array, threads: Array) -> Array:
        if len(threads) == self._registers.threads:
            return addresses.reshape(-1, WARP)
        whole = np.zeros(self._registers.threads, U64)
        whole[threads] = addresses
        return whole.reshape(-1, WARP)

    def _asked(self, i: DecodedInstruction, threads: Array) -> Array:
        """Say which threads ask; those whose predicate fails are given zeros without asking."""
        holds = self._registers.holding(i.number, i.ins, threads)
        if holds is None:
            raise Undecided(f"whether '{i.sass.text}' reads depends on data that is not computed")
        asked = np.zeros(self._registers.threads, bool)
        asked[threads] = holds
        return asked.reshape(-1, WARP)


def _narrowed(form: RowForm, addresses: Array, words: Results) -> Results:
    """Return what a load has of its words: of one that is narrower than a word the bytes where it lies."""
    kind = TYPES[form["T"]]
    if kind.bytes >= 4 or words[0] is None:
        return words
    return [(words[0] >> (addresses % 4 * 8).astype(U32)).astype(kind.dtype)]
