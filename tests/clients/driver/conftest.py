from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptxlab.clients import captures
from tests.clients.driver.digits import Digits


@pytest.fixture
def digits() -> Iterator[Digits]:
    yield Digits()
    for capture in captures.under_way():
        captures.end(capture)
