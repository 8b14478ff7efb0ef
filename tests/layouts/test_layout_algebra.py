"""The algebra of layouts, on random nested layouts, against ``tensor-layouts`` and enumeration."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensor_layouts as cute

from ptxlab.layouts.int_tuple import IntTuple, notation
from ptxlab.layouts.layout import Layout

ROUNDS = 600
LARGEST = 256
STRIDES = (0, 1, 2, 3, 4, 6, 8, 16, 32)


def random_shape(draw: random.Random, depth: int) -> IntTuple:
    if depth == 0 or draw.random() < 0.5:
        return draw.choice([1, 2, 2, 3, 4, 4, 6, 8])
    return tuple(random_shape(draw, depth - 1) for _ in range(draw.randint(1, 3)))


def filled(shape: IntTuple, value: Callable[[], int]) -> IntTuple:
    return value() if isinstance(shape, int) else tuple(filled(part, value) for part in shape)


def random_layout(draw: random.Random, depth: int) -> Layout:
    shape = random_shape(draw, depth)
    kind = draw.randrange(3)
    if kind == 0:
        return Layout.row_major(shape)
    if kind == 1:
        return Layout.col_major(shape)
    return Layout(shape, filled(shape, lambda: draw.choice(STRIDES)))


def rounds(seed: int) -> Iterator[tuple[Layout, Layout, random.Random]]:
    draw = random.Random(seed)
    for _ in range(ROUNDS):
        first, second = random_layout(draw, 2), random_layout(draw, 1)
        if first.size <= LARGEST and second.size <= LARGEST:
            yield first, second, draw


def theirs(layout: Layout) -> Any:
    return cute.Layout(layout.shape, layout.stride)


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result, or None where the layouts are refused."""
    try:
        return function(*arguments)
    except ValueError:  # cute.LayoutError is one
        return None


def offsets(layout: Any) -> list[int]:
    size = layout.size if isinstance(layout, Layout) else cute.size(layout)
    return [layout(i) for i in range(size)]


def same_text(ours: Layout, other: Any) -> bool:
    return (ours.shape, ours.stride) == (other.shape, other.stride)


def test_refusals_of_the_other_package_are_value_errors() -> None:
    assert issubclass(cute.LayoutError, ValueError)


def test_sizes_and_offsets() -> None:
    for layout, _, _ in rounds(1):
        assert (layout.size, layout.cosize) == (cute.size(theirs(layout)), max(offsets(layout)) + 1)
        assert offsets(layout) == offsets(theirs(layout))


def test_coalesce() -> None:
    for layout, _, _ in rounds(2):
        ours = layout.coalesce()
        assert same_text(ours, cute.coalesce(theirs(layout)))
        assert offsets(ours) == offsets(layout)


def test_compose() -> None:
    seen: Counter[str] = Counter()
    for outer, inner, _ in rounds(3):
        ours = attempt(outer.compose, inner)
        other = attempt(cute.compose, theirs(outer), theirs(inner))
        inside = inner.cosize <= outer.size
        if inside:
            wanted = [outer(inner(i)) for i in range(inner.size)]
        else:
            wanted = [] if other is None else offsets(other)
        if ours is not None and (inside or other is not None):
            assert offsets(ours) == wanted, (outer.notation, inner.notation)
            if isinstance(inner.shape, tuple):
                assert [part.size for part in ours.parts] == [part.size for part in inner.parts]
            seen["composed"] += 1
        if ours is None and other is not None and inside:
            # What we refuse, they return, but it is no composition.
            assert offsets(other) != wanted
            seen["wrong elsewhere"] += 1
    assert seen["composed"] > ROUNDS // 3


