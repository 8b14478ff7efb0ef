"""The ``tcgen05`` instructions but for loads and stores: multiplication, copies, allocation, waiting.

``tcgen05.mma`` multiplies A, in shared memory (variant ``ss``) or Tensor Memory (``ts``), with B in shared
memory, and adds to D in Tensor Memory. Its shape and types are no part of its name but of an instruction
descriptor (``ptxlab.matrix.instruction_descriptor``); ``shapes`` says which there are.

Source: PTX ISA, "TensorCore 5th Generation Instructions" and "Matrix Shape" of tcgen05. Assemblers before
13.5 take block scaling without a vector size, or with ``.block16`` and ``.block32``, from PTX 8.8 on;
that is what the table says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ptxlab.isa.legality import Version
from ptxlab.matrix.form import (
    AsyncInstruction,
    Shapes,
    SignatureOperand,
    address,
    constant,
    descriptor,
    register,
    tensor_memory,
)
from ptxlab.matrix.multiplication import EVERY_N, INTEGER_N
from ptxlab.matrix.tensor_memory import SM_10X

SM_10X_ONLY = ("sm_100a", "sm_103a", "sm_107a", "sm_110a")
SM_100_AND_110_ONLY = ("sm_100a", "sm_110a")
VARIANTS = ("ss", "ts")
_GROUPS = (1, 2)
_EVERY_16 = tuple(range(16, 257, 16))
_EVERY_32 = tuple(range(32, 257, 32))


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of multiplication, with its block scaling: dense k, what it needs, sparse ones more."""

    name: str
    k: int
    targets: tuple[str, ...]
    sparse_targets: tuple[str, ...]
    ptx: Version = (8, 6)


