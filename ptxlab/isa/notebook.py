"""What a notebook shows of the tables of this room: their pictures.

This room draws nothing and imports no other. A notebook asks an object for its picture by method
name, and only then is the room that draws looked up, by name too.
"""

from __future__ import annotations

from importlib import import_module

PAINTER = "ptxlab.verbs.notebook"
"""The module whose ``svg`` and ``html`` draw an object."""


class Pictured:
    """Shown by Jupyter as a picture, and in a caption what is known of it."""

    __slots__ = ()

    def _repr_svg_(self) -> str | None:
        return _drawn("svg", self)

    def _repr_html_(self) -> str | None:
        return _drawn("html", self)


def _drawn(way: str, shown: Pictured) -> str | None:
    """Return the picture, None of what is too large for one: then Jupyter prints it."""
    picture: str | None = getattr(import_module(PAINTER), way)(shown)
    return picture
