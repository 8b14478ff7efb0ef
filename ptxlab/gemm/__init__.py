"""The GEMM ladder: algorithms, problems, a float64 reference with a proven bound, and the run."""

from ptxlab.gemm.algorithms import ALGORITHMS, Algorithm, Rung
from ptxlab.gemm.ladder import LADDER, find_algorithm
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.run import GemmResult, run
from ptxlab.gemm.tile import Tile

__all__ = [
    "ALGORITHMS",
    "LADDER",
    "Algorithm",
    "GemmResult",
    "Problem",
    "Rung",
    "Tile",
    "find_algorithm",
    "run",
]
