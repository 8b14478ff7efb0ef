"""What a notebook shows of an object: its picture, which a room far from the object draws.

The rooms of layouts and of matrix instructions draw nothing. A notebook asks an object for its picture
by method name, and only then is the room that draws imported, from ``ptxlab/__init__.py``.
"""

from __future__ import annotations

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


class Pictured:
    """Shown by Jupyter as a picture, and in a caption what is known of it."""

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        return _painter().svg(self) if _painter else None

    def _repr_html_(self) -> str | None:
        return _painter().html(self) if _painter else None


_painter: Callable[[], Painter] | None = None


def painted_by(painter: Callable[[], Painter]) -> None:
    """Have ``painter()`` draw every object, called when the first is shown."""
    global _painter
    _painter = painter
