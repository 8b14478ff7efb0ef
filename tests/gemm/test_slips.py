"""What a slip of the pen in a kernel would be, each of which a run of the whole GEMM must notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxlab import resources
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError
from ptxlab.gemm import ALGORITHMS, Problem, run
from tests.gemm.simt import QUICK, one_of_each

GEMM = "kernels/gemm.cuh"

# (algorithm, file, what is there, what could be there instead)
SLIPS = [
    ("tiled_register", GEMM, "min(GROUP, down - GROUP * group)", "GROUP"),
    ("tiled_register", GEMM, "member / height * WIDTH", "member % height * WIDTH"),
    ("tiled_register", GEMM, "data + s64(column) * leading + row", "data + s64(row) * leading + column"),
    ("tiled_register", GEMM, "row < rows && column < columns ?", "row <= rows && column < columns ?"),
    ("tiled_register", GEMM, "row < rows && column < columns ?", "row < rows ?"),
    ("tiled_register", GEMM, "if (row < m && column < n)", "if (row < m)"),
    ("tiled_register", GEMM, "if (row < m && column < n)", "if (column < n)"),
    ("tiled_register", GEMM, "? i % HEIGHT : i / WIDTH", "? i / HEIGHT : i / WIDTH"),
    ("naive", GEMM, "__fmul_rn(alpha, sum)", "sum"),
    ("naive", GEMM, "if (beta != 0) value", "value"),
    ("naive", GEMM, "__fmaf_rn(beta, to_f32(old), value)", "__fadd_rn(to_f32(old), value)"),
    ("naive", GEMM, "__fadd_rn(value, bias[column])", "__fadd_rn(value, bias[0])"),
    ("naive", GEMM, "value < 0 ? 0 : value", "value < 0 ? -value : value"),
    ("naive", "kernels/naive.cu", "row >= m || column >= n", "row >= m"),
    ("naive", "kernels/naive.cu", "p < k", "p < k - 1"),
    ("coalescing", "kernels/coalescing.cu", "row >= m || column >= n", "column >= n"),
    ("coalescing", "kernels/coalescing.cu", "sum += A", "sum = A"),
    ("tiled", "kernels/tiled.cu", "step < k; step", "step + BK <= k; step"),
    ("tiled", "kernels/tiled.cu", "tiles.a[row][p]", "tiles.a[p][row]"),
    ("tiled", "kernels/tiled.cu", "tile.row, step", "tile.row, 0"),
    ("tiled_register", "kernels/tiled_register.cu", "tiles.a[row + i][p]", "tiles.a[row][p]"),
    ("tiled_register", "kernels/tiled_register.cu", "TM * (threadIdx.x / BN)", "threadIdx.x / BN"),
    ("thread_tiled_4x4", "kernels/thread_tiled.cu", "min(row + DOWN * i, m - 1)", "row + DOWN * i"),
    ("thread_tiled_4x4", "kernels/thread_tiled.cu", "min(column + ACROSS * j, n - 1)", "column + ACROSS * j"),
    ("thread_tiled_8x4", "kernels/thread_tiled.cu", "D.store(row + DOWN * i", "D.store(row + i"),
    ("block_tiled_vectorized", GEMM, "if (row >= m) return;", ""),
    ("block_tiled_vectorized", GEMM, "column + COUNT <= n", "column < n"),
    ("block_tiled_vectorized", GEMM, "if (column + i < n) to[i]", "to[i]"),
    ("block_tiled_vectorized", GEMM, "% bytes == 0", "% 4 == 0"),
]  # fmt: skip


def problems(name: str) -> list[Problem]:
    """Problems that between them meet every line of a kernel, the cheap ones first."""
    types = ALGORITHMS[name].types[0]
    return [
        Problem(130, 135, 70, *types, lda=79, ldb=137, ldd=139),
        Problem(130, 135, 70, *types, layout="tt", epilogue="bias+relu", alpha=0.5, beta=2),
        Problem(130, 134, 70, *types, lda=72, ldb=136, ldd=136),
    ]


@pytest.mark.parametrize(("name", "file", "old", "new"), one_of_each(SLIPS))
def test_a_slip_is_noticed(
    device: Device,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    file: str,
    old: str,
    new: str,
) -> None:
    kernel = ALGORITHMS[name].file
    shipped = resources.path
    for each in {kernel, file}:
        text = shipped(each).read_text()
        assert each != file or old in text
        (tmp_path / Path(each).name).write_text(text.replace(old, new) if each == file else text)
    monkeypatch.setattr(
        resources, "path", lambda n: tmp_path / Path(n).name if n == kernel else shipped(n)
    )

    def wrong(problem: Problem) -> bool:
        try:
            return not run(
                device, problem, ALGORITHMS[name], {"GROUP": 2, **QUICK.get(name, {})}
            ).passed
        except LaunchError:
            return True

    assert any(map(wrong, problems(name)))
