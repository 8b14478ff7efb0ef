"""One browser for all tests of pages: its start takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.verbs.browser import Browser, missing


@pytest.fixture(scope="session")
def window() -> Iterator[Browser]:
    if absent := missing():
        pytest.fail(f"PTXLAB_NEEDS_BROWSER is set and there is {absent}")
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """Return the browser of a system in light colours; no page may find an error."""
    window.scheme("light")
    yield window
    assert window.errors() == []
