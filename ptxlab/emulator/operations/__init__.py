"""What each instruction does, one module an opcode family; importing this registers them all."""

from ptxlab.emulator.operations import (
    address,
    approximate,
    arithmetic,
    atomic,
    bits,
    compare,
    convert,
    copy,
    logic,
    matrix,
    memory,
    order,
    shuffle,
    vote,
    warp,
)

__all__ = [
    "address",
    "approximate",
    "arithmetic",
    "atomic",
    "bits",
    "compare",
    "convert",
    "copy",
    "logic",
    "matrix",
    "memory",
    "order",
    "shuffle",
    "vote",
    "warp",
]
