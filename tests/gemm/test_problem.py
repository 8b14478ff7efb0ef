import ml_dtypes
import numpy as np
import pytest

from ptxlab.errors import PtxlabError
from ptxlab.gemm import Problem


@pytest.mark.parametrize(
    ("dtype", "kind"), [("f32", np.float32), ("bf16", ml_dtypes.bfloat16), ("f16", np.float16)]
)
def test_inputs_are_standard_normal_and_repeatable(dtype: str, kind: type) -> None:
    a, b = Problem(200, 150, 100, dtype, seed=3).inputs()
    assert (a.shape, b.shape) == ((200, 100), (100, 150))
    assert a.dtype == b.dtype == kind
    assert a.flags.c_contiguous
    assert b.flags.c_contiguous
    for matrix in (a.astype(np.float64), b.astype(np.float64)):
        assert abs(matrix.mean()) < 0.03
        assert abs(matrix.std() - 1) < 0.03
    again = Problem(200, 150, 100, dtype, seed=3).inputs()
    other = Problem(200, 150, 100, dtype, seed=4).inputs()
    assert a.tobytes() == again[0].tobytes()
    assert b.tobytes() == again[1].tobytes()
    assert a.tobytes() != other[0].tobytes()
    assert a.tobytes()[:1000] != b.tobytes()[:1000]


def test_flops() -> None:
    assert Problem(3, 4, 5).flops == 120


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((-1, 2, 3), "m = -1"),
        ((1, 2**31, 3), "n = 2147483648"),
        ((1, 2, -5), "k = -5"),
        ((1, 2, 3, "bf17"), "did you mean bf16?"),
        ((1, 2, 3, "f16", "bf16"), "acc is one of f32, f16"),
    ],
)
def test_what_is_no_problem(arguments: tuple[int, int, int], said: str) -> None:
    with pytest.raises(PtxlabError) as caught:
        Problem(*arguments)
    assert said in str(caught.value)
