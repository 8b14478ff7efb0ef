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


def kernels() -> Iterator[tuple[Algorithm, str, tuple[str, ...]]]:
    """Yield every kernel of the ladder in CUDA C with its types of A and B, and the options for each of them and its tiles."""
    for algorithm in ALGORITHMS.values():
        if algorithm.file.endswith(".cu"):
            for dtype, acc in algorithm.types:
                for _, tile in algorithm.tiles(dtype):
                    options = algorithm.options(Problem(1, 1, 1, dtype, acc), tile)
                    yield algorithm, dtype, options


def ptx_of(algorithm: Algorithm, dtype: str, options: tuple[str, ...]) -> str:
    """Compile a kernel."""
    target = compiled.target_of(algorithm, dtype)
    module = load_ptx(resources.path(algorithm.file), target, options)
    return compiled.bare(module.source.text)


def main() -> None:
    made = {
        compiled.digest(algorithm, options): ptx_of(algorithm, dtype, options)
        for algorithm, dtype, options in kernels()
    }
    text = json.dumps({"nvrtc": version(), "kernels": made}, indent=1)
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{FILE}: {len(made)} kernels, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
