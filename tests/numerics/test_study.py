"""Models, studies and surveys, against a second model in fractions and a case computed by hand."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from ptxlab.arrays import Array
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import TARGETS, DotProduct
from ptxlab.numbers.exact import decode
from ptxlab.numerics.models import Model, measure, models
from ptxlab.numerics.products import DotProducts, draw, given
from ptxlab.numerics.study import study, survey

PAIRS = [("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32")]
BYTES = [("e4m3", "f32"), ("e4m3", "f16"), ("e5m2", "f32")]


def random_bits(dtype: str, acc: str, k: int, count: int) -> DotProducts:
    """Draw any bits for A and B, but for half of them no large exponents, and a small C."""
    generator = np.random.default_rng(11)
    shape = draw(dtype, acc, k=k, count=count)
    bits = 8 * shape.a.itemsize
    a, b = generator.integers(0, 1 << bits, (2, k, count)).astype(shape.a.dtype)
    tame = np.array((1 << bits) - 1 - (1 << (bits - 2)), a.dtype)
    a[:, count // 2 :] &= tame
    b[:, count // 2 :] &= tame
    return replace(shape, a=a, b=b)


# What the two generations of f16 tensor cores do, from the publications: products fused, bits kept
# below the largest exponent, exponent of a zero.
AMPERE = (8, 24, -132)
HOPPER = (16, 25, -133)


def fused(
    a: list[float], b: list[float], c: float, rules: tuple[int, int, int], lowest: int
) -> float:
    """Add up finite numbers as a tensor core with float32 results does, by the definition."""
    chunk, kept, zero = rules

    def split(x: float, lowest: int) -> int:
        """Return the exponent of a number, one below the normal ones having theirs."""
        return max(int(np.frexp(x)[1]) - 1, lowest)

    for start in range(0, len(a), chunk):
        pairs = list(zip(a[start : start + chunk], b[start : start + chunk], strict=True))
        terms = [
            (Fraction(x) * Fraction(y), split(x, lowest) + split(y, lowest) if x * y else zero)
            for x, y in pairs
        ]
        terms.append((Fraction(c), split(c, -126) if c else zero))
        unit = Fraction(2) ** (max(e for _, e in terms) - kept)
        total = sum((int(value / unit) for value, _ in terms), 0) * unit
        exponent = -126
        while abs(total) >= Fraction(2) ** (exponent + 1):
            exponent += 1
        last = Fraction(2) ** (exponent - 23)
        c = float(int(total / last) * last)
    return c


@pytest.mark.parametrize(("target", "rules"), [("sm_80", AMPERE), ("sm_90a", HOPPER)])
@pytest.mark.parametrize(("dtype", "lowest", "spread"), [("f16", -14, 10), ("bf16", -126, 30)])
def test_results_are_those_of_a_second_model(
    target: str, rules: tuple[int, int, int], dtype: str, lowest: int, spread: int
) -> None:
    (model,) = models(dtype, "f32", [target])
    products = draw(dtype, "f32", k=19, count=80, seed=3, spread=spread)
    a, b, c = products.values()
    expected = [
        fused(a[:, i].tolist(), b[:, i].tolist(), float(c[i]), rules, lowest)
        for i in range(products.count)
    ]
    assert decode(model.compute(products), products.accumulator).tolist() == expected
    other = HOPPER if rules is AMPERE else AMPERE
    wrong = fused(a[:, 0].tolist(), b[:, 0].tolist(), float(c[0]), other, lowest)
    faulty = [wrong] + [
        fused(a[:, i].tolist(), b[:, i].tolist(), float(c[i]), other, lowest) for i in range(1, 50)
    ]
    assert faulty != expected[:50]


@pytest.mark.parametrize(("dtype", "acc"), PAIRS + BYTES)
def test_the_steps_lead_to_the_result_on_random_bits(dtype: str, acc: str) -> None:
    products = random_bits(dtype, acc, 37, 30)
    for model in models(dtype, acc):
        words = model.compute(products)
        for i in range(products.count):
            at = slice(i, i + 1)
            product = replace(products, a=products.a[:, at], b=products.b[:, at], c=products.c[at])
            steps = model.steps(product)
            assert steps[-1].word == int(words[i])
            added = [term.k for step in steps for term in step.terms if term.k is not None]
            assert sorted(added) == list(range(37))


def test_what_is_cut_off_is_below_the_last_bit_kept() -> None:
    (model,) = models("f16", "f32", ["sm_80"])
    products = draw("f16", "f32", k=32, seed=4, spread=14)
    lost = 0
    for step in model.steps(products):
        assert step.exponent is not None
        assert step.last_bit == Fraction(2) ** (step.exponent - 24)
        for term in step.terms:
            assert term.kept + term.lost == term.value
            assert -step.last_bit < term.lost < step.last_bit
            assert Fraction(term.kept / step.last_bit).denominator == 1
            lost += term.lost != 0
        assert step.total == sum(term.kept for term in step.terms)
    assert lost > 3


def by_hand() -> DotProducts:
    """Return 1 + 2^-24 + 2^-25 + 2^-25 = 1 + 2^-23, whose largest exponent is that of C, 0.

    sm_80 keeps the bits down to 2^-24: both products of 2^-25 are cut off, what is left is
    1 + 2^-24, and float32 with its 23 bits, rounding toward zero, makes that 1. sm_90 keeps the
    bits down to 2^-25, so nothing is cut off and the sum, 1 + 2^-23, is a float32 number. A chain
    of IEEE additions stays at 1: 1 + 2^-24 is a tie and goes to the even 1, 1 + 2^-25 is nearer 1.
    """
    # 2^-12 and 2^-13 in float16: exponent fields 15 - 12 and 15 - 13, no fraction.
    twelve, thirteen = 3 << 10, 2 << 10
    return given("f16", "f32", [twelve] * 3, [twelve, thirteen, thirteen], 0x3F800000)


def test_one_dot_product_that_two_generations_add_up_differently() -> None:
    studied = study(by_hand(), models("f16", "f32", ["sm_80", "sm_90"]))
    ampere, hopper = studied.results
    assert studied.exact == 1 + Fraction(1, 1 << 23)
    assert studied.rounded == 0x3F800001
    assert studied.chains == {"f32": 0x3F800000}
    assert (ampere.word, hopper.word) == (0x3F800000, 0x3F800001)
    cut = Fraction(1, 1 << 25)
    assert [term.lost for term in ampere.steps[0].terms] == [0, cut, cut, 0]
    assert [term.lost for term in hopper.steps[0].terms] == [0, 0, 0, 0]


@pytest.mark.parametrize(("dtype", "acc"), PAIRS + BYTES)
def test_each_target_that_has_the_types_is_in_one_model(dtype: str, acc: str) -> None:
    distinct = models(dtype, acc)
    names = [name for model in distinct for name in model.targets]
    assert sorted(names) == sorted(
        name for name, target in TARGETS.items() if dtype in target.arithmetic.types
    )
    assert len({model.rules for model in distinct}) == len(distinct)
    products = random_bits(dtype, acc, 40, 100)
    different = []
    for model in distinct:
        first, *others = (models(dtype, acc, [name])[0].compute(products) for name in model.targets)
        assert all((words == first).all() for words in others)
        different.append(first)
    assert all((x != y).any() for x, y in combinations(different, 2))


def test_named_targets_are_the_only_ones_and_keep_their_order() -> None:
    distinct = models("f16", "f32", ["sm_90a", "sm_86", "sm_80", "sm_86"])
    assert [model.targets for model in distinct] == [("sm_90a",), ("sm_86", "sm_80")]


def test_types_and_targets_that_do_not_go_together() -> None:
    with pytest.raises(PtxlabError, match=r"sm_75 has no mma\.sync of bf16"):
        models("bf16", "f32", ["sm_80", "sm_75"])
    with pytest.raises(PtxlabError, match=r"\.bf16 into \.f16"):
        models("bf16", "f16")
    with pytest.raises(PtxlabError, match="a has 1 elements and b has 2"):
        given("f16", "f32", [1], [1, 2], 0)


def test_draws_are_reproducible_and_as_wide_as_asked() -> None:
    drawn, again, other = (draw("f16", "f32", k=500, seed=seed, spread=9) for seed in (1, 1, 2))
    assert (drawn.a == again.a).all()
    assert (drawn.a != other.a).any()
    a, b, _ = drawn.values()
    exponents = {int(e) - 1 for e in np.frexp(np.concatenate([a, b]))[1].ravel()}
    assert set(range(-9, 1)) <= exponents <= set(range(-9, 2))
    fixed = draw("f16", "f32", k=2, count=3, c=0x3F800000)
    assert fixed.c.tolist() == [0x3F800000] * 3
    with pytest.raises(PtxlabError, match="below the normal numbers of f16"):
        draw("f16", "f32", k=1, spread=15)
    with pytest.raises(PtxlabError, match="more than"):
        draw("f16", "f32", k=4096, count=4096)


def test_a_survey_counts_what_differs() -> None:
    products = draw("f16", "f32", k=16, count=300, seed=1)
    surveyed = survey(products, models("f16", "f32"))
    assert surveyed.names == ("rounded once", "f32 fma chain", "sm_75", "sm_90")
    assert (surveyed.differ == surveyed.differ.T).all()
    assert not np.diagonal(surveyed.differ).any()
    exact, chain, ampere, hopper = study_words(products)
    assert surveyed.differ[0, 1] == sum(x != y for x, y in zip(exact, chain, strict=True))
    assert surveyed.differ[2, 3] == sum(x != y for x, y in zip(ampere, hopper, strict=True))
    assert surveyed.differ[0, 3] == sum(x != y for x, y in zip(exact, hopper, strict=True))
    # An H200 differs from a correctly rounded sum in about 42 of 100 such dot products.
    assert 0.35 < surveyed.differ[0, 3] / 300 < 0.49


def study_words(products: DotProducts) -> tuple[list[int], ...]:
    """Return the words of all ways, each dot product by itself."""
    columns = []
    for i in range(products.count):
        at = slice(i, i + 1)
        product = replace(products, a=products.a[:, at], b=products.b[:, at], c=products.c[at])
        studied = study(product, models(products.dtype, products.acc))
        columns.append((studied.rounded, studied.chains["f32"], *(r.word for r in studied.results)))
    return tuple(list(row) for row in zip(*columns, strict=True))


def test_a_survey_is_of_finite_numbers() -> None:
    with pytest.raises(PtxlabError, match="finite"):
        survey(draw("f16", "f32", k=1, c=0x7F800000), models("f16", "f32"))


MEASURED = [("f16", "f32"), ("f16", "f16"), ("bf16", "f32")]


@pytest.mark.parametrize(("dtype", "acc"), MEASURED)
def test_the_handwritten_program_gives_the_bits_of_the_model(
    dtype: str, acc: str, device: Device
) -> None:
    # Neither 21 nor 11 fits the instruction: products are filled up with zeros.
    products = draw(dtype, acc, k=21, count=11, seed=2, spread=12)
    measured = measure(device, products)
    assert (measured.arch, measured.wrong) == (device.target.name, 0)
    specials = random_bits(dtype, acc, 16, 24)
    assert measure(device, specials).wrong == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_120a"])
def test_on_any_target(arch: str) -> None:
    with open_device("emulator", arch=arch) as device:
        assert measure(device, by_hand()).wrong == 0


def test_a_device_that_is_not_as_its_model_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(dtype: str, acc: str, targets: list[str]) -> tuple[Model, ...]:
        assert targets == ["sm_90a"]
        return models(dtype, acc, ["sm_80"])

    monkeypatch.setattr(sys.modules["ptxlab.numerics.models"], "models", other)
    with open_device("emulator", arch="sm_90a") as device:
        products = draw("f16", "f32", k=16, count=60, seed=1)
        measured = measure(device, products)
        assert measured.wrong > 5
        assert not study(by_hand(), models("f16", "f32"), measured).passed
        assert not survey(products, models("f16", "f32"), measured).passed


def test_zeros_at_the_end_change_no_bit() -> None:
    for dtype, acc in PAIRS + BYTES:
        products = random_bits(dtype, acc, 13, 200)
        missing = ((0, 51), (0, 0))
        longer = replace(products, a=np.pad(products.a, missing), b=np.pad(products.b, missing))
        for model in models(dtype, acc):
            first: Array = model.compute(products)
            np.testing.assert_array_equal(model.compute(longer), first)


def test_types_without_a_program_are_refused() -> None:
    with (
        open_device("emulator", arch="sm_120a") as device,
        pytest.raises(PtxlabError, match="no mma program of e2m1 into f32"),
    ):
        measure(device, draw("e2m1", "f32", k=4))


def test_rules_are_what_the_steps_show() -> None:
    for model in models("f16", "f32"):
        assert isinstance(model.rules, DotProduct)
        first, *_ = model.steps(draw("f16", "f32", k=40))
        assert len(first.terms) == model.rules.chunk + 1
