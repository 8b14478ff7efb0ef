"""Which lane holds which element: registers dumped on a device and compared with the layouts."""

from ptxlab.fragments.fill import ADDRESSING, NUMBERED, ONES, Fill, Inputs, inputs
from ptxlab.fragments.program import verifiable
from ptxlab.fragments.query import Held, Selection, select
from ptxlab.fragments.report import FragmentReport, Mismatch, Run
from ptxlab.fragments.verify import verify

__all__ = [
    "ADDRESSING",
    "NUMBERED",
    "ONES",
    "Fill",
    "FragmentReport",
    "Held",
    "Inputs",
    "Mismatch",
    "Run",
    "Selection",
    "inputs",
    "select",
    "verifiable",
    "verify",
]
