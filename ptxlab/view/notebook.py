"""Matrix instructions and fragment layouts as Jupyter shows them: see ``ptxlab.isa.notebook``."""

from __future__ import annotations

from html import escape

from ptxlab.fragments import receipts
from ptxlab.isa import FragmentLayout, MatrixInstruction
from ptxlab.view import svg as drawing


def svg(shown: MatrixInstruction | FragmentLayout) -> str:
    """Return the picture: of all operands of an instruction, or of one."""
    if isinstance(shown, MatrixInstruction):
        return drawing.svg(shown)
    return drawing.operand_svg(shown)


def html(shown: MatrixInstruction | FragmentLayout) -> str:
    """Return the picture with a caption: targets and evidence, or size and registers."""
    caption = " · ".join(escape(part) for part in _caption(shown))
    figure = f"{svg(shown)}<figcaption>{caption}</figcaption>"
    return f'<figure style="margin:0;overflow-x:auto">{figure}</figure>'


def _caption(shown: MatrixInstruction | FragmentLayout) -> list[str]:
    if isinstance(shown, MatrixInstruction):
        gpu = receipts.hardware(shown)
        evidence = f"verified on {gpu}" if gpu else "unverified on hardware"
        version = "PTX {}.{}".format(*shown.minimum_ptx)
        return [shown.minimum_target, version, f"PTX ISA: {shown.section}", evidence]
    size = f"{shown.operand} {shown.rows}×{shown.cols} {shown.dtype}"
    return [
        size,
        f"{shown.registers_per_lane} registers of {shown.register_bits} bits a {shown.holder}",
    ]
