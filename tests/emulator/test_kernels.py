"""Kernels as people write them, compiled by NVRTC, against NumPy and plain Python.

Each runs as the compiler likes it best, and unoptimised with debug information (-G), where control
flow and the use of memory are very different. The programs are in ``cuda/``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.protocol import Device
from ptxlab.errors import LaunchError

Launch = Callable[..., list[Array]]
CUDA = Path(__file__).parent / "cuda"


@pytest.fixture(params=["optimised", "-G"])
def launch(request: pytest.FixtureRequest, device: Device) -> Launch:
    """Run a kernel of a file over arrays, and return what is in them afterwards."""
    options = [] if request.param == "optimised" else [request.param]

    def execute(
        file: str, kernel: str, grid: Any, block: Any, *args: Any, shared: int = 0
    ) -> list[Array]:
        module = device.load(CUDA / file, options=options)
        buffers = [device.upload(a) if isinstance(a, np.ndarray) else a for a in args]
        module.kernel(kernel).launch(grid, block, buffers, shared=shared)
        outputs = [
            b.numpy() for b, a in zip(buffers, args, strict=True) if isinstance(a, np.ndarray)
        ]
        for buffer, given in zip(buffers, args, strict=True):
            if isinstance(given, np.ndarray):
                buffer.close()
        return outputs

    return execute


def integers(count: int, low: int, high: int, dtype: Any = np.int32) -> Array:
    return np.random.default_rng(count).integers(low, high, count).astype(dtype)


def floats(*shape: int) -> Array:
    return np.random.default_rng(shape[0]).standard_normal(shape).astype(np.float32)


def ints(count: int) -> Array:
    return np.zeros(count, np.int32)


# ---- warps.cu -------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [32, 96, 256])
def test_warp_sum_after_an_early_return(launch: Launch, block: int) -> None:
    given = integers(1000 // 32 * 32, -1000, 1000)
    _, result = launch("warps.cu", "warp_sum", -(-1000 // block), block, given, ints(992), 992)
    assert np.array_equal(result.reshape(-1, 32)[:, 0], given.reshape(-1, 32).sum(axis=1))
    assert (result.reshape(-1, 32) == result.reshape(-1, 32)[:, :1]).all()


@pytest.mark.parametrize("block", [32, 96, 256])
def test_block_sum(launch: Launch, block: int) -> None:
    given = integers(1000, -50, 50).astype(np.float32)  # sums are exact
    grid = -(-1000 // block)
    _, result = launch(
        "warps.cu", "block_sum", grid, block, given, np.zeros(grid, np.float32), 1000
    )
    padded = np.pad(given, (0, grid * block - 1000)).reshape(grid, block)
    assert np.array_equal(result, padded.sum(axis=1))


def test_warp_scan(launch: Launch) -> None:
    given = integers(777, -1000, 1000)
    _, result = launch("warps.cu", "warp_scan", 7, 128, given, ints(777), 777)
    expected = np.pad(given, (0, 7 * 128 - 777)).reshape(-1, 32).cumsum(axis=1).reshape(-1)[:777]
    assert np.array_equal(result, expected)


def test_tiles_of_a_warp_vote_each_for_itself(launch: Launch) -> None:
    given = integers(256, -8, 8)
    given[64:128] -= 8  # tiles that agree
    given[64:96] |= 1
    given[96:104] = -3
    _, result = launch("warps.cu", "tile_votes", 2, 128, given, np.zeros(1024, np.uint32), 256)
    for thread, (bits, flags, equal, alike) in enumerate(result.reshape(-1, 4).tolist()):
        tile = thread // 8 * 8
        shift = tile % 32
        values = given[tile : tile + 8].tolist()

        def mask(chosen: list[bool], shift: int = shift) -> int:
            return sum(bit << (shift + i) for i, bit in enumerate(chosen))

        negative = [value < 0 for value in values]
        parities = {value & 1 for value in values}
        assert bits == mask(negative)
        assert flags == all(negative) + 2 * any(negative) + 4 * (len(parities) == 1)
        assert equal == (mask([True] * 8) if len(parities) == 1 else 0)
        assert alike == mask([value & 3 == given[thread] & 3 for value in values])


def test_both_sides_of_a_branch_reduce_among_themselves(launch: Launch) -> None:
    given = integers(256, -1000, 1000)
    _, result = launch("warps.cu", "sides", 2, 128, given, ints(256), 256)
    for warp in range(8):
        values = given[32 * warp : 32 * warp + 32]
        odd = values % 2 == 1
        expected = np.where(odd, values[odd].sum(), values[~odd].max())
        assert np.array_equal(result[32 * warp : 32 * warp + 32], expected)


# ---- flow.cu --------------------------------------------------------------------------------


def test_collatz(launch: Launch) -> None:
    given = np.arange(1, 301, dtype=np.uint32)
    _, result = launch("flow.cu", "collatz", 5, 70, given, np.zeros(300, np.uint32), 300)

    def steps(number: int) -> int:
        count = 0
        while number > 1:
            number = 3 * number + 1 if number % 2 else number // 2
            count += 1
        return count

    assert result.tolist() == [steps(n) for n in range(1, 301)]


def test_loops_with_break_continue_and_return(launch: Launch) -> None:
    given = integers(500, 0, 3000)
    _, result = launch("flow.cu", "divisors", 6, 90, given, ints(500), 500)

    def classify(value: int) -> int:
        divisor = 2
        while divisor < 40:
            if value % divisor == 0:
                return divisor
            if divisor * divisor > value:
                break
            divisor += 1 if divisor == 2 else 2
        return -1

    assert result.tolist() == [classify(v) for v in given.tolist()]


def wrapped(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def interpreted(code: int, i: int) -> int:
    a, b, pc = code, i, 0
    while pc < 12:
        operation = code >> (2 * pc) & 15
        if operation == 13 and a == 0:
            break
        if operation < 13:
            a, b, pc = {
                0: (a + b, b, pc), 1: (a - b, b, pc), 2: (a * 3, b, pc), 3: (a ^ b, b, pc),
                4: (a, b + 7, pc), 5: (a, -b, pc), 6: (max(a, b), b, pc), 7: (min(a, b), b, pc),
                8: (a << 1, b, pc), 9: (a >> 1, b, pc), 10: (b, a, pc), 11: (a, b, pc + 1),
                12: (~a, b, pc),
            }[operation]  # fmt: skip
        elif operation > 13:
            a += pc
        a, b, pc = wrapped(a), wrapped(b), pc + 1
    return a ^ b


def test_a_switch_in_a_loop(launch: Launch) -> None:
    given = integers(400, -(1 << 31), 1 << 31)
    _, result = launch("flow.cu", "interpreter", 4, 100, given, ints(400), 400)
    assert result.tolist() == [interpreted(code, i) for i, code in enumerate(given.tolist())]


def test_double_recursion(launch: Launch) -> None:
    [out] = launch("flow.cu", "ackermanns", 1, 24, ints(24))

    def ackermann(m: int, n: int) -> int:
        if m == 0:
            return n + 1
        return ackermann(m - 1, ackermann(m, n - 1) if n else 1)

    assert out.tolist() == [ackermann(i % 3, i // 3) for i in range(24)]


def test_recursion_with_an_array_in_every_activation(launch: Launch) -> None:
    [out, *_] = launch("flow.cu", "permute", 1, 40, np.zeros(40, np.int64), 4)
    expected = []
    for thread in range(40):
        items = [k + 1 + thread // 4 for k in range(thread % 4 + 1)]
        values = (
            sum(v * 10 ** (len(p) - 1 - i) for i, v in enumerate(p)) for p in permutations(items)
        )
        expected.append(sum(v * v % 1000003 for v in values))
    assert out.tolist() == expected


def test_structures_by_value(launch: Launch) -> None:
    [out] = launch("flow.cu", "mandelbrot", (3, 5), (16, 4), ints(40 * 18), 40, 18, 30)
    for y in range(18):
        for x in range(40):
            re, im, steps = 0.0, 0.0, 0
            while steps < 30 and re * re + im * im <= 4:
                re, im = (
                    re * re - im * im + (-2.0 + 3.0 * x / 40),
                    2 * re * im + (-1.0 + 2.0 * y / 18),
                )
                steps += 1
            # A compiler contracts to fma: a count may differ where the last bit decides.
            assert abs(out[40 * y + x] - steps) <= 1 or steps > 20


def test_pointers_to_functions_in_tables(launch: Launch) -> None:
    [out] = launch("flow.cu", "pointers", 1, 70, ints(70))
    operations: list[Callable[[int, int], int]] = [
        lambda a, b: a + b,
        lambda a, b: a * b,
        lambda a, b: int(a**b),
    ]
    expected = [
        wrapped(
            operations[i % 3](i, i % 7)
            + 100000 * [operations[2], operations[0], operations[1]][i % 3](2, i % 5)
        )
        for i in range(70)
    ]
    assert out.tolist() == expected


def test_virtual_functions(launch: Launch) -> None:
    [out] = launch("flow.cu", "virtuals", 1, 50, ints(50))
    expected = [i * (i + 1) * (i % 4) if i % 2 else i * i + i % 4 for i in range(50)]
    assert out.tolist() == expected


# ---- shared.cu ------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [16, 64, 128])
def test_bitonic_sort(launch: Launch, block: int) -> None:
    given = integers(3 * block, -(1 << 31), 1 << 31)
    [out] = launch("shared.cu", "bitonic_sort", 3, block, given, shared=4 * block)
    assert np.array_equal(out.reshape(3, -1), np.sort(given.reshape(3, -1), axis=1))


@pytest.mark.parametrize("block", [50, 256])
def test_histogram(launch: Launch, block: int) -> None:
    given = np.minimum(integers(5000, 0, 256), integers(5000, 0, 300)).astype(np.uint8)
    _, result = launch("shared.cu", "histogram", 4, block, given, ints(256), 5000)
    assert np.array_equal(result, np.bincount(given, minlength=256))


def test_the_last_block_adds_up(launch: Launch) -> None:
    given = integers(4000, -1000, 1000).astype(np.float32)
    out, partial = np.zeros(1), np.zeros(9)
    *_, result = launch("shared.cu", "last_block_sum", 9, 100, given, partial, out, 4000)
    assert result[0] == given.sum(dtype=np.float64)


def test_a_lock_lets_one_thread_in_at_a_time(launch: Launch) -> None:
    lock, count, log = launch("shared.cu", "locked_count", 3, 40, ints(1), ints(1), ints(120) - 1)
    assert lock[0] == 0
    assert count[0] == 120
    assert sorted(log.tolist()) == list(range(120))


@pytest.mark.parametrize("shape", [(64, 32), (45, 70)])
def test_transpose(launch: Launch, shape: tuple[int, int]) -> None:
    rows, columns = shape
    given = floats(*shape)
    out = np.zeros((columns, rows), np.float32)
    grid = (-(-columns // 32), -(-rows // 32))
    _, result = launch("shared.cu", "transpose", grid, (32, 8), given, out, rows, columns)
    assert np.array_equal(result, given.T)


def test_stencil(launch: Launch) -> None:
    given = integers(500, -100, 100).astype(np.float32)
    _, result = launch("shared.cu", "stencil", 9, 60, given, given * 0, 500, shared=4 * 64)
    assert np.array_equal(result, np.convolve(given, [1, 2, 3, 2, 1], "same"))


def test_softmax(launch: Launch) -> None:
    given = 10 * floats(6, 300)
    _, result = launch("shared.cu", "softmax", 6, 128, given, given * 0, 300)
    exact = np.exp(given.astype(np.float64) - given.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-30)


def test_layer_norm(launch: Launch) -> None:
    given, scale = floats(10, 150), floats(150)
    *_, result = launch("shared.cu", "layer_norm", 3, 128, given, scale, given * 0, 10, 150)
    exact = given.astype(np.float64)
    exact -= exact.mean(axis=1, keepdims=True)
    exact /= np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(result, exact * scale, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", [48, 128])
def test_counting_barriers(launch: Launch, block: int) -> None:
    given = integers(6 * block, -110, 100)
    _, result = launch("shared.cu", "counting", 6, block, given, ints(6 * block))
    for cta, values in enumerate(given.reshape(6, block)):
        expected = (values > 0).sum() + 1000 * (values > -100).all() + 2000 * (values > 98).any()
        assert (result.reshape(6, block)[cta] == expected).all()


# ---- numbers.cu -----------------------------------------------------------------------------


@pytest.mark.parametrize("values", [(-1, -1, -1, -1), (-128, -3, -(2**31), -5), (127, 9, 8, 7)])
def test_signed_arguments_of_every_size(launch: Launch, values: tuple[int, ...]) -> None:
    [out] = launch("numbers.cu", "widen", 1, 1, *values, np.zeros(4, np.int64))
    assert out.tolist() == list(values)


def test_64_bit_division(launch: Launch) -> None:
    random = np.random.default_rng(3)
    a = random.integers(-(1 << 63), (1 << 63) - 1, 300) >> random.integers(0, 63, 300)
    b = random.integers(-(1 << 63), (1 << 63) - 1, 300) >> random.integers(0, 63, 300)
    b[b == 0] = 7
    a[:4], b[:4] = [-(1 << 63), (1 << 63) - 1, -1, 5], [3, -1, -(1 << 63), (1 << 63) - 1]
    *_, result = launch("numbers.cu", "divide", 5, 64, a, b, np.zeros(1800, np.int64), 300)

    def signed(value: int) -> int:
        return (value + (1 << 63)) % (1 << 64) - (1 << 63)

    def quotient(x: int, y: int) -> int:
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    for x, y, row in zip(a.tolist(), b.tolist(), result.reshape(-1, 6).tolist(), strict=True):
        ux, uy = x % (1 << 64), y % (1 << 64)
        ten = quotient(x, 10) + x - quotient(x, 1000007) * 1000007
        assert row == [
            signed(quotient(x, y)), x - quotient(x, y) * y, signed(ux // uy), signed(ux % uy),
            x * y >> 64, signed(ten),
        ]  # fmt: skip


def power(x: float, y: float) -> float:
    try:
        return math.pow(abs(x), y)
    except OverflowError:
        return math.inf


def test_double_precision_functions(launch: Launch) -> None:
    random = np.random.default_rng(8)
    a, b = random.uniform(-50, 50, 200), random.uniform(-20, 20, 200)
    a[:6], b[:6] = [1e15, -1e9, 3e-310, 0.5, 1e300, 12.0], [3.0, 0.1, -2.0, -700.0, 1.0, 0.25]
    *_, result = launch("numbers.cu", "doubles", 2, 128, a, b, np.zeros((200, 8)), 200)
    exact = [
        [math.sin(x), math.exp(y), power(x, y), math.fmod(x, y), math.log(abs(x)), math.tan(y),
         x / y, math.sqrt(abs(x))]
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]  # fmt: skip
    # CUDA C++ Programming Guide, "Mathematical Functions": at most 2 ulp, fmod, / and sqrt exact.
    np.testing.assert_allclose(result, exact, rtol=5e-16, atol=0)
    assert np.array_equal(result[:, [3, 6, 7]], np.array(exact)[:, [3, 6, 7]])


def test_single_precision_functions(launch: Launch) -> None:
    random = np.random.default_rng(9)
    a = random.uniform(-50, 50, 200).astype(np.float32)
    b = random.uniform(-8, 8, 200).astype(np.float32)
    *_, result = launch("numbers.cu", "floats", 2, 128, a, b, np.zeros((200, 8), np.float32), 200)
    exact = np.array(
        [
            [math.sin(x), math.exp(y), abs(x) ** y, math.fmod(x, y), math.log(abs(x)),
             math.cos(float(np.float32(1e5) * np.float32(x))), x / y,
             math.tanh(y) + math.erf(x) + round_half_away(y) + math.floor(x)]
            for x, y in zip(a.tolist(), b.tolist(), strict=True)
        ]
    )  # fmt: skip
    np.testing.assert_allclose(result, exact, rtol=1e-6, atol=1e-6)
    assert np.array_equal(result[:, [3, 6]], exact[:, [3, 6]].astype(np.float32))


def round_half_away(value: float) -> float:
    return math.copysign(math.floor(abs(value) + 0.5), value)


def test_half_types(launch: Launch) -> None:
    random = np.random.default_rng(10)
    a = random.uniform(-20, 20, 128).astype(np.float16)
    b = random.uniform(-3, 3, 128).astype(ml_dtypes.bfloat16)
    *_, result = launch("numbers.cu", "halves", 2, 64, a, b, np.zeros((128, 6), np.float32), 128)
    exact, other = a.astype(np.float64), b.astype(np.float32)
    bf16 = ml_dtypes.bfloat16
    square = (other * other).astype(bf16).astype(np.float32)
    expected = [
        (exact * exact + 0.5).astype(np.float16),
        (exact + (exact * 3).astype(np.float16)).astype(np.float16),
        (square + other).astype(bf16),
        np.maximum(other, 0.25),
        np.rint(exact) + 0.5 * (exact > 0),
        np.sqrt(np.abs(exact)).astype(np.float16),
    ]
    for column, values in enumerate(expected):
        assert np.array_equal(result[:, column], values.astype(np.float32)), column


# ---- host.cu --------------------------------------------------------------------------------


def test_printf(launch: Launch, capfd: pytest.CaptureFixture[str]) -> None:
    launch("host.cu", "greet", 2, 40, 5)
    lines = [
        f"thread {t} of block {b}: {t / 4:5.2f}|{'odd' if t % 2 else 'even':<6}|{chr(97 + t)}|"
        f"{-(1 << 40) * t}|{255 + t:x}|%|1.234568e+04"
        for b in range(2)
        for t in range(5)
    ]
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(lines)


def test_a_failed_assertion_names_itself(launch: Launch) -> None:
    given = np.arange(32, dtype=np.int32) // 3
    launch("host.cu", "check", 1, 30, given)
    with pytest.raises(LaunchError):
        launch("host.cu", "check", 1, 32, given)


# ---- wmma.cu --------------------------------------------------------------------------------


def test_matrix_multiplication_through_mma_h(launch: Launch) -> None:
    random = np.random.default_rng(12)
    a = random.integers(-8, 9, (48, 64)).astype(np.float16)  # products and sums are exact
    b = random.integers(-8, 9, (32, 64)).astype(np.float16)
    d = np.zeros((48, 32), np.float32)
    *_, result = launch("wmma.cu", "multiply", (2, 3), 32, a, b, d, 32, 64)
    assert np.array_equal(result, 2 * a.astype(np.float32) @ b.astype(np.float32).T)


# ---- records.cu -----------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_small_structs_and_indirect_calls(launch: Launch, which: int) -> None:
    [out] = launch("records.cu", "records", 1, 32, bytes([5]), bytes([1, 2, 3]), ints(32), which)
    i = np.arange(32)
    picked = np.where(i % 2 == 1, 100 - i, 100 + i)
    virtual = np.where(i % 2 == 1, 2 * i + 5, 3 * i - 7)
    assert np.array_equal(out, (5 + i if which else 5 - i) + 2 + 3 + picked + virtual)
