"""Instructions, layouts and what verbs say of a launch, as Jupyter shows them: see ``ptxlab.pictured``."""

from __future__ import annotations

from html import escape

from ptxlab.errors import PtxlabError
from ptxlab.fragments import receipts
from ptxlab.layouts.layout import ComposedLayout, Layout
from ptxlab.matrix.form import Form
from ptxlab.matrix.fragment import FragmentLayout
from ptxlab.pictured import Readable
from ptxlab.verbs import results
from ptxlab.verbs.fragments import svg as drawing
from ptxlab.verbs.fragments.svg_operands import operand_svg
from ptxlab.verbs.layout.layouts import Offsets

Picturable = Form | FragmentLayout | Layout | ComposedLayout | Readable
save = results.save
_BITS = 16
"""Of an element of a layout, which does not say: what its colours, those of the banks, go by."""


def svg(shown: Picturable) -> str | None:
    """Return the picture: of all operands of an instruction, of one, or of the offsets of a layout.

    None of a layout with too many, and of what a verb says.
    """
    if isinstance(shown, Readable):
        return None
    if isinstance(shown, FragmentLayout):
        return operand_svg(shown)
    if isinstance(shown, Layout | ComposedLayout):
        try:
            return Offsets(shown, _BITS).svg()
        except PtxlabError:
            return None
    return drawing.svg(shown)


def html(shown: Picturable) -> str | None:
    """Return the picture with a caption: targets and evidence, size and registers, or the notation."""
    if isinstance(shown, Readable):
        return results.framed(shown)
    picture = svg(shown)
    if picture is None:
        return None
    caption = " · ".join(escape(part) for part in _caption(shown))
    figure = f"{picture}<figcaption>{caption}</figcaption>"
    return f'<figure style="margin:0;overflow-x:auto">{figure}</figure>'


def text(shown: Readable) -> str:
    """Return what a verb says of a result on a terminal."""
    return results.said(shown).text()


def _caption(shown: Form | FragmentLayout | Layout | ComposedLayout) -> list[str]:
    if isinstance(shown, Layout | ComposedLayout):
        return [shown.notation, f"colours are the banks of {_BITS}-bit elements"]
    if isinstance(shown, FragmentLayout):
        size = f"{shown.operand} {shown.rows}×{shown.cols} {shown.dtype}"
        count, bits = shown.registers_per_lane, shown.register_bits
        return [size, f"{count} registers of {bits} bits a {shown.holder}"]
    gpu = receipts.hardware(shown)
    evidence = f"verified on {gpu}" if gpu else "unverified on hardware"
    return [shown.minimum_target, f"PTX {shown.version}", f"PTX ISA: {shown.section}", evidence]
