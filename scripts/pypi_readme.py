"""README.md as PyPI shows it: what it links to is on the project's site, at the version that is built."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\(|\bsrc=\"|\bhref=\")(?!\w+:|#)([^)\"\s]+)")
"""What stands before a link, and a link to a file of the project."""


class Readme(MetadataHookInterface):
    """What the build calls for the metadata that pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the long description."""
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        repository, tag = metadata["urls"]["Repository"], f"v{metadata['version']}"
        text = relinked(text, lambda path: absolute(path, repository, tag))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def relinked(text: str, target: Callable[[str], str]) -> str:
    """Return a page in Markdown with each link to a file of the project replaced by ``target`` of it."""
    return LINK.sub(lambda link: link[1] + target(link[2]), text)


def absolute(path: str, repository: str, tag: str) -> str:
    """Return where a file is on GitHub: as a page, or as it is if a page is to show it."""
    shown = path.endswith((".svg", ".webp", ".png"))
    return f"{repository}/{'raw' if shown else 'blob'}/{tag}/{path}"
