"""Registers of products under way: nobody may touch them before wgmma.wait_group.

PTX ISA, "wgmma.fence", "wgmma.wait_group": an access to the registers of D or A, and the first product at
all, is followed by wgmma.fence before a product uses them, and comes after the wait for the product's
group. Products of one shape may follow each other on the same D. A warp waits for itself alone; all of a
warpgroup are to execute each of these instructions together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from ptxlab.arrays import Array
from ptxlab.emulator import Site
from ptxlab.emulator.operations.warp import in_teams
from ptxlab.emulator.prepare.effects import Effects
from ptxlab.emulator.prepare.forms import effects_of, form_of
from ptxlab.emulator.run.in_flight import Groups, Schedule
from ptxlab.emulator.run.threads import Threads
from ptxlab.emulator.run.wave import Frame
from ptxlab.instrument.sites import instructions
from ptxlab.isa.targets import WARP, WARPGROUP
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.observe.check_context import CheckContext
from ptxlab.observe.value_flow import groups_left, slots
from ptxlab.syntax.tree import Vector


class _Registers:
    """Of each register of a frame, when each warp last touched it, where, and which product has it."""

    __slots__ = ("product", "site", "touched")

    def __init__(self, registers: int, warps: int) -> None:
        self.touched, self.site, self.product = np.zeros((3, registers, warps), np.int32)


@dataclass(slots=True)
class _Product:
    """A product that has begun, and the registers it has: ``d`` and ``a``."""

    site: Site
    d: tuple[int, ...]
    a: tuple[int, ...]


@dataclass(slots=True)
class _Touched:
    """The registers of products that an instruction reads or writes, by number and name."""

    reads: dict[int, str] = field(default_factory=dict)
    writes: dict[int, str] = field(default_factory=dict)


class WgmmaUse:
    """Follows the registers of the products of a wave."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._names = _names_of_products(context)
        self._touches: dict[Site, _Touched] = {}
        self._fragments: dict[Site, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._registers: WeakKeyDictionary[Frame, _Registers] = WeakKeyDictionary()
        self._groups = Groups(context.wave.width, Schedule())
        self._products: list[_Product | None] = [None]
        self._fenced = np.zeros(context.wave.warps, np.int64)
        self._time = 0
        self._told: dict[tuple[Site, str], Site] = {}
        self._clashes: dict[tuple[Site, Site], tuple[int, ...]] = {}

    def see(self, site: Site, frame: Frame, threads: Threads) -> None:
        if not self._names:
            return
        effects = effects_of(site.instruction)
        self._time += 1
        if not _is_about_products(effects):
            touched = self._touches.get(site)
            if touched is None:
                touched = self._touches[site] = self._touched(site)
            if touched.reads or touched.writes:
                self._touch(touched, frame, threads)
            return
        self._divergent(site, threads)
        if effects.fence:
            self._fenced[_warps(threads)] = self._time
        elif effects.commits:
            self._groups.commit(threads)
        elif effects.begins:
            self._begin(site, frame, threads)
        elif (left := groups_left(site)) is not None:
            self._groups.wait(threads, left)

    def _divergent(self, site: Site, threads: Threads) -> None:
        """Report parts of warpgroups, of which the rest has ended or goes elsewhere."""
        if threads.everyone:
            return
        here = in_teams(self._context.wave, threads.mask, WARPGROUP)
        some = here.any(axis=1) & ~here.all(axis=1)
        if some.any():
            who = self._context.thread(int(threads.index[0]))
            message = f"{who} comes to {site.instruction.name} without the rest of its warpgroup"
            hint = "all four warps of a warpgroup execute it together; one that waits waits for itself alone"
            self._context.find(
                "barrier",
                "error",
                "divergent",
                int(here[some].sum()),
                (message, hint),
                unit="threads",
            )

    def _touch(self, touched: _Touched, frame: Frame, threads: Threads) -> None:
        registers, warps = self._of(frame), _warps(threads)
        number = self._context.number(self._context.site)
        for slot, name in (touched.reads | touched.writes).items():
            registers.touched[slot, warps] = self._time
            registers.site[slot, warps] = number
            under_way = registers.product[slot, warps]
            if under_way.any():
                at = int(np.flatnonzero(under_way)[0])
                product = self._products[int(under_way[at])]
                assert product is not None
                only_read = slot in product.a and slot not in touched.writes
                self._find_early(
                    name, product.site, int(warps[at]), "warning" if only_read else "error"
                )

    def _begin(self, site: Site, frame: Frame, threads: Threads) -> None:
        registers, warps = self._of(frame), _warps(threads)
        d, a = self._fragments_of(site)
        both = np.ix_(np.array((*d, *a)), warps)
        self._fences_before(site, registers, (*d, *a), warps)
        self._fenced[warps] = self._time  # one finding is enough
        under_way = registers.product[both]
        for number in np.unique(under_way).tolist():
            other = self._products[number]
            for row in () if other is None else self._clashing(site, other):
                held = under_way[row] == number
                if held.any():
                    name = self._context.names.seen_from(site.scope)[(*d, *a)[row]]
                    assert other is not None
                    self._find_early(name, other.site, int(warps[held.argmax()]), "error")
        number = len(self._products)
        self._products.append(_Product(site, d, a))
        registers.product[both] = number

        def land(chosen: Array | None) -> None:
            over = warps if chosen is None else np.unique(threads.index[chosen] // WARP)
            these = np.ix_(both[0][:, 0], over)
            product = registers.product[these]
            registers.product[these] = np.where(product == number, 0, product)

        self._groups.start(threads, land)

    def _fragments_of(self, site: Site) -> tuple[tuple[int, ...], tuple[int, ...]]:
        fragments = self._fragments.get(site)
        if fragments is None:
            fragments = self._fragments[site] = _fragments(site)
        return fragments

    def _clashing(self, site: Site, other: _Product) -> tuple[int, ...]:
        """Return which of its registers, as counted in D and A, a product may not have after another one."""
        clashes = self._clashes.get((site, other.site))
        if clashes is None:
            d, a = self._fragments_of(site)
            clashes = self._clashes[site, other.site] = tuple(
                row
                for row, slot in enumerate((*d, *a))
                if not _may_follow(site, slot in d, other, slot in other.d)
            )
        return clashes

    def _fences_before(
        self, site: Site, registers: _Registers, slots: tuple[int, ...], warps: Array
    ) -> None:
        """Report that no wgmma.fence comes before a product, or none after its registers were touched."""
        fenced = self._fenced[warps]
        unfenced = warps[fenced == 0]
        if unfenced.size:
            self._find_unfenced(None, None, int(unfenced[0]))
            return
        late = registers.touched[np.ix_(np.array(slots), warps)] > fenced
        if late.any():
            row, at = (int(axis[0]) for axis in np.nonzero(late))
            where = self._context.numbered(int(registers.site[slots[row], warps[at]]))
            name = self._context.names.seen_from(site.scope)[slots[row]]
            self._find_unfenced(name, where, int(warps[at]))

    def _find_early(self, name: str, product: Site, warp: int, severity: str) -> None:
        """Report the first touch of a register of a product: those that follow lack the same wait."""
        if self._told.setdefault((product, severity), self._context.site) is not self._context.site:
            return
        words = (
            f"{self._context.thread(warp * WARP)} touches register {name}, which the product of line "
            f"{product.line} has until it is waited for",
            "wgmma.commit_group, then wgmma.wait_group N, which leaves the last N groups under way",
        )
        self._context.find("async", severity, "registers", 1, words, product, unit="threads")

    def _find_unfenced(self, name: str | None, touched: Site | None, warp: int) -> None:
        who = self._context.thread(warp * WARP)
        what = "begins its first product without wgmma.fence before it"
        if name is not None and touched is not None:
            what = (
                f"begins a product with register {name}, which line {touched.line} touches, and no "
                "wgmma.fence lies between the two"
            )
        words = f"the warpgroup of {who} {what}", "wgmma.fence.sync.aligned before wgmma.mma_async"
        self._context.find("async", "error", "fence", 1, words, touched, unit="threads")

    def _touched(self, site: Site) -> _Touched:
        wanted, names = (
            self._names.get(site.function, frozenset()),
            self._context.names.seen_from(site.scope),
        )

        def of(numbers: frozenset[int] | set[int]) -> dict[int, str]:
            return {slot: names[slot] for slot in numbers if names.get(slot) in wanted}

        return _Touched(of(site.reads), of(site.writes))

    def _of(self, frame: Frame) -> _Registers:
        registers = self._registers.get(frame)
        if registers is None:
            registers = _Registers(len(frame.registers), self._context.wave.warps)
            self._registers[frame] = registers
        return registers


def _warps(threads: Threads) -> Array:
    return np.flatnonzero(threads.mask.reshape(-1, WARP).any(axis=1))


def _is_about_products(effects: Effects) -> bool:
    """Say whether a warpgroup executes it together: it begins products, orders their registers, or waits for them."""
    queues = effects.begins, effects.commits, effects.waits
    return effects.fence == "registers" or "products" in queues


def _names_of_products(context: CheckContext) -> dict[str, frozenset[str]]:
    """Return the names of the registers that products have, by function."""
    by_site: dict[str, frozenset[str]] = {}
    for function in context.wave.functions:
        names: set[str] = set()
        for site in instructions(function):
            if effects_of(site.instruction).begins == "products":
                for operand in site.instruction.operands[:2]:
                    names.update(site.registers(operand) if isinstance(operand, Vector) else ())
        if names:
            by_site[function.name] = frozenset(names)
    return by_site


def _fragments(site: Site) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of the registers of D, and of A if it is in registers."""
    d, a = (
        tuple(slot for slot in slots(site, operand) if slot is not None)
        if isinstance(operand, Vector)
        else ()
        for operand in site.instruction.operands[:2]
    )
    return d, a


def _may_follow(site: Site, into_d: bool, other: _Product, was_d: bool) -> bool:
    """Say whether a product may have a register that another one under way has."""
    if not into_d and not was_d:
        return True
    shapes = [_shape(each) for each in (site, other.site)]
    return into_d and was_d and shapes[0] == shapes[1]


def _shape(site: Site) -> str:
    form = form_of(site.instruction).matrix
    assert isinstance(form, MatrixInstruction)
    return form.shape
