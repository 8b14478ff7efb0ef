"""Every shipped program: its header, its assembly, and its Run lines executed and checked."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxlab import resources
from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.isa.targets import TARGETS as KNOWN
from ptxlab.syntax.header import Header, read_header
from ptxlab.toolchain import assemble_cuda, compile_cuda, link_ptx
from ptxlab.verbs.launching import values
from ptxlab.verbs.launching.arrays import ArrayValue
from ptxlab.verbs.launching.values import MapValue
from tests.together import in_one_test

NAMES = resources.names()
PROGRAMS = [name for name in NAMES if not name.endswith(".cuh")]
HANDWRITTEN = [name for name in NAMES if name.endswith(".ptx")]
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
MAPPED = [name for name in PROGRAMS if re.match("kernels/(wgmma|tcgen05|block_scaled)", name)]
ONLY_MAPPED = {"A", "B"}


def text_of(name: str) -> str:
    return resources.path(name).read_text()


def header_of(name: str) -> Header:
    return read_header(text_of(name), name)


# ---- headers --------------------------------------------------------------------------------


@in_one_test("name", NAMES)
def test_header_says_what_the_file_is(name: str) -> None:
    header = header_of(name)
    assert header.title.endswith(".")
    assert len(header.title) < 100
    assert header.idea
    assert header.instruction
    assert header.section


@in_one_test("name", PROGRAMS)
def test_header_says_how_to_run_it(name: str) -> None:
    header = header_of(name)
    assert header.launch
    assert header.expect
    entries = re.findall(
        r"\.entry (\w+)|extern \"C\" __global__ [^;{]*?(\w+)\((?=int)", text_of(name)
    )
    declared = [first or second for first, second in entries]
    runs = [run_of(words) for words in header.runs]
    assert [run.kernel for run in runs] == declared
    assert {run.file for run in runs} == {name}
    given = {argument for run in runs for argument, _ in run.args}
    assert set(header.parameters) == given - ONLY_MAPPED


@in_one_test("name", [n for n in PROGRAMS if n.endswith(".cu")])
def test_header_lists_the_macros(name: str) -> None:
    assert set(header_of(name).macros) == set(
        re.findall(r"#ifndef (\w+)\n#define \1 ", text_of(name))
    )


@in_one_test("name", NAMES)
def test_lines_fit_the_page(name: str) -> None:
    assert max(map(len, text_of(name).splitlines())) <= 100


# ---- assembly -------------------------------------------------------------------------------


def needed(name: str) -> str:
    """The target a program is written for."""
    if name.endswith(".cu"):
        usual = "sm_90a" if name in MAPPED else "sm_80"
        return header_of(name).target or usual
    match = re.search(r"^\.target (\w+)", text_of(name), re.MULTILINE)
    assert match
    return match[1]


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        # Of the ladder's rungs with tensor maps, which take long, tests/gemm assembles all.
        pytest.param(n, a, marks=[pytest.mark.thorough] * (n in MAPPED and "_" in n))
        for n in PROGRAMS
        for a in TARGETS
        if KNOWN[a].runs(needed(n))
    ],
)
def test_assembles_without_spills(name: str, arch: str) -> None:
    """Where setmaxnreg counts, as a whole."""
    text, path = text_of(name), str(resources.path(name))
    if name in MAPPED:
        kernels = assemble_cuda(text, path=path, arch=arch)[1].kernels
    else:
        if name.endswith(".cu"):
            text = compile_cuda(text, path=path, arch="sm_80")
        kernels = link_ptx(text, arch=arch, path=name).kernels
    for run in header_of(name).runs:
        used = kernels[run_of(run).kernel]
        assert used.spill_stores == used.spill_loads == 0
        assert used.registers <= 255


def functions_of(name: str) -> dict[str, str]:
    """The device functions of a PTX file with the comment above each, by their first lines."""
    functions = re.findall(
        r"((?://[^\n]*\n)*)(\.func .*?)\n\{\n(.*?)\n\}\n", text_of(name), re.DOTALL
    )
    return {signature: comment + body for comment, signature, body in functions}


def test_functions_of_the_same_name_are_the_same() -> None:
    seen: dict[str, str] = {}
    shared = 0
    for name in HANDWRITTEN:
        for signature, body in functions_of(name).items():
            shared += signature in seen
            assert seen.setdefault(signature, body) == body, f"{signature} in {name}"
    assert shared >= 8


@pytest.mark.parametrize("types", ["bf16_f32", "f16_f32", "f16_f16"])
def test_mma_programs_issue_one_mma(types: str) -> None:
    code = [
        line for line in text_of(f"ptx/mma_m16n8k16_{types}.ptx").splitlines() if "//" not in line
    ]
    dtype, acc = types.split("_")
    (line,) = [line for line in code if "mma.sync" in line]
    assert line.strip() == f"mma.sync.aligned.m16n8k16.row.col.{acc}.{dtype}.{dtype}.{acc}"


# ---- Run lines ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    file: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    cluster: tuple[int, ...] | None
    args: tuple[tuple[str, str], ...]


def _dim(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def run_of(words: tuple[str, ...]) -> Run:
    """Read a Run line, apart from the command line's own parser."""
    assert words[:2] == ("ptxlab", "run")
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--grid", type=_dim, required=True)
    parser.add_argument("--block", type=_dim, required=True)
    parser.add_argument("--shared", type=int, default=0)
    parser.add_argument("--cluster", type=_dim)
    parser.add_argument("--arg", action="append", type=values.split)
    read = parser.parse_args(words[2:])
    launch = read.file, read.kernel, read.grid, read.block, read.shared, read.cluster
    return Run(*launch, tuple(read.arg))


