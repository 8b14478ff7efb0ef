"""What a dot product becomes: exactly, in IEEE arithmetic, and on the tensor cores of each chip."""

from ptxlab.numerics.measure import Measured, measure
from ptxlab.numerics.models import Model, models
from ptxlab.numerics.products import DotProducts, draw, given
from ptxlab.numerics.study import Result, Study, study
from ptxlab.numerics.survey import Survey, survey

__all__ = [
    "DotProducts",
    "Measured",
    "Model",
    "Result",
    "Study",
    "Survey",
    "draw",
    "given",
    "measure",
    "models",
    "study",
    "survey",
]
