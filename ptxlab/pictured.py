"""What a notebook shows of an object: its picture, which a room far from the object draws.

The rooms of layouts, of matrix instructions and of what is seen of a launch draw nothing. A notebook asks an object for
its picture by method name, and only then is the room that draws imported, from ``ptxlab/__init__.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol


class Painter(Protocol):
    """Draws an object; None where it is too large for a picture, and Jupyter prints it."""

    def svg(self, shown: Any, /) -> str | None:
        """Return the picture."""
        ...

    def html(self, shown: Any, /) -> str | None:
        """Return the picture in a figure whose caption says what is known."""
        ...

    def text(self, shown: Any, /) -> str:
        """Return what a verb says of a result on a terminal."""
        ...

    def save(self, shown: Any, path: str | os.PathLike[str], /) -> None:
        """Write what a verb says of a result to a file, in the form that its name ends with."""
        ...


class Pictured:
    """Shown by Jupyter as a picture, and in a caption what is known of it."""

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        return _painter().svg(self) if _painter else None

    def _repr_html_(self) -> str | None:
        return _painter().html(self) if _painter else None


class Readable(Pictured):
    """A result that a verb has words for, and a notebook shows as the verb does."""

    __slots__ = ()

    def as_text(self) -> str:
        """Return what the verb says of it on a terminal."""
        return _require().text(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to ``path``: as the verb's page (.html), where it has one, all of it as JSON (.json), else as text.

        Raises PtxlabError where that cannot be written.
        """
        _require().save(self, path)


def _require() -> Painter:
    assert _painter is not None
    return _painter()


_painter: Callable[[], Painter] | None = None


def painted_by(painter: Callable[[], Painter]) -> None:
    """Have ``painter()`` draw every object, called when the first is shown."""
    global _painter
    _painter = painter