_PLAIN = (
    _Kind("f16", 16, SM_10X, SM_10X),
    _Kind("tf32", 8, SM_10X, SM_10X),
    _Kind("f8f6f4", 32, SM_10X, SM_10X),
    _Kind("i8", 32, SM_100_AND_110_ONLY, SM_100_AND_110_ONLY),
)
_SCALED = (
    _Kind("mxf8f6f4.block_scale", 32, SM_10X, SM_10X, (8, 8)),
    _Kind("mxf8f6f4.block_scale.scale_vec::1X", 32, SM_10X_ONLY, SM_10X_ONLY),
    _Kind("mxf8f6f4.block_scale.block32", 32, SM_10X, SM_10X, (8, 8)),
    _Kind("mxf4.block_scale", 64, SM_10X, SM_10X_ONLY, (8, 8)),
    _Kind("mxf4.block_scale.scale_vec::2X", 64, SM_10X_ONLY, SM_10X_ONLY),
    _Kind("mxf4.block_scale.block32", 64, SM_10X, SM_10X_ONLY, (8, 8)),
    _Kind("mxf4nvf4.block_scale.scale_vec::2X", 64, SM_10X_ONLY, SM_10X_ONLY, (8, 7)),
    _Kind("mxf4nvf4.block_scale.scale_vec::4X", 64, SM_10X_ONLY, SM_10X_ONLY, (8, 7)),
    _Kind("mxf4nvf4.block_scale.block16", 64, SM_10X, SM_10X_ONLY, (8, 8)),
    _Kind("mxf4nvf4.block_scale.block32", 64, SM_10X, SM_10X_ONLY, (8, 8)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCoreProduct(AsyncInstruction):
    """One ``tcgen05.mma``: its ``kind``, how often scales come along k, the CTAs that execute it together.

    ``sparse`` says it of A, ``stationary`` that it is a ``.ws``.
    """

    kind: str
    scaling: str
    group: int
    sparse: bool
    stationary: bool

    @property
    def rounds(self) -> bool:
        """Sums of all but integers are rounded, in pairs, in ``.ws`` and with a sparse A as in other products."""
        return self.kind != "i8"

    @property
    def optional(self) -> tuple[SignatureOperand, ...]:
        """The operand that may stand behind the others."""
        if self.stationary:
            return (register("zero-column-mask-desc", "the columns of B that are zero", "b64"),)
        if self.kind in ("f16", "tf32"):
            shift = (range(16),)
            return (constant("scale-input-d", "s: D * 2**-s is added", "1", shift),)
        return ()

    def written(self, counts: Sequence[int]) -> tuple[SignatureOperand, ...]:
        """Return what the operands are: a mask of lanes may stand in braces before the last one."""
        last = len(self.signature) - 1
        if self.stationary or self.scaling or len(counts) <= last or counts[last] == 1:
            return AsyncInstruction.written(self, counts)
        mask = SignatureOperand(
            "disable-output-lane", "source", "a mask of lanes of D not written", 4 * self.group
        )
        several = [*counts[:last], *counts[last + 1 :]]
        operands = AsyncInstruction.written(self, several)
        return (*operands[:last], mask, *operands[last:])

    @property
    def long_k_targets(self) -> tuple[str, ...]:
        """The targets on which an instruction descriptor may say that k is LONG_K."""
        return ("sm_103a",) if self.kind in ("mxf4", "mxf4nvf4") and not self.sparse else ()

    @property
    def blocks(self) -> int:
        """How many numbers of A along k, as they are stored, share a scale; 0 without scales.

        Of a sparse A they stand for twice as many of B (CUTLASS, ``mma_traits_sm100.hpp``: ``SFVecSize``).
        """
        if not self.scaling:
            return 0
        return 16 if self.scaling in ("scale_vec::4X", "block16") else 32


def _multiplications() -> Iterator[TensorCoreProduct]:
    choices = (False, True), _GROUPS, VARIANTS
    ms: tuple[int, ...]
    ns: tuple[int, ...]
    for kind, sparse, group, variant in product(_PLAIN, *choices):
        ns = INTEGER_N if kind.name == "i8" else EVERY_N
        if group == 2:
            ns = _EVERY_32 if kind.name == "i8" else _EVERY_16
        ms = (64, 128) if group == 1 else (128, 256)
        yield _multiplication(kind, group, variant, ms, ns, sparse=sparse)
    for kind, sparse, variant in product(_PLAIN, (False, True), VARIANTS):
        ns = (64, 128) if sparse else (64, 128, 256)
        yield _multiplication(kind, 1, variant, (32, 64, 128), ns, sparse=sparse, stationary=True)
    for kind, sparse, group, variant in product(_SCALED, *choices):
        ms = (128,) if group == 1 else (256,) if sparse else (128, 256)
        ns = EVERY_N if group == 1 else _EVERY_16
        yield _multiplication(kind, group, variant, ms, ns, sparse=sparse)


def _multiplication(
    kind: _Kind,
    group: int,
    variant: str,
    ms: tuple[int, ...],
    ns: tuple[int, ...],
    *,
    sparse: bool,
    stationary: bool = False,
) -> TensorCoreProduct:
    """Return the form for the shapes of ``ms`` and ``ns``; ``stationary`` is that of the weights."""
    scaled = kind in _SCALED
    opcode = f"tcgen05.mma{'.ws' if stationary else ''}{'.sp' if sparse else ''}"
    meaning = "D = (A * scales) * (B * scales) + D" if scaled else "D = A * B + D"
    operands = [
        tensor_memory("d-tmem", "D, which is added to"),
        descriptor("a", "A") if variant == "ss" else tensor_memory("a-tmem", "A"),
        descriptor("b", "B"),
    ]
    if sparse:
        operands.append(tensor_memory("sp-meta-tmem", "the metadata of A"))
    operands.append(register("idesc", "instruction descriptor: shape, types, signs"))
    if scaled:
        operands.append(tensor_memory("scale-A-tmem", "the scales of A"))
        operands.append(tensor_memory("scale-B-tmem", "those of B"))
    operands.append(register("enable-input-d", "whether D is added, or taken as zero", "pred"))
    name, _, scaling = kind.name.partition(".block_scale")
    return TensorCoreProduct(
        opcode + (".block_scale" if scaled else ""),
        f"{opcode}.cta_group::{group}.kind::{kind.name}",
        kind.sparse_targets if sparse else kind.targets,
        kind.ptx,
        f"TensorCore 5th Generation Instructions: {opcode}",
        variant=variant,
        meaning=meaning + (", weight stationary" if stationary else ""),
        signature=tuple(operands),
        shapes=(Shapes(ms, ns, kind.k << sparse),),
        kind=name,
        scaling=scaling.removeprefix(".") or ("default" if scaled else ""),
        group=group,
        sparse=sparse,
        stationary=stationary,
    )


_ALLOCATION = "alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit"


def _form(
    verb: str,
    ending: str,
    meaning: str,
    *operands: SignatureOperand,
    title: str = "Tensorcore",
    section: str = "",
    targets: tuple[str, ...] = SM_10X,
    ptx: Version = (8, 6),
) -> AsyncInstruction:
    """Return what multiplies nothing. The ISA spells ``title`` in two ways."""
    return AsyncInstruction(
        f"tcgen05.{verb}",
        f"tcgen05.{verb}{ending}",
        targets,
        ptx,
        f"{title} 5th Generation Instructions: tcgen05.{section or verb}",
        meaning=meaning,
        signature=operands,
    )


def _others() -> Iterator[AsyncInstruction]:
    first = tensor_memory("taddr", "the first lane and column")
    halves = ("64x128b.warpx2::02_13", "64x128b.warpx2::01_23")
    shapes = ("128x256b", "4x256b", "128x128b", *halves, "32x128b.warpx4")
    formats = ("", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64")
    for group, shape, packed in product(_GROUPS, shapes, formats):
        meaning = "shared memory to Tensor Memory" + (", unpacked to bytes" if packed else "")
        ending = f".cta_group::{group}.{shape}{packed}"
        yield _form("cp", ending, meaning, first, descriptor("s", "the source"))
    meaning = "32 bytes of every lane but the first of 32 move one lane down"
    for group in _GROUPS:
        ending = f".cta_group::{group}.down"
        yield _form("shift", ending, meaning, first, targets=SM_10X_ONLY)
    yield from _allocation()
    yield from _synchronisation()


def _allocation() -> Iterator[AsyncInstruction]:
    meaning = "columns: a power of two from 32 to 512"
    columns = SignatureOperand("nCols", "constant", meaning, value="32", braces=False, fixed=False)
    allocated = register("taddr", "Tensor Memory address of what was allocated")
    written = address("shared address to which the Tensor Memory address is written")
    forms: tuple[tuple[str, str, str, tuple[SignatureOperand, ...]], ...] = (
        ("alloc", ".shared::cta.b32", "Tensor Memory is allocated", (written, columns)),
        ("dealloc", ".b32", "Tensor Memory is given back", (allocated, columns)),
        ("relinquish_alloc_permit", "", "no more allocations will follow", ()),
    )
    for (verb, kind, meaning, operands), group in product(forms, _GROUPS):
        ending = f".cta_group::{group}.sync.aligned{kind}"
        yield _form(verb, ending, meaning, *operands, section=_ALLOCATION)


def _synchronisation() -> Iterator[AsyncInstruction]:
    barrier = address("shared address of the mbarrier")
    short, mask = (
        register("ctaMask", "the CTAs of the cluster that are told", kind)
        for kind in ("b16", "b32")
    )
    told: tuple[tuple[str, tuple[SignatureOperand, ...], tuple[str, ...], Version], ...] = (
        ("", (barrier,), SM_10X, (8, 6)),
        (".multicast::cluster", (barrier, short), SM_10X, (8, 6)),
        (".multicast::cluster::32b", (barrier, mask), ("sm_107f",), (9, 4)),
    )
    meaning = "an mbarrier is told when what was issued before is done"
    for group, (multicast, operands, targets, ptx) in product(_GROUPS, told):
        ending = f".cta_group::{group}.mbarrier::arrive::one.shared::cluster{multicast}.b64"
        yield _form(
            "commit", ending, meaning, *operands, title="TensorCore", targets=targets, ptx=ptx
        )
    for what in ("ld", "st"):
        yield _form("wait", f"::{what}.sync.aligned", f"every tcgen05.{what} of the thread is done")
    for when in ("before", "after"):
        meaning = f"tcgen05 instructions {when} are ordered with synchronisation of threads"
        yield _form("fence", f"::{when}_thread_sync", meaning, title="TensorCore")


TCGEN05: tuple[AsyncInstruction, ...] = (*_multiplications(), *_others())
