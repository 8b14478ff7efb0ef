"""The names that a hint offers, against difflib's own choice of all that are known."""

from __future__ import annotations

import difflib
from random import Random

import pytest

from ptxlab import resources
from ptxlab.errors import _most_alike, nearest
from ptxlab.matrix.catalog import forms

MMA = list(dict.fromkeys(form.name for form in forms() if form.name.startswith("mma.")))


def misspelled(word: str, random: Random) -> str:
    """Leave out or change some letters."""
    letters = list(word)
    for _ in range(random.randrange(5)):
        at = random.randrange(len(letters))
        letters[at] = random.choice(["", ".", *"abefmst0123468"])
    return "".join(letters)


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("known", [MMA[::4], resources.names()], ids=["mma", "programs"])
def test_the_nearest_names_are_those_of_difflib(known: list[str], most: int) -> None:
    random = Random(most)
    words = [misspelled(random.choice(known), random) for _ in range(8)]
    for word in [*words, "", "zzz", known[0]]:
        assert nearest(word, known, most) == difflib.get_close_matches(word, known, n=most)


def test_a_word_in_other_capitals_is_nearest() -> None:
    assert nearest("D", ["a", "b", "d"]) == ["d"]
    assert nearest("d", ["a", "b"]) == []


def test_no_ratio_is_above_its_bound_which_is_that_of_the_longest_common_subsequence() -> None:
    random = Random(0)
    for _ in range(50):
        a, b = ("".join(random.choices("ab.", k=random.randrange(1, 9))) for _ in range(2))
        assert _most_alike(a, b) == 2 * common(a, b) / (len(a) + len(b))
        assert difflib.SequenceMatcher(a=a, b=b).ratio() <= _most_alike(a, b)


def common(a: str, b: str) -> int:
    """Return the length of the longest common subsequence."""
    if not a or not b:
        return 0
    return max(common(a[1:], b), common(a, b[1:]), common(a[1:], b[1:]) + (a[0] == b[0]))
