"""From D to A: the generated PTX run on random accumulators, against numpy's conversions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.errors import PtxlabError, Unsupported
from ptxlab.fragments.moves import Moves, moves, permuted
from ptxlab.fragments.moves_ptx import ptx
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.multiplication import MatrixInstruction
from ptxlab.toolchain import link_ptx
from tests.together import in_one_test

BF16 = multiplication("m16n8k16", "bf16")
F16 = multiplication("m16n8k16", "f16", "f16")
TF32 = multiplication("m16n8k8", "tf32")
S8 = multiplication("m16n8k32", "s8")
E4M3 = multiplication("m16n8k32", "e4m3")
CASES = [
    (BF16, BF16, "pack"),
    (BF16, multiplication("m16n8k8", "bf16"), "pack"),
    (multiplication("m16n8k16", "f16", "f32"), multiplication("m16n8k16", "f16"), "pack"),
    (F16, F16, "none"),
    (TF32, TF32, "convert shuffle prmt"),
    (S8, S8, "pack shuffle prmt"),
    (multiplication("m16n8k32", "u8"), multiplication("m16n8k16", "u8"), "pack shuffle prmt"),
    (multiplication("m8n8k16", "s8"), multiplication("m8n8k16", "s8"), "pack shuffle prmt"),
    (E4M3, E4M3, "pack shuffle prmt"),
    (E4M3, multiplication("m16n8k32", "e5m2"), "pack shuffle prmt"),
    (F16, E4M3, "pack shuffle prmt"),
    (
        multiplication("m16n8k32", "e5m2", "f16"),
        multiplication("m16n8k16", "e5m2"),
        "pack shuffle prmt",
    ),
]


def converted(values: Array, dtype: str) -> Array:
    """Return the bit patterns of accumulators, f32, s32 or f16, as elements of ``dtype``."""
    if dtype in ("s8", "u8"):
        low, high = (-128, 127) if dtype == "s8" else (0, 255)
        return np.clip(values, low, high).astype(np.int64) & 0xFF
    if dtype == "tf32":  # to nearest, ties away from zero: add half of the last of 10 bits
        return (values.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    if dtype in ("e4m3", "e5m2"):
        kind = ml_dtypes.float8_e4m3fn if dtype == "e4m3" else ml_dtypes.float8_e5m2
        limit = 448.0 if dtype == "e4m3" else 57344.0
        return np.clip(values, -limit, limit).astype(kind).view(np.uint8)
    kind16 = np.dtype(np.float16 if dtype == "f16" else ml_dtypes.bfloat16)
    return values.astype(kind16).view(np.uint16)


def kernel(recipe: Moves, target: str) -> str:
    """Return a kernel around the moves: every lane reads its registers of D and writes those of A."""
    names = [f"d{tile}_{register}" for tile, register in recipe.words]
    kind = {"f32": "f32", "s32": "s32"}.get(recipe.d.dtype, "b32")
    results = [f"a{i}" for i in range(recipe.a.registers_per_lane)]
    loads = "\n".join(f"ld.global.{kind} {name}, [from+{4 * i}];" for i, name in enumerate(names))
    stores = "\n".join(f"st.global.b32 [to+{4 * i}], {name};" for i, name in enumerate(results))
    return f"""
.version 8.1
.target {target}
.address_size 64
.visible .entry k(.param .u64 p_from, .param .u64 p_to)
{{
.reg .{kind} {", ".join(names)};
.reg .b32 {", ".join(results)};
.reg .b32 t; .reg .b64 from, to;
mov.u32 t, %tid.x;
ld.param.u64 from, [p_from]; ld.param.u64 to, [p_to];
mad.wide.u32 from, t, {4 * len(names)}, from;
mad.wide.u32 to, t, {4 * len(results)}, to;
{loads}
{ptx(recipe)}
{stores}
ret;
}}
"""


def accumulators(recipe: Moves) -> Array:
    """Return a matrix of the tiles' values, side by side, that differ and also overflow."""
    rng = np.random.default_rng(7)
    shape = (recipe.d.rows, recipe.d.cols * recipe.tiles)
    if recipe.d.dtype == "s32":
        return rng.integers(-300, 300, shape).astype(np.int32)
    values = (rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 10, shape)).astype(np.float32)
    return values.astype(np.float16) if recipe.d.dtype == "f16" else values


