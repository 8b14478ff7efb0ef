"""The memory instructions of the machine: where they go, what they cost, and words that are known."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from ptxlab.errors import Unsupported
from ptxlab.isa.targets import WARP
from ptxlab.machine.instruction import DecodedInstruction
from ptxlab.machine.launch import NOWHERE, STACK, Launch
from ptxlab.machine.memory import GlobalWords, Words
from ptxlab.machine.operands import URZ, ZERO_REGISTER, SassAddress
from ptxlab.machine.registers import Registers
from ptxlab.machine.row import accessed_bytes, matrices
from ptxlab.machine.values import Array, Where, numbers
from ptxlab.prediction.mbarriers import OFFSET
from ptxlab.prediction.requests import LINE, Request, of_global, of_matrices, of_shared

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
        self._seen: dict[tuple[int, str, int, bytes], tuple[int, Request]] = {}
        self._seen_bytes = 0

    def move(self, i: DecodedInstruction, where: Where) -> None:
        space, addresses = self._place(i, where)
        self._move(i, where, space, addresses, accessed_bytes(i.sass.modifiers))

    def tell(self, cta: int, address: int, words: Sequence[int]) -> None:
        """Write words to the shared memory of a CTA, by its number on the SM."""
        places = cta * self._shared_words + address // 4 + np.arange(len(words))
        self._shared.store(places, np.array(words, np.uint32))

    def request(self, i: DecodedInstruction, where: Where) -> Request:
        if isinstance(where, np.ndarray) and not len(where):
            return Request(np.zeros(self._registers.threads // WARP, np.int64))
        space, addresses = self._place(i, where)
        if space == "global":
            self.memory.require(addresses[0])
        return self._request(i, where, space, addresses, accessed_bytes(i.sass.modifiers))

    # ---- values -----------------------------------------------------------------------------

    def _move(
        self, i: DecodedInstruction, where: Where, space: str, addresses: list[Array], nbytes: int
    ) -> None:
        row = i.known
        if row.matrix or row.atomic or row.space == "copy" or nbytes < 4:
            self._forget(i, where, space, addresses, nbytes)
            return
        memory, places = self._words(where, space, addresses[0], nbytes // 4)
        if row.loads:
            for register, word in zip(i.loaded, places, strict=True):
                if register != ZERO_REGISTER:
                    self._registers.words.write(register, where, memory.load(word))
        if row.stores:
            for register, word in zip(i.stored, places, strict=True):
                memory.store(word, self._registers.words.read(register, where))

    def _forget(
        self, i: DecodedInstruction, where: Where, space: str, addresses: list[Array], nbytes: int
    ) -> None:
        self._registers.forget(i, where)
        if i.known.stores or space == "copy":
            space = "shared" if space == "copy" else space
            if i.known.matrix:
                where, addresses, nbytes = self._rows(i, where, addresses[0])
            memory, places = self._words(where, space, addresses[0], max(nbytes // 4, 1))
            for word in places:
                memory.store(word, None)

    def _rows(
        self, i: DecodedInstruction, where: Where, address: Array
    ) -> tuple[Where, list[Array], int]:
        """Return the threads that name a row of a matrix, where these are, and the bytes of each."""
        threads = numbers(where, self._registers.threads)
        naming = threads % WARP < MATRIX_ROWS * matrices(i.sass.modifiers)
        return threads[naming], [address[naming]], MATRIX_ROW_BYTES

    def _words(
        self, where: Where, space: str, addresses: Array, count: int
    ) -> tuple[GlobalWords | Words, list[Array]]:
        """Return the memory of a space, and where in it the ``count`` words of each thread are."""
        if space == "global":
            return self.memory, [addresses + U64(4 * n) for n in range(count)]
        first, step = (addresses >> U64(2)).astype(np.int64), 1
        if space == "shared":
            memory, first = self._shared, first + self._cta[where] * self._shared_words
        else:
            if len(first) and int(first.max()) >= STACK // 4:
                raise Unsupported(
                    f"the kernel uses more than {STACK >> 10} KiB of local memory a thread"
                )
            # The same word of all threads lies together, so that what none writes takes no memory.
            every = self._registers.threads
            memory, first, step = self._local, first * every + numbers(where, every), every
        return memory, [first + n * step for n in range(count)]

    # ---- addresses --------------------------------------------------------------------------

    def _place(self, i: DecodedInstruction, where: Where) -> tuple[str, list[Array]]:
        """Return the space that is accessed, and where; generic addresses may be of shared memory."""
        space, addresses = i.known.space, self._addresses(i, where)
        if space == "shared":
            addresses = [address & U64(OFFSET) for address in addresses]
        if space != "generic":
            return space, addresses
        shared = addresses[0] >> U64(32) == U64(NOWHERE)
        if shared.all():
            return "shared", [addresses[0] & LOW]
        if shared.any():
            raise Unsupported(f"'{i.sass.text}' accesses shared and global memory at once")
        return "global", addresses

    def _addresses(self, i: DecodedInstruction, where: Where) -> list[Array]:
        places = [operand for operand in i.operands if isinstance(operand, SassAddress)]
        return [self.address(i, operand, where) for operand in places]

    def address(self, i: DecodedInstruction, operand: SassAddress, where: Where) -> Array:
        """Return the address of each thread, 64 bits wide."""
        wide = i.is_wide(operand)
        count = self._registers.threads if isinstance(where, slice) else len(where)
        total: Any = np.zeros(count, U64)
        for register, scale in ((operand.base, operand.scale), (operand.uniform, 1)):
            if register is None or register.number in (ZERO_REGISTER, URZ):
                continue
            full = wide and (
                register.wide or register is operand.uniform or operand.uniform is None
            )
            value = (
                self._registers.pair(register, where)
                if full
                else self._registers.value(register, where)
            )
            if value is None:
                raise Unsupported(
                    f"'{i.sass.text}' has an address that depends on data that is not computed",
                    hint="a prediction needs addresses that follow from sizes, arguments and index arrays",
                )
            total = total + np.asarray(value).astype(U64) * U64(scale)
        total = total + U64(operand.offset & (2**64 - 1))
        result: Array = total if wide else total & LOW
        return result

    # ---- costs ------------------------------------------------------------------------------

    def _request(
        self, i: DecodedInstruction, where: Where, space: str, addresses: list[Array], nbytes: int
    ) -> Request:
        tables = [self._table(address, where) for address in addresses]
        asked = self._asked(i, where)
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
        if space == "local":
            lanes = np.arange(WARP, dtype=U64)
            warps = np.arange(len(tables[0]), dtype=U64)[:, None] << U64(32)
            tables = [tables[0] // U64(4) * U64(4 * WARP) + lanes * U64(4) + warps]
        return Request(of_shared(tables[0], asked, nbytes), *of_global(tables[-1], asked))

    def _table(self, addresses: Array, where: Where) -> Array:
        if isinstance(where, slice):
            return addresses.reshape(-1, WARP)
        whole = np.zeros(self._registers.threads, U64)
        whole[where] = addresses
        return whole.reshape(-1, WARP)

    def _asked(self, i: DecodedInstruction, where: Where) -> Array:
        """Say which threads ask; those whose predicate fails are given zeros without asking."""
        holds: Any = True
        for predicate in i.ins:
            value = self._registers.predicate(predicate, where)
            if value is None:
                raise Unsupported(
                    f"whether '{i.sass.text}' reads depends on data that is not computed"
                )
            holds = value & holds
        asked = np.zeros(self._registers.threads, bool)
        asked[where] = holds
        return asked.reshape(-1, WARP)
