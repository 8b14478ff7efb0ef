"""What a notebook shows of the tables of this room: their pictures.

This room draws nothing and imports no other. A notebook asks an object for its picture by method
name, and only then is the room that draws looked up, by name too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

PAINTER = "ptxlab.view.notebook"
"""The module whose ``svg`` and ``html`` draw an object."""


class Pictured:
    """Shown by Jupyter as a picture, and in a caption what is known of it."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(_painter().svg(self))

    def _repr_html_(self) -> str:
        return str(_painter().html(self))


def _painter() -> Any:
    return import_module(PAINTER)
