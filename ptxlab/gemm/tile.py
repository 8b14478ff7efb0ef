"""How a kernel cuts its work into tiles, and what a GPU has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import WARP, Target
from ptxlab.launch_config import CTA_THREADS, LaunchConfig

Sizes = Mapping[str, int]
"""Sizes of a tile by the names of their macros: ``{"BM": 64}``."""

AS_IT_IS: Sizes = MappingProxyType({})


def require(config: LaunchConfig, target: Target) -> None:
    """Raise PtxlabError unless ``target`` has the threads and the shared memory that a tile asks for."""
    threads = config.cta_threads
    if not 1 <= threads <= CTA_THREADS:
        raise PtxlabError(f"a CTA of this tile has {threads} threads, it can be 1 to {CTA_THREADS}")
    if config.shared > target.shared_bytes:
        raise PtxlabError(
            f"a CTA of this tile needs {config.shared} bytes of shared memory, and {target.name} "
            f"has {target.shared_bytes}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How the work is cut: a CTA owns bm x bn of D, a warp wm x wn of that, a thread tm x tn;
    ``stages`` tiles of depth ``bk`` are in shared memory. What a kernel does not cut is 0.
    ``group`` is the order of CTAs: how many tile rows are walked together. ``cluster`` CTAs, one below
    the other, share the columns of B.
    """

    bm: int
    bn: int
    bk: int = 0
    tm: int = 0
    tn: int = 0
    wm: int = 0
    wn: int = 0
    stages: int = 0
    group: int = 1
    cluster: int = 0

    @property
    def macros(self) -> dict[str, int]:
        sizes = {field.name.upper(): getattr(self, field.name) for field in fields(self)}
        return {name: size for name, size in sizes.items() if size}

    @property
    def threads(self) -> int:
        """The threads of a CTA: 32 for each warp's part, or one for each thread's part."""
        if self.wm:
            return WARP * (self.bm // self.wm) * (self.bn // self.wn)
        return self.bm * self.bn // (max(self.tm, 1) * max(self.tn, 1))

    def count(self, m: int, n: int) -> int:
        """Return how many CTAs have D, the clusters being whole."""
        together = max(self.cluster, 1)
        return -(-m // (self.bm * together)) * together * -(-n // self.bn)

    def changed(self, sizes: Sizes) -> Tile:
        """Return this tile with other sizes, by macro.

        Raises PtxlabError for a macro the kernel has not, and for parts that do not make up a whole.
        """
        for name, size in sizes.items():
            if name not in self.macros:
                raise PtxlabError(
                    f"this kernel has no {name}, it is cut by {', '.join(self.macros)}"
                )
            if size < 1:
                raise PtxlabError(f"{name} = {size} is not at least 1")
        tile = replace(self, **{name.lower(): size for name, size in sizes.items()})
        macros = tile.macros
        for whole, *parts in (("BM", "WM", "TM"), ("BN", "WN", "TN")):
            for part in parts:
                if macros[whole] % macros.get(part, 1):
                    raise PtxlabError(
                        f"{whole} = {macros[whole]} is not a multiple of {part} = {macros[part]}"
                    )
        return tile
