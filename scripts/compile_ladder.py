"""Write the PTX of the ladder's kernels that comes with ptxlab: ptxlab/gemm/compiled.json.xz.

python scripts/compile_ladder.py

It is for machines without NVRTC. A test compares what both compute, to the bit.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path

from ptxlab import resources
from ptxlab.device.loading import load_ptx
from ptxlab.gemm import compiled
from ptxlab.gemm.algorithms import ALGORITHMS, Algorithm
from ptxlab.gemm.problem import Problem
from ptxlab.toolchain.nvrtc import version

FILE = Path(compiled.__file__).with_name(compiled.FILE)


def kernels() -> Iterator[tuple[Algorithm, tuple[str, ...]]]:
    """Yield every kernel of the ladder in CUDA C with the options for each of its types and tiles."""
    for algorithm in ALGORITHMS.values():
        if algorithm.file.endswith(".cu"):
            for dtype, acc in algorithm.types:
                for _, tile in algorithm.tiles(dtype):
                    yield algorithm, algorithm.options(Problem(1, 1, 1, dtype, acc), tile)


def ptx_of(algorithm: Algorithm, options: tuple[str, ...]) -> str:
    """Compile a kernel."""
    target = compiled.target_of(algorithm)
    module = load_ptx(resources.path(algorithm.file), target, options)
    return compiled.bare(module.source.text)


def main() -> None:
    made = {compiled.digest(*kernel): ptx_of(*kernel) for kernel in kernels()}
    text = json.dumps({"nvrtc": version(), "kernels": made}, indent=1)
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{FILE}: {len(made)} kernels, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
