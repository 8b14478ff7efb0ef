"""The GEMM ladder: algorithms, problems, a float64 reference with a proven bound, and the run."""

from ptxlab.gemm.algorithms import ALGORITHMS, Algorithm, Tile, find_algorithm
from ptxlab.gemm.problem import Problem
from ptxlab.gemm.run import GemmResult, run

__all__ = ["ALGORITHMS", "Algorithm", "GemmResult", "Problem", "Tile", "find_algorithm", "run"]
