"""The tools are asked themselves: here nothing is on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxlab import cache


@pytest.fixture(scope="session")
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with no more in it than the headers of CUDA."""
    folder = tmp_path_factory.mktemp("cache")
    headers = cache.directory() / "headers"
    headers.mkdir(parents=True, exist_ok=True)
    (folder / "ptxlab").mkdir()
    (folder / "ptxlab" / "headers").symlink_to(headers)
    return folder


@pytest.fixture(autouse=True)
def _ask_tools(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty_cache))
