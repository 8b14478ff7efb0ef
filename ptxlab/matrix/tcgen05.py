"""The ``tcgen05`` instructions but for loads and stores: multiplication, copies, allocation, waiting.

``tcgen05.mma`` multiplies A, in shared memory (variant ``ss``) or Tensor Memory (``ts``), with B in shared
memory, and adds to D in Tensor Memory. Its shape and types are no part of its name but of an instruction
descriptor (``ptxlab.matrix.instruction_descriptor``); ``shapes`` says which there are.

Source: PTX ISA, "TensorCore 5th Generation Instructions" and "Matrix Shape" of tcgen05. Assemblers before
13.5 take block scaling without a vector size, or with ``.block16`` and ``.block32``, from PTX 8.8 on;
that is what the table says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ptxlab.matrix.asynchronous import AsyncInstruction, Shapes
from ptxlab.matrix.form import Version
from ptxlab.matrix.operand import SignatureOperand, descriptor, predicate, tensor_memory
from ptxlab.matrix.tensor_memory import SM_10X

SM_10X_ONLY = ("sm_100a", "sm_103a", "sm_107a", "sm_110a")
SM_100_AND_110_ONLY = ("sm_100a", "sm_110a")
VARIANTS = ("ss", "ts")
_MMA_TITLE = "TensorCore 5th Generation Instructions: tcgen05.mma"
_TITLE = "Tensorcore 5th Generation Instructions: tcgen05"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of multiplication: dense k, what it needs, and whether it has a form ``.ws``."""

    name: str
    k: int
    targets: tuple[str, ...]
    ws: bool = True


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A kind and vector size of block scaling; what dense and sparse forms need, and least PTX."""

    kind: str
    size: str
    k: int
    targets: tuple[str, ...]
    sparse_targets: tuple[str, ...]
    minimum_ptx: Version


_EVERY_8 = tuple(range(8, 257, 8))
_EVERY_16 = tuple(range(16, 257, 16))
_INTEGER_N = (*range(8, 33, 8), *range(48, 257, 16))
_KINDS = (
    _Kind("f16", 16, SM_10X),
    _Kind("tf32", 8, SM_10X),
    _Kind("f8f6f4", 32, SM_10X),
    _Kind("i8", 32, SM_100_AND_110_ONLY),
)
_SCALED = (
    _Scaled("mxf8f6f4", "", 32, SM_10X, SM_10X, (8, 8)),
    _Scaled("mxf8f6f4", ".scale_vec::1X", 32, SM_10X_ONLY, SM_10X_ONLY, (8, 6)),
    _Scaled("mxf8f6f4", ".block32", 32, SM_10X, SM_10X, (8, 8)),
    _Scaled("mxf4", "", 64, SM_10X, SM_10X_ONLY, (8, 8)),
    _Scaled("mxf4", ".scale_vec::2X", 64, SM_10X_ONLY, SM_10X_ONLY, (8, 6)),
    _Scaled("mxf4", ".block32", 64, SM_10X, SM_10X_ONLY, (8, 8)),
    _Scaled("mxf4nvf4", ".scale_vec::2X", 64, SM_10X_ONLY, SM_10X_ONLY, (8, 7)),
    _Scaled("mxf4nvf4", ".scale_vec::4X", 64, SM_10X_ONLY, SM_10X_ONLY, (8, 7)),
    _Scaled("mxf4nvf4", ".block16", 64, SM_10X, SM_10X_ONLY, (8, 8)),
    _Scaled("mxf4nvf4", ".block32", 64, SM_10X, SM_10X_ONLY, (8, 8)),
)

_COPIES = ("128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23")
_FORMATS = ("", ".b8x16.b6x16_p32", ".b8x16.b4x16_p64")
_GROUPS = (1, 2)


def _multiplication(
    *, variant: str, sparse: bool, scaled: bool = False
) -> tuple[SignatureOperand, ...]:
    a = descriptor("a", "A") if variant == "ss" else tensor_memory("a-tmem", "A")
    scales = (
        (
            tensor_memory("scale-A-tmem", "the scales of A"),
            tensor_memory("scale-B-tmem", "those of B"),
        )
        if scaled
        else ()
    )
    return (
        tensor_memory("d-tmem", "D, which is added to"),
        a,
        descriptor("b", "B"),
        *([tensor_memory("sp-meta-tmem", "the metadata of A")] if sparse else []),
        SignatureOperand(
            "idesc", "source", "instruction descriptor: shape, types, signs", braces=False
        ),
        *scales,
        predicate("enable-input-d", "whether D is added, or taken as zero"),
    )


def _plain_shapes(kind: _Kind, group: int, k: int) -> tuple[Shapes, ...]:
    if kind.name == "i8":
        return (
            Shapes((64, 128), _INTEGER_N, k)
            if group == 1
            else Shapes((128, 256), tuple(range(32, 257, 32)), k),
        )
    return (Shapes((64, 128), _EVERY_8, k) if group == 1 else Shapes((128, 256), _EVERY_16, k),)


def _multiplications() -> Iterator[AsyncInstruction]:
    meaning = "D = A * B + D"
    for kind, sparse, group, variant in product(_KINDS, (False, True), _GROUPS, VARIANTS):
        opcode = "tcgen05.mma.sp" if sparse else "tcgen05.mma"
        yield AsyncInstruction(
            opcode,
            f"{opcode}.cta_group::{group}.kind::{kind.name}",
            kind.targets,
            (8, 6),
            f"{_MMA_TITLE}{'.sp' if sparse else ''}",
            variant=variant,
            meaning=meaning,
            signature=_multiplication(variant=variant, sparse=sparse),
            shapes=_plain_shapes(kind, group, kind.k << sparse),
        )
    for kind, sparse, variant in product(_KINDS, (False, True), VARIANTS):
        opcode = "tcgen05.mma.ws.sp" if sparse else "tcgen05.mma.ws"
        yield AsyncInstruction(
            opcode,
            f"{opcode}.cta_group::1.kind::{kind.name}",
            kind.targets,
            (8, 6),
            f"{_MMA_TITLE}.ws{'.sp' if sparse else ''}",
            variant=variant,
            meaning=f"{meaning}, weight stationary",
            signature=_multiplication(variant=variant, sparse=sparse),
            shapes=(
                Shapes((32, 64, 128), (64, 128) if sparse else (64, 128, 256), kind.k << sparse),
            ),
        )
    for line, sparse, group, variant in product(_SCALED, (False, True), _GROUPS, VARIANTS):
        opcode = "tcgen05.mma.sp" if sparse else "tcgen05.mma"
        m = (128,) if group == 1 else (256,) if sparse else (128, 256)
        yield AsyncInstruction(
            f"{opcode}.block_scale",
            f"{opcode}.cta_group::{group}.kind::{line.kind}.block_scale{line.size}",
            line.sparse_targets if sparse else line.targets,
            line.minimum_ptx,
            f"{_MMA_TITLE}{'.sp' if sparse else ''}",
            variant=variant,
            meaning="D = (A * scales) * (B * scales) + D",
            signature=_multiplication(variant=variant, sparse=sparse, scaled=True),
            shapes=(Shapes(m, _EVERY_8 if group == 1 else _EVERY_16, line.k << sparse),),
        )


def _others() -> Iterator[AsyncInstruction]:
    address = tensor_memory("taddr", "the first lane and column")
    shapes = (*_COPIES, "32x128b.warpx4")
    for group, shape, formats in product(_GROUPS, shapes, _FORMATS):
        yield AsyncInstruction(
            "tcgen05.cp",
            f"tcgen05.cp.cta_group::{group}.{shape}{formats}",
            SM_10X,
            (8, 6),
            f"{_TITLE}.cp",
            meaning="shared memory to Tensor Memory" + (", unpacked to bytes" if formats else ""),
            signature=(address, descriptor("s", "the source")),
        )
    for group in _GROUPS:
        yield AsyncInstruction(
            "tcgen05.shift",
            f"tcgen05.shift.cta_group::{group}.down",
            SM_10X_ONLY,
            (8, 6),
            f"{_TITLE}.shift",
            meaning="32 bytes of every lane but the last move one lane down",
            signature=(address,),
        )
    yield from _allocation()
    yield from _synchronisation()


def _allocation() -> Iterator[AsyncInstruction]:
    title = f"{_TITLE}.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit"
    columns = SignatureOperand(
        "nCols", "constant", "columns: a power of two from 32 to 512", value="32"
    )
    allocated = tensor_memory("taddr", "what was allocated")
    bare = SignatureOperand("taddr", "source", allocated.meaning, braces=False)
    written = SignatureOperand(
        "p", "address", "shared address to which the Tensor Memory address is written"
    )
    forms: tuple[tuple[str, str, str, tuple[SignatureOperand, ...]], ...] = (
        ("alloc", "sync.aligned.shared::cta.b32", "Tensor Memory is allocated", (written, columns)),
        ("dealloc", "sync.aligned.b32", "Tensor Memory is given back", (bare, columns)),
        ("relinquish_alloc_permit", "sync.aligned", "no more allocations will follow", ()),
    )
    for (verb, ending, meaning, operands), group in product(forms, _GROUPS):
        name = f"tcgen05.{verb}"
        full = f"{name}.cta_group::{group}.{ending}"
        yield AsyncInstruction(
            name, full, SM_10X, (8, 6), title, meaning=meaning, signature=operands
        )


def _synchronisation() -> Iterator[AsyncInstruction]:
    barrier = SignatureOperand("p", "address", "shared address of the mbarrier")
    mask = SignatureOperand(
        "ctaMask", "source", "the CTAs of the cluster that are told", 1, "b16", None, False
    )
    title = f"{_TITLE.replace('Tensorcore', 'TensorCore')}"
    for group, (multicast, operands) in product(
        _GROUPS, (("", (barrier,)), (".multicast::cluster", (barrier, mask)))
    ):
        yield AsyncInstruction(
            "tcgen05.commit",
            f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster{multicast}.b64",
            SM_10X,
            (8, 6),
            f"{title}.commit",
            meaning="an mbarrier is told when what was issued before is done",
            signature=operands,
        )
    for what in ("ld", "st"):
        yield AsyncInstruction(
            "tcgen05.wait",
            f"tcgen05.wait::{what}.sync.aligned",
            SM_10X,
            (8, 6),
            f"{_TITLE}.wait",
            meaning=f"every tcgen05.{what} of the thread is done",
        )
    for when in ("before", "after"):
        yield AsyncInstruction(
            "tcgen05.fence",
            f"tcgen05.fence::{when}_thread_sync",
            SM_10X,
            (8, 6),
            f"{title}.fence",
            meaning=f"tcgen05 instructions {when} are ordered with synchronisation of threads",
        )


TCGEN05: tuple[AsyncInstruction, ...] = (*_multiplications(), *_others())