def run(recipe: Moves, values: Array, text: str, arch: str) -> Array:
    """Return A as the kernel makes it of D."""
    tiles = np.split(values.view(f"u{values.itemsize}"), recipe.tiles, axis=1)
    registers = np.concatenate([recipe.d.pack(tile) for tile in tiles], axis=1).astype(np.uint32)
    with open_device("emulator", arch=arch) as device:
        loaded = device.load(text).kernel("k")
        count = recipe.a.registers_per_lane
        with device.upload(registers) as given, device.zeros((32, count), "u32") as out:
            loaded.launch(1, 32, [given, out])
            return recipe.a.unpack(out.numpy())


@in_one_test(("first", "following", "kinds"), CASES)
def test_the_moves_make_a_of_d(
    first: MatrixInstruction, following: MatrixInstruction, kinds: str
) -> None:
    recipe = moves(first, following)
    assert {" ".join(move.kinds) for move in recipe.moves} == {kinds}
    values = accumulators(recipe)
    arch = "sm_89" if following.a_type in ("e4m3", "e5m2") else "sm_80"
    text = kernel(recipe, arch)
    link_ptx(text, arch=arch)
    assert (run(recipe, values, text, arch) == converted(values, following.a_type)).all()


@in_one_test(("first", "following"), [(a, b) for a, b, kinds in CASES if "shuffle" in kinds])
def test_without_shuffles_a_is_the_same_but_for_the_order_of_k(
    first: MatrixInstruction, following: MatrixInstruction
) -> None:
    recipe = moves(first, following)
    other = permuted(recipe)
    assert sorted(other.columns) == list(range(following.k))
    formula = compile(other.formula, "formula", "eval")
    assert [eval(formula, {}, {"k": k}) for k in range(following.k)] == list(other.columns)
    values = accumulators(recipe)
    arch = "sm_89" if following.a_type in ("e4m3", "e5m2") else "sm_80"
    text = kernel(other.moves, arch)
    assert "shfl" not in text
    assert "prmt" not in text
    right = converted(values, following.a_type)[:, list(other.columns)]
    assert (run(recipe, values, text, arch) == right).all()
    assert (right != converted(values, following.a_type)).any()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("0x7632, 0x5410", "0x5410, 0x7632"),
        ("prmt.b32 a1, first, second", "prmt.b32 a1, second, first"),
        ("packed2, d3_1, d3_0", "packed2, d3_0, d3_1"),
        ("mov.b32 from1, 1", "mov.b32 from1, 2"),
    ],
)
def test_a_wrong_move_is_noticed(right: str, wrong: str) -> None:
    recipe = moves(S8, S8)
    values = accumulators(recipe)
    text = kernel(recipe, "sm_80")
    assert text.count(right) == 1
    broken = run(recipe, values, text.replace(right, wrong), "sm_80")
    assert (broken != converted(values, "s8")).any()


@pytest.mark.parametrize(
    ("first", "following", "error", "words"),
    [
        (BF16, S8, Unsupported, "no moves from D of f32 to A of s8"),
        (
            TF32,
            multiplication("m16n8k4", "tf32"),
            PtxlabError,
            "no number of D 16 x 8 makes one A 16 x 4",
        ),
        (BF16, multiplication("m16n8k32", "bf16"), Unsupported, "is compressed"),
        (multiplication("m16n16k16", "f16"), F16, Unsupported, "leaves the layout"),
        (
            multiplication("m8n8k4", "f16"),
            multiplication("m8n8k4", "f16"),
            PtxlabError,
            "no number of D",
        ),
        (
            multiplication("m16n8k8", "f64"),
            multiplication("m16n8k8", "f64"),
            Unsupported,
            "from D of f64",
        ),
    ],
    ids=["types", "columns", "sparse", "wmma", "quad-pairs", "f64"],
)
def test_what_has_no_moves_says_why(
    first: MatrixInstruction, following: MatrixInstruction, error: type[PtxlabError], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        moves(first, following)
    assert raised.value.hint
