"""The timing of GPUs: what ``isa.gpus`` says of each, and the constants of its chip, a file each.

Every constant in ``chips/`` stands beside its source.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from ptxlab.errors import PtxlabError, Unsupported, did_you_mean
from ptxlab.files import read_text
from ptxlab.isa.gpus import GPUS, Gpu, gpu_named, spelled

_FOLDER = "chips"

COLD_LAUNCH_SECONDS = 3e-6
"""What a launch costs before the first CTA begins where none is on its way before it: 2 to 5 microseconds."""

UNKNOWN = {
    87: "nobody says what its L2 cache delivers in a clock",
}
"""What keeps a chip from having a file, by compute capability."""

_UNMEASURED = {
    "gb300": "nobody measured its latencies",
    "b300": "nobody measured its latencies",
    "thor": "nobody measured what its caches and memory deliver",
}
"""What keeps a GPU from being one of ``isa.gpus``."""

_OWN = ("name", "sms", "clock", "bandwidth", "l2_mib", "fp32", "l1", "mma_sync", "power")
"""What a file may say of a GPU, beside what it says of its chip."""

_ALONE = ("cta", "launch", "cold")
"""What it may say of a chip or a launch in no table."""

_TAKES: Mapping[str, type] = {
    "name": str,
    "sms": int,
    "clock": int,
    "power": int,
    "cold": bool,
    "waiting": int,
}
"""What is no number with a fraction."""

_LIKE = f'like = "rtx4090", and what differs: {", ".join(_OWN[:5])}; of its chip [holds], [latency], [memory]'


@dataclass(frozen=True, slots=True)
class MemorySystem:
    """``request``: the least cycles of an SM's memory pipe for an instruction. ``wavefront`` cycles serve one
    of shared memory, or bring a whole pass of L1 into registers; ``l2_bytes`` come from beyond the SM, and
    ``stored_bytes`` go there beside them: Nsight Compute counts the two ways apart, ``l1tex__m_xbar2l1tex`` and
    ``l1tex__m_l1tex2xbar``. Each has ``port`` bytes at most, where other SMs ask for nothing.

    ``l1_kib`` are shared memory's too; ``l2_part`` of the L2 cache keeps what comes again. ``clock`` is
    the one in MHz at which the latency of DRAM was measured. ``copied_bytes`` come from beyond the SM by copies of
    the tensor memory accelerator, where that is said to be more, which takes ``row`` cycles for a row of a box.
    Part of a sector takes as much of ``stored_bytes`` as ``part`` bytes, and a sector alone of ``l2_bytes`` as ``l2_least``.
    ``dram`` is the part of the data sheet's bandwidth that loads alone or stores alone reach, and ``turnaround`` what is
    lost of it where half of all are stores. A piece that lies apart from the one before takes it as long as ``piece`` bytes more.
    ``waiting`` loads of an SM at most wait for what L1 has not. A load waits ``queue`` ns longer for DRAM, times u / sqrt(1 - u), where
    half of all are stores and DRAM is used for the part u of the time. The three are 0 where nobody says.
    """

    request: int
    wavefront: int
    l2_bytes: float
    stored_bytes: float
    port: float
    l1_kib: int
    l2_part: float
    clock: int
    dram: float
    turnaround: float
    part: float
    l2_least: int = 32
    copied_bytes: float = 0.0
    row: float = 0.0
    piece: float = 0.0
    waiting: int = 0
    queue: float = 0.0

    @property
    def bytes_of_copies(self) -> float:
        return self.copied_bytes or self.l2_bytes


@dataclass(frozen=True, slots=True)
class Chip:
    """A GPU as the model of an SM sees it: ``holds`` and ``latency`` in cycles, by name.

    CTAs begin one after the other, every ``cta`` cycles, whatever their SMs. A launch right behind another costs ``launch`` microseconds
    before the first of them begins.
    ``cold`` says whether a launch begins alone and finds nothing in its L2 cache, as under Nsight Compute, or follows another and finds what that left.
    """

    gpu: Gpu
    holds: dict[str, int]
    latency: dict[str, int]
    memory: MemorySystem
    cta: float
    launch: float
    cold: bool = False

    @property
    def l2_bytes(self) -> int:
        """How many bytes of what CTAs share its L2 cache keeps."""
        return int(self.gpu.l2_mib * self.memory.l2_part * (1 << 20))

    @property
    def launch_seconds(self) -> float:
        """What a launch costs before its first CTA begins: who empties a cache before each lets none follow another."""
        return COLD_LAUNCH_SECONDS if self.cold else self.launch / 1e6

    def at(self, clock: int) -> Chip:
        """Return the chip at a clock in MHz: DRAM does not wait for it."""
        near, far = self.latency["l2"], self.latency["dram"]
        dram = round(near + (far - near) * clock / self.memory.clock)
        gpu = replace(self.gpu, clock=clock)
        return replace(self, gpu=gpu, latency=self.latency | {"dram": dram})

    def found(self, cold: bool) -> Chip:
        """Return the chip as a launch finds it: ``cold``, or as it is told."""
        return replace(self, cold=cold or self.cold)

    def dram_seconds(self, loaded: float, stored: float, pieces: float = 0.0) -> float:
        """Return how long DRAM takes for so many bytes in all, in ``pieces`` that lie apart."""
        reached = self.memory.dram - self.memory.turnaround * self.mixed(loaded, stored)
        moved = loaded + stored + pieces * self.memory.piece
        return moved / (self.gpu.bandwidth * 1e9 * reached)

    def mixed(self, loaded: float, stored: float) -> float:
        """Return how mixed are bytes that DRAM moves: 1 where half of them are stored."""
        return 2 * min(loaded, stored) / ((loaded + stored) or 1)

    def queued(self, seconds: float) -> Chip:
        """Return the chip where loads wait so much longer for DRAM."""
        more = round(seconds * self.gpu.clock * 1e6)
        return replace(self, latency=self.latency | {"dram": self.latency["dram"] + more})

    def limited(self, power: int) -> Chip:
        """Return the chip with another limit of power in W."""
        return replace(self, gpu=replace(self.gpu, power=power))

    def used_by(self, sms: int) -> Chip:
        """Return the chip where the L2 cache is there for some of its SMs alone."""
        memory, more = self.memory, self.gpu.sms / sms
        l2_bytes, stored_bytes = (
            max(each, min(memory.port, each * more))
            for each in (memory.l2_bytes, memory.stored_bytes)
        )
        return replace(self, memory=replace(memory, l2_bytes=l2_bytes, stored_bytes=stored_bytes))

    def tensor_flop(self, dtype: str, acc: str) -> float:
        """Return the FLOP a clock and sub-partition of mma.sync."""
        rate = self.gpu.tensor.get((dtype, acc))
        if rate is None:
            raise Unsupported(f"nobody says how fast {self.gpu.name} multiplies {dtype} to {acc}")
        return rate * self.gpu.mma_sync / 4


def names() -> tuple[str, ...]:
    """Return the GPUs whose time can be predicted, as they are asked for."""
    return tuple(spelled(gpu.name) for gpu in GPUS if gpu.capability in _constants())


def gpu_called(name: str) -> Gpu:
    """Return the GPU called ``name``, however spelled. Raises PtxlabError with the names there are."""
    gpu = gpu_named(name)
    if gpu is None:
        known = [spelled(gpu.name) for gpu in GPUS]
        raise PtxlabError(
            f"there is no GPU {name!r}, there are {', '.join(known)}",
            hint=did_you_mean(spelled(name), known),
        )
    return gpu


def is_gpu(name: str) -> bool:
    """Say whether a GPU is called ``name``, which may leave out RTX."""
    return gpu_named(name) is not None


def gpu_driven(name: str, capability: int, sms: int) -> Gpu:
    """Return the GPU that NVIDIA's driver calls ``name``: ``NVIDIA H100 80GB HBM3``.

    The one is meant that has most of its words. Raises PtxlabError where none has all of those it needs, or another has them: an
    RTX 3090 Ti has other SMs, and what is on PCIe other memory and less power.
    """
    words = _words(name)
    needed = words & {"pcie"}
    known = [
        (len(own), gpu)
        for gpu in GPUS
        if (gpu.capability, gpu.sms) == (capability, sms)
        and needed <= (own := _words(gpu.name) - {"sxm"}) <= words
    ]
    if not known:
        raise PtxlabError(
            f"ptxlab knows no {name} with {sms} SMs",
            hint=f"--gpu names what to predict for: {', '.join(names())}",
        )
    return max(known, key=lambda each: each[0])[1]


def _words(name: str) -> set[str]:
    return set(re.findall(r"\d+gb|[a-z]+(?:\d+[a-z]?)?\b|[a-z]+\d*|\d+", name.lower()))


def find(name: str) -> Chip:
    """Return the GPU called ``name`` as it is predicted, or the one that a file tells of: ``mine.toml``.

    Raises PtxlabError where there is none, Unsupported where its chip's constants are not known.
    """
    if name.lower().endswith(".toml"):
        return _told(name)
    if reason := _UNMEASURED.get(spelled(name)):
        raise _not_predicted(name, reason)
    return chip_of(gpu_called(name))


def chip_of(gpu: Gpu) -> Chip:
    """Return a GPU as it is predicted. Raises Unsupported where its chip's constants are not known."""
    constants = _constants().get(gpu.capability)
    if constants is None:
        raise _not_predicted(gpu.name, UNKNOWN[gpu.capability])
    memory = MemorySystem(**constants["memory"] | constants.get(gpu.memory, {}))
    return Chip(
        gpu, constants["holds"], constants["latency"], memory, constants["cta"], constants["launch"]
    )


