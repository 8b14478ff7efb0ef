"""What the instructions are: types, targets, matrix instructions and the layout of their operands."""

from ptxlab.isa.catalog import INSTRUCTIONS, UnknownInstruction, find
from ptxlab.isa.fragment import LANES, FragmentLayout, Place
from ptxlab.isa.instruction import MatrixInstruction, Requires
from ptxlab.isa.layout import Layout
from ptxlab.isa.ldmatrix import LDMATRIX, MOVMATRIX, STMATRIX, LdMatrix, MovMatrix, StMatrix
from ptxlab.isa.mma import MMA, MMA_BLOCK_SCALED
from ptxlab.isa.mma_sp import MMA_SPARSE, MMA_SPARSE_BLOCK_SCALED
from ptxlab.isa.scale import Scale
from ptxlab.isa.sparse import InvalidMetadata, Metadata
from ptxlab.isa.swizzle import ComposedLayout, Swizzle, Tiling
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS, Target
from ptxlab.isa.types import TYPES, ScalarType
from ptxlab.isa.wmma import WMMA, WMMA_MOVES, WmmaMove

__all__ = [
    "DEFAULT_TARGET",
    "INSTRUCTIONS",
    "LANES",
    "LDMATRIX",
    "MMA",
    "MMA_BLOCK_SCALED",
    "MMA_SPARSE",
    "MMA_SPARSE_BLOCK_SCALED",
    "MOVMATRIX",
    "STMATRIX",
    "TARGETS",
    "TYPES",
    "WMMA",
    "WMMA_MOVES",
    "ComposedLayout",
    "FragmentLayout",
    "InvalidMetadata",
    "Layout",
    "LdMatrix",
    "MatrixInstruction",
    "Metadata",
    "MovMatrix",
    "Place",
    "Requires",
    "ScalarType",
    "Scale",
    "StMatrix",
    "Swizzle",
    "Target",
    "Tiling",
    "UnknownInstruction",
    "WmmaMove",
    "find",
]