def test_complement() -> None:
    seen = 0
    for layout, _, draw in rounds(4):
        bound = draw.choice([layout.cosize, 24, 64, 7])
        ours = attempt(layout.complement, bound)
        if ours is None:
            continue
        assert same_text(ours, cute.complement(theirs(layout), bound))
        both = Counter(a + b for a in set(offsets(layout)) for b in offsets(ours))
        assert set(both.values()) == {1}
        assert sorted(both) == list(range(len(both)))
        assert len(both) >= bound
        seen += 1
    assert seen > ROUNDS // 3


def test_complements_that_are_no_layouts_are_refused() -> None:
    for shape, stride in (((2, 2), (2, 3)), ((8, 2), (1, 4))):
        with pytest.raises(ValueError, match="gaps"):
            Layout(shape, stride).complement(64)


def test_right_inverse() -> None:
    for layout, _, _ in rounds(5):
        ours = layout.right_inverse()
        assert same_text(ours, cute.right_inverse(theirs(layout)))
        assert [layout(ours(i)) for i in range(ours.size)] == list(range(ours.size))


def test_left_inverse() -> None:
    seen: Counter[str] = Counter()
    for layout, _, _ in rounds(6):
        ours, other = attempt(layout.left_inverse), cute.left_inverse(theirs(layout))
        numbers = list(range(layout.size))
        if ours is not None:
            assert [ours(offset) for offset in offsets(layout)] == numbers
            assert same_text(ours, other)
            seen["inverted"] += 1
        elif len(set(offsets(layout))) == layout.size:
            seen["one to one, but no layout"] += 1
    assert seen["inverted"] > ROUNDS // 3
    assert seen["one to one, but no layout"] < 10


def test_divide_and_product() -> None:
    seen: Counter[str] = Counter()
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("divide", Layout.divide, cute.logical_divide),
        ("product", Layout.product, cute.logical_product),
    )
    for layout, other, _ in rounds(7):
        for name, ours, reference in pairs:
            actual = attempt(ours, layout, other)
            expected = attempt(reference, theirs(layout), theirs(other))
            if actual is not None and expected is not None and actual.size <= 4 * LARGEST:
                assert offsets(actual) == offsets(expected), (layout.notation, other.notation)
                seen[name] += 1
    assert min(seen["divide"], seen["product"]) > ROUNDS // 3


def test_documented_examples() -> None:
    """CuTe Layout Algebra: composition, complement and division as its pages write them."""
    composed = Layout((6, 2), (8, 2)).compose(Layout((4, 3), (3, 1)))
    assert composed.notation == "((2,2),3):((24,2),8)"
    assert Layout(20, 2).compose(Layout((5, 4), (4, 1))).notation == "(5,4):(8,2)"
    assert (
        Layout((10, 2), (16, 4)).compose(Layout((5, 4), (1, 5))).notation == "(5,(2,2)):(16,(80,4))"
    )
    assert Layout((2, 2), (1, 6)).complement(24).notation == "(3,2):(2,12)"
    assert (
        Layout((4, 2, 3), (2, 1, 8)).divide(Layout(4, 2)).notation == "((2,2),(2,3)):((4,1),(2,8))"
    )


def test_a_composition_that_steps_over_an_edge_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Layout((4, 3), (3, 1)).compose(Layout(3, 3))
    with pytest.raises(ValueError, match="together"):
        Layout((4, 6), (100, 1)).compose(Layout((2, 2), (3, 3)))


def test_of_offsets_finds_every_layout_again() -> None:
    for layout, _, _ in rounds(8):
        assert Layout.of_offsets(offsets(layout)) == layout.coalesce()


@pytest.mark.parametrize(
    "numbers", [[0, 1, 3], [1, 2, 3], [0, 1, 2, 4], [0, -1], [0, 1, 4, 6], [3], [0, 1, 1, 0]]
)
def test_of_offsets_refuses_what_is_no_layout(numbers: list[int]) -> None:
    with pytest.raises(ValueError, match="no layout"):
        Layout.of_offsets(numbers)


def test_notation() -> None:
    assert notation(((4, 8), (2, 2, 2))) == "((4,8),(2,2,2))"
    assert notation((2,)) == "(2)"
