"""What the instructions are: types, targets, matrix instructions and the layout of their operands."""

from ptxlab.isa.catalog import INSTRUCTIONS, UnknownInstruction, find
from ptxlab.isa.fragment import LANES, FragmentLayout, Place
from ptxlab.isa.layout import Layout, Swizzle, SwizzledLayout
from ptxlab.isa.ldmatrix import LDMATRIX, LdMatrix
from ptxlab.isa.mma import MMA, MatrixInstruction
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS, Target
from ptxlab.isa.types import TYPES, ScalarType

__all__ = [
    "DEFAULT_TARGET",
    "INSTRUCTIONS",
    "LANES",
    "LDMATRIX",
    "MMA",
    "TARGETS",
    "TYPES",
    "FragmentLayout",
    "Layout",
    "LdMatrix",
    "MatrixInstruction",
    "Place",
    "ScalarType",
    "Swizzle",
    "SwizzledLayout",
    "Target",
    "UnknownInstruction",
    "find",
]