def _not_predicted(name: str, reason: str) -> Unsupported:
    return Unsupported(
        f"the time of {name} is not predicted: {reason}", hint=f"that of {', '.join(names())} is"
    )


def _told(file: str) -> Chip:
    """Return the GPU that a file tells of: ``like`` which one it is, and what differs. Raises PtxlabError for one that does not."""
    try:
        told = tomllib.loads(read_text(file))
    except (OSError, ValueError) as error:
        raise PtxlabError(f"{file} tells of no GPU: {error}", hint=_LIKE) from None
    like = told.pop("like", None)
    if not isinstance(like, str) or like.endswith(".toml"):
        raise PtxlabError(f"{file} does not say which GPU it is like", hint=_LIKE)
    base = find(like)
    tables = {name: told.pop(name, {}) for name in ("holds", "latency", "memory")}
    alone = {key: getattr(base, key) for key in _ALONE}
    alone |= _known(file, alone, {key: told.pop(key) for key in _ALONE if key in told})
    own = _known(file, {key: getattr(base.gpu, key) for key in _OWN}, told)
    if "power" in own and not base.gpu.draw:
        reason = f"nobody measured what a limit of power leaves {base.gpu.name}"
        raise PtxlabError(f"{file}: {reason}", hint="clock, in MHz, says at which one it runs")
    gpu = replace(base.gpu, **own)
    holds, latency, memory = (
        {**table, **_known(file, table, tables[name])}
        for name, table in (
            ("holds", base.holds), ("latency", base.latency), ("memory", asdict(base.memory)),
        )
    )  # fmt: skip
    return Chip(gpu, holds, latency, MemorySystem(**memory), **alone)


def _known(file: str, table: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Return what is ``given`` in place of what a ``table`` has. Raises PtxlabError for what it has not, or no such value."""
    if not isinstance(given, dict):
        raise PtxlabError(f"{file}: {given!r} is no table", hint=_LIKE)
    for name, value in given.items():
        if name not in table:
            raise PtxlabError(
                f"{file}: {name!r} is told of no GPU: {', '.join(table)} are",
                hint=did_you_mean(name, table),
            )
        if not _fits(name, value):
            raise PtxlabError(f"{file}: {name} is {value!r}, and such as {table[name]!r} here")
    return given


def _fits(name: str, value: object) -> bool:
    """Say whether a value may be that of ``name``: its text, whether it is so, or a number above 0."""
    takes = _TAKES.get(name, float)
    if isinstance(value, bool | str) or takes in (bool, str):
        return type(value) is takes
    if isinstance(value, float):
        return takes is float and value > 0
    return isinstance(value, int) and value > 0


@cache
def _constants() -> dict[int, dict[str, Any]]:
    """Return what the files say, by compute capability."""
    folder = files("ptxlab.prediction").joinpath(_FOLDER)
    read = [
        tomllib.loads(file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".toml")
    ]
    return {constants["capability"]: constants for constants in read}