def execute(device: Device, run: Run, source: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Launch a Run line on ``source``; return the arguments as they were and as they are then.

    The emulator is the target that the program is for where it is another one.
    """
    if device.kind == "emulator" and not device.target.runs(needed(run.file)):
        device = open_device("emulator", arch=needed(run.file))
    before: dict[str, Any] = {}
    given: list[Any] = []
    for name, text in run.args:
        value = values.read(name, text, (0,))
        if isinstance(value, ArrayValue):
            before[name] = value.array
            given.append(device.upload(value.array))
        elif isinstance(value, MapValue):
            before[name] = value
            given.append(device.tensor_map(given[[*before].index(value.array)], **value.options))
        else:
            before[name] = value
            given.append(value)
    if not device.target.runs(needed(run.file)):
        pytest.skip(f"{run.file} needs {needed(run.file)}")
    kernel = device.load(source).kernel(run.kernel)
    passed = [
        argument for name, argument in zip(before, given, strict=True) if name not in ONLY_MAPPED
    ]
    kernel.launch(run.grid, run.block, passed, run.shared, cluster=run.cluster)
    after = {
        name: buffer.numpy() if isinstance(before[name], np.ndarray) else before[name]
        for name, buffer in zip(before, given, strict=True)
    }
    return before, after


def words(low: Array, high: Array) -> Array:
    """Pairs of 16-bit elements as 32-bit registers."""
    return low.astype(np.uint32) | high.astype(np.uint32) << 16


LANE = np.arange(32)
G, Q = LANE // 4, LANE % 4


def expected_a(tile: Array) -> Array:
    columns = [
        words(tile[G + r, 2 * Q + c], tile[G + r, 2 * Q + c + 1]) for c in (0, 8) for r in (0, 8)
    ]
    return np.stack(columns, axis=1)


def expected_b(tile: Array) -> Array:
    return np.stack([words(tile[2 * Q + r, G], tile[2 * Q + r + 1, G]) for r in (0, 8)], axis=1)


def expected_c(tile: Array) -> Array:
    return np.stack([tile[G + r, 2 * Q + c] for r in (0, 8) for c in (0, 1)], axis=1)


def tile_at(x: dict[str, Any], height: int, width: int) -> tuple[slice, slice]:
    row, column = height * x["tile_row"], width * x["tile_column"]
    return slice(row, row + height), slice(column, column + width)


def check_fragment_a(before: dict[str, Any], after: dict[str, Any]) -> None:
    np.testing.assert_array_equal(
        after["out"], expected_a(before["matrix"][tile_at(before, 16, 16)])
    )
    assert after["out"][0, 0] == 0x04210420


def check_fragment_b(before: dict[str, Any], after: dict[str, Any]) -> None:
    np.testing.assert_array_equal(
        after["out"], expected_b(before["matrix"][tile_at(before, 16, 8)])
    )


def check_fragment_c(before: dict[str, Any], after: dict[str, Any]) -> None:
    np.testing.assert_array_equal(
        after["out"], expected_c(before["matrix"][tile_at(before, 16, 8)])
    )


def check_fragment_d(before: dict[str, Any], after: dict[str, Any]) -> None:
    tile = tile_at(before, 16, 8)
    np.testing.assert_array_equal(expected_c(after["matrix"][tile]), before["in"])
    rest = after["matrix"].copy()
    rest[tile] = 0
    assert not rest.any()


def check_ldmatrix(before: dict[str, Any], after: dict[str, Any]) -> None:
    tile = before["tile"]
    for j in range(tile.shape[1] // 8):
        matrix = tile[:, 8 * j : 8 * j + 8]
        np.testing.assert_array_equal(
            after["out"][:, j], words(matrix[G, 2 * Q], matrix[G, 2 * Q + 1])
        )


def check_ldmatrix_trans(before: dict[str, Any], after: dict[str, Any]) -> None:
    tile = before["tile"]
    for j in range(tile.shape[1] // 8):
        matrix = tile[:, 8 * j : 8 * j + 8]
        np.testing.assert_array_equal(
            after["out"][:, j], words(matrix[2 * Q, G], matrix[2 * Q + 1, G])
        )


def check_product(before: dict[str, Any], after: dict[str, Any]) -> None:
    """D = A * B + C within what steps of 8 products may lose; see ptxlab.gemm.reference."""
    a, b = before["a"].astype(np.float64), before["b"].astype(np.float64)
    c, d = before["d"].astype(np.float64), after["d"].astype(np.float64)
    rounding = 2.0**-10 if before["d"].dtype == np.float16 else 2.0**-23
    step = 2.0**-23 if before["a"].dtype == np.float32 else rounding + 9 * 2.0**-24
    bound = -(-a.shape[1] // 8) * step * (abs(a) @ abs(b) + abs(c))
    assert (abs(d - (a @ b + c)) <= bound).all()


def check_wgmma(before: dict[str, Any], after: dict[str, Any]) -> None:
    """B of the one from shared memory comes transposed, and what d held is not added."""
    given = dict(before)
    if before["b"].shape == (8, 16):
        given |= {"b": before["b"].T, "d": np.zeros_like(before["d"])}
    check_product(given, after)


def check_product_of_transposed(before: dict[str, Any], after: dict[str, Any]) -> None:
    """D = A * B of a B that comes transposed; what d held is not added."""
    given = {x: before[x.upper()] if x.upper() in before else before[x] for x in "abd"}
    given |= {"b": given["b"].T, "d": np.zeros_like(before["d"])}
    check_product(given, after)


def scaled(packed: Array, scales: Array) -> Array:
    """Two e2m1 a byte, times the scale of each sixteen."""
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = np.append(magnitudes, -magnitudes)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
    return values[codes] * abs(scales.astype(np.float64)).repeat(16, axis=1)


def check_blocks_of_scales(before: dict[str, Any], after: dict[str, Any]) -> None:
    """The same with scales in blocks of 512 bytes, of 128 rows times four, eight of them along k."""

    def each(name: str) -> Array:
        row, number = np.indices((len(before[name]), before["k"] // 16))
        block = row // 128 * 8 + number // 4
        index = block * 512 + row % 32 * 16 + row % 128 // 32 * 4 + number % 4
        return np.asarray(before[f"s{name.lower()}"][index])

    a, b = (scaled(before[x], each(x)) for x in "AB")
    assert (abs(after["d"] - a @ b.T) <= 2 * 2.0**-22 * (abs(a) @ abs(b.T))).all()


def check_block_scaled(before: dict[str, Any], after: dict[str, Any]) -> None:
    """D = A * B of numbers of four bits times a scale for sixteen: in f32, rounded once."""
    a, b = (scaled(before[x], before[f"s{x}"]) for x in "ab")
    assert (abs(after["d"] - a @ b.T) <= 2.0**-22 * (abs(a) @ abs(b.T))).all()


def check_once(before: dict[str, Any], after: dict[str, Any]) -> None:
    np.testing.assert_array_equal(after["out"], before["in"])


def check_tensor_memory(before: dict[str, Any], after: dict[str, Any]) -> None:
    rows = before["in"].reshape(8, 16, 8)
    for i in range(8):
        np.testing.assert_array_equal(after["out"][i], expected_c(rows[i]))
    assert after["out"][0, 5].tolist() == [10, 11, 74, 75]


def check_mbarrier(before: dict[str, Any], after: dict[str, Any]) -> None:
    np.testing.assert_array_equal(after["out"], before["in"][:, ::-1])
    assert (after["out"][2, 0], after["out"][2, 31]) == (95, 64)


def check_exchange(before: dict[str, Any], after: dict[str, Any]) -> None:
    np.testing.assert_array_equal(after["out"], before["in"][[3, 0, 1, 2, 7, 4, 5, 6]])


def check_swizzle(before: dict[str, Any], after: dict[str, Any]) -> None:
    tile = np.zeros((16, 64), before["a"].dtype)
    tile[:10] = before["a"][30:40, 32:96]
    np.testing.assert_array_equal(after["tile"], tile)
    row, unit = np.indices((16, 8))
    units = tile.reshape(16, 8, 8)[row, unit ^ row % 8]
    np.testing.assert_array_equal(after["raw"], units.reshape(16, 64))
    assert after["raw"][1].tolist()[:8] == tile[1, 8:16].tolist()


def check_mapped_product(before: dict[str, Any], after: dict[str, Any]) -> None:
    """D = A * B of matrices that have tensor maps, in Hopper's steps of 16 products."""
    a, b = before["A"].astype(np.float64), before["B"].astype(np.float64)
    bound = -(-a.shape[1] // 16) * (2.0**-23 + 17 * 2.0**-25) * (abs(a) @ abs(b))
    assert (abs(after["d"] - a @ b) <= bound).all()


CHECKS: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "fragment_a": check_fragment_a,
    "fragment_b": check_fragment_b,
    "fragment_c": check_fragment_c,
    "fragment_d": check_fragment_d,
    **{f"ldmatrix_x{count}": check_ldmatrix for count in (1, 2, 4)},
    **{f"ldmatrix_x{count}_trans": check_ldmatrix_trans for count in (1, 2, 4)},
    **{f"mma_m16n8k16_{types}": check_product for types in ("bf16_f32", "f16_f32", "f16_f16")},
    **dict.fromkeys(("wgmma_m64n8k16_ss", "wgmma_m64n8k16_rs"), check_wgmma),
    "tcgen05_alloc_ld_st": check_tensor_memory,
    **dict.fromkeys(
        ("tcgen05_mma_f16", "tcgen05_mma_pair_f16", "gemm_tcgen05_f16_f32"),
        check_product_of_transposed,
    ),
    "tcgen05_mma_nvfp4": check_block_scaled,
    "cluster_launch_control": check_once,
    "mbarrier": check_mbarrier,
    "cluster_exchange": check_exchange,
    "tma_load_swizzle": check_swizzle,
    "gemm_m16n8k16_bf16_f32": check_product,
    **dict.fromkeys(("naive", "coalescing", "tiled", "tiled_register"), check_product),
    "thread_tiled": check_product,
    "warp_tiled": check_product,
    "block_tiled": check_product,
    "block_tiled_vectorized": check_product,
    "tensor_core": check_product,
    **dict.fromkeys((Path(name).stem for name in MAPPED), check_mapped_product),
    "block_scaled": check_blocks_of_scales,
}

ALIKE = "wgmma_(?!m64)|tcgen05_p|tcgen05_specialised|thread_tiled|warp_tiled|block_tiled$"
RUNS = {run.kernel: run for name in PROGRAMS for run in map(run_of, header_of(name).runs)}


def test_every_kernel_has_a_check() -> None:
    assert RUNS.keys() == CHECKS.keys()


@pytest.mark.parametrize(
    "kernel",
    [
        # Of the kernels of each family one always runs.
        pytest.param(name, marks=[pytest.mark.thorough] * bool(re.match(ALIKE, name)))
        for name in RUNS
    ],
)
def test_run_line_does_what_it_says(device: Device, kernel: str) -> None:
    run = RUNS[kernel]
    before, after = execute(device, run, resources.path(run.file))
    CHECKS[kernel](before, after)
    changed = {
        name
        for name, value in before.items()
        if isinstance(value, np.ndarray) and value.tobytes() != after[name].tobytes()
    }
    assert changed == (
        {"matrix"} if kernel == "fragment_d" else changed & {"out", "d", "tile", "raw"}
    )
    assert changed


def test_expected_registers_of_ldmatrix(device: Device) -> None:
    held = {
        name: execute(device, RUNS[name], resources.path("ptx/ldmatrix.ptx"))[1]["out"][5, 0]
        for name in ("ldmatrix_x1", "ldmatrix_x1_trans")
    }
    assert held == {"ldmatrix_x1": 0x000B000A, "ldmatrix_x1_trans": 0x00190011}
    expect = header_of("ptx/ldmatrix.ptx").expect
    assert "0x000b000a" in expect
    assert "0x00190011" in expect


# What a slip of the pen would be, and the kernels that must notice it.
SLIPS = [
    ("ptx/fragment_mappers.ptx", "[upper + 16]", "[lower + 16]", ["fragment_a"]),
    ("ptx/fragment_mappers.ptx", "shr.u32         g, lane, 2", "shr.u32         g, lane, 3", None),
    ("ptx/fragment_mappers.ptx", "mov.b32         b0, {low, high}", "mov.b32         b0, {high, low}", ["fragment_b"]),
    ("ptx/fragment_mappers.ptx", "mad.wide.u32    lower, leading, 32", "mad.wide.u32    lower, leading, 16", ["fragment_c", "fragment_d"]),
    ("ptx/ldmatrix.ptx", "m8n8.x4.trans", "m8n8.x4", ["ldmatrix_x4_trans"]),
    ("ptx/ldmatrix.ptx", "shr.u32         matrix, piece, 3", "shr.u32         matrix, piece, 4", ["ldmatrix_x2", "ldmatrix_x4"]),
    ("ptx/mma_m16n8k16_bf16_f32.ptx", "add.u32         step, step, 1", "add.u32         step, step, 2", ["mma_m16n8k16_bf16_f32"]),
    ("ptx/mma_m16n8k16_f16_f32.ptx", "{b0, b1}, {d0", "{b1, b0}, {d0", ["mma_m16n8k16_f16_f32"]),
    ("ptx/mma_m16n8k16_f16_f16.ptx", "st.global.b32   [lower], d1", "st.global.b32   [lower], d0", ["mma_m16n8k16_f16_f16"]),
    ("ptx/wgmma_m64n8k16_ss.ptx", "address, unit, 1024", "address, unit, 512", None),
    ("ptx/wgmma_m64n8k16_ss.ptx", "0x0000000800400000", "0x0000000800200000", None),
    ("ptx/wgmma_m64n8k16_rs.ptx", "matrix_b, adds, 1, 1, 1;", "matrix_b, adds, 1, 1, 0;", None),
    ("ptx/wgmma_m64n8k16_rs.ptx", "[pa + 272]", "[pa + 16]", None),
    ("ptx/tma_load_swizzle.ptx", "and.b32         unit, unit, 0x70", "and.b32         unit, unit, 0x30", None),
    ("ptx/tcgen05_alloc_ld_st.ptx", "[memory + 0x100004]", "[memory + 4]", None),
    ("ptx/tcgen05_mma_f16.ptx", "0x0000400800400000", "0x0000400800200000", None),
    ("ptx/tcgen05_mma_f16.ptx", "0x08100010", "0x08100490", None),
    ("ptx/tcgen05_mma_pair_f16.ptx", "mad.lo.u32      number, rank, 32, thread", "mov.u32 number, thread", None),
    ("ptx/tcgen05_mma_nvfp4.ptx", "mad.lo.u32      address, column, 4, address;", "", None),
    ("ptx/tcgen05_mma_nvfp4.ptx", "[to_a], [to_b], adds", "[to_b], [to_a], adds", None),
    ("ptx/cluster_launch_control.ptx", "bra     asked;", "bra     asked;\n    red.global.add.u32 [pout], 1;", None),
    ("ptx/gemm_tcgen05_f16_f32.ptx", "add.u64         matrix_b, matrix_b, 2;", "", None),
    ("ptx/cluster_exchange.ptx", "add.u32         rank, rank, 1", "add.u32         rank, rank, 2", None),
    ("ptx/gemm_m16n8k16_bf16_f32.ptx", "add.u32         row1, row0, 8", "add.u32         row1, row0, 0", ["gemm_m16n8k16_bf16_f32"]),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "kernels"), SLIPS)
def test_a_slip_is_noticed(
    device: Device, file: str, old: str, new: str, kernels: list[str] | None
) -> None:
    text = text_of(file)
    assert old in text
    faulty = text.replace(old, new)
    for kernel in kernels or [name for name, run in RUNS.items() if run.file == file]:
        before, after = execute(device, RUNS[kernel], faulty)
        with pytest.raises(AssertionError):
            CHECKS[kernel](before, after)


def test_checks_accept_nothing_but_the_right_register() -> None:
    """The expected layouts cover a tile exactly once."""
    tile = np.arange(256, dtype=np.uint16).reshape(16, 16)
    for expected, part in ((expected_a, tile), (expected_b, tile[:, :8])):
        registers = expected(part)
        halves = np.stack([registers & 0xFFFF, registers >> 16])
        assert sorted(halves.flat) == sorted(part.flat)
    assert sorted(expected_c(tile[:, :8]).flat) == sorted(tile[:, :8].flat)
