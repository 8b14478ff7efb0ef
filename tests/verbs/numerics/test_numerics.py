from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.protocol import Module
from ptxlab.errors import DeviceUnavailable
from ptxlab.isa.targets import TARGETS
from ptxlab.main import main

# 1 + 2^-24 + 2^-25 + 2^-25: see tests/numerics/test_study.py for why sm_80 and sm_90 differ.
BY_HAND = ["--a", "0x1p-12,0x0c00,1/4096", "--b", "0x1p-12,0x0800,0.0001220703125", "--c", "1"]


def run_json(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert main(["numerics", *words, "--json"]) == status, capsys.readouterr().err
    output: dict[str, Any] = json.loads(capsys.readouterr().out)
    return output


def test_the_json_of_a_dot_product(capsys: pytest.CaptureFixture[str]) -> None:
    output = run_json(capsys, *BY_HAND, "--arch", "sm_80", "--arch", "sm_90a")
    assert output["schema"] == "ptxlab.numerics/2"
    assert (output["dtype"], output["acc"], output["k"]) == ("f16", "f32", 3)
    assert output["a"] == ["0x0c00"] * 3
    assert output["b"] == ["0x0c00", "0x0800", "0x0800"]
    assert output["c"] == "0x3f800000"
    assert Fraction(output["exact"]) == 1 + Fraction(1, 1 << 23)
    assert output["rounded"] == {"bits": "0x3f800001", "value": 1 + 2.0**-23, "ulps": 0}
    assert output["chains"] == {"f32": {"bits": "0x3f800000", "value": 1.0, "ulps": -1}}
    assert output["models"] == [
        {"targets": [name], "unmeasured": [], "instruction": "mma.sync", "unpacked": False, **rules}
        for name, rules in (
            ("sm_80", {"products": 8, "fraction_bits": 24}),
            ("sm_90a", {"products": 16, "fraction_bits": 25}),
        )
    ]
    ampere, hopper = output["results"]
    assert (ampere["targets"], ampere["bits"], ampere["ulps"]) == (["sm_80"], "0x3f800000", -1)
    assert (hopper["targets"], hopper["bits"], hopper["ulps"]) == (["sm_90a"], "0x3f800001", 0)
    (step,) = ampere["steps"]
    assert (step["operation"], step["exponent"], step["last_bit"]) == ("fused", 0, -24)
    assert (step["bits"], step["value"]) == ("0x3f800000", 1.0)
    assert [term["k"] for term in step["terms"]] == [0, 1, 2, None]
    assert [term["exponent"] for term in step["terms"]] == [-24, -25, -25, 0]
    assert [term["lost"] for term in step["terms"]] == ["0", f"1/{1 << 25}", f"1/{1 << 25}", "0"]
    assert (output["measured"], output["passed"]) == (None, True)


def test_the_text_shows_the_bits_that_are_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["numerics", *BY_HAND, "--arch", "sm_80", "--arch", "sm_90"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert "exact value  1.00000011920928955078125 = 8388609 * 2^-23" in lines
    (ampere,) = (line for line in lines if line.split()[:2] == ["sm_80", "0x3f800000"])
    assert ampere.split() == ["sm_80", "0x3f800000", "1", "-1"]
    assert sum(line.endswith(f"+ {'.' * 25}|1") for line in lines) == 2
    assert sum(line.endswith(f"+ {'.' * 25}1|") for line in lines) == 2
    assert "D, the sum rounded toward zero: 0x3f800001 = 1.0000001" in lines


def test_wgmma_keeps_thirteen_bits_of_eight_bit_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """1 + 2^-13 fits, 1 + 2^-14 does not, and C loses what is below; mma.sync adds all of it."""
    words = ["--dtype", "e5m2", "--a", "1,0x1p-14", "--arch", "sm_90a", "--b"]
    for factor, sum_of_both in (("2", 1 + 2.0**-13), ("1", 1.0)):
        (wgmma,) = run_json(capsys, *words, f"1,{factor}", "--op", "wgmma")["results"]
        assert wgmma["value"] == sum_of_both
    (mma,) = run_json(capsys, *words, "1,1")["results"]
    assert mma["value"] == 1 + 2.0**-14
    words += ["0,0", "--c", "0x1p0", "--op", "wgmma"]
    assert main(["numerics", *words]) == 0
    out = capsys.readouterr().out
    assert (
        "sm_90a, wgmma: add C and 32 products at once, keeping 13 bits below the largest exponent "
        "and 13 of the fraction of D"
    ) in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dtype", "e2m1", "--op", "wgmma"], "no target has wgmma of e2m1"),
        (["--op", "wgmma", "--arch", "sm_100a"], "sm_100a has no wgmma of f16"),
        (["--op", "wgmma", "--device", "cuda"], "ptxlab has no program of wgmma"),
    ],
)
def test_where_there_is_no_wgmma(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["numerics", *words]) == 2
    assert message in capsys.readouterr().err


def test_targets_that_compute_alike_share_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    models = run_json(capsys, "--k", "1")["models"]
    assert [model["targets"][0] for model in models] == ["sm_75", "sm_90"]
    assert sorted(name for model in models for name in model["targets"]) == sorted(TARGETS)
    unmeasured = [f"sm_{number}{end}" for number in (103, 107, 110, 121) for end in ("", "a")]
    assert [model["unmeasured"] for model in models] == [["sm_87"], unmeasured]
    assert main(["numerics", "--k", "1", "--arch", "sm_120a", "--arch", "sm_121a"]) == 0
    assert "largest exponent; unmeasured: sm_121a\n" in capsys.readouterr().out
    narrow = run_json(capsys, "--k", "1", "--dtype", "e4m3", "--arch", "sm_100a")["models"]
    assert [(model["targets"], model["unpacked"]) for model in narrow] == [(["sm_100a"], True)]


def test_the_seed_decides_what_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--dtype", "bf16", "--k", "5", "--spread", "20"]
    drawn = run_json(capsys, *words, "--seed", "1")
    assert drawn == run_json(capsys, *words, "--seed", "1")
    assert drawn["a"] != run_json(capsys, *words, "--seed", "2")["a"]
    assert len(drawn["a"]) == len(drawn["b"]) == 5
    assert run_json(capsys, *words, "--c", "-1")["c"] == "0xbf800000"


def test_numbers_come_in_every_spelling(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    numbers = "-1,0x3c00, 1/3,1e-3,-inf,NaN,-0,-0x1p-24,1e9,1e-99"
    words = ["--a", numbers, "--b", ",".join(["1"] * 10), "--arch", "sm_80"]
    output = run_json(capsys, *words)
    assert output["a"] == [
        "0xbc00",
        "0x3c00",
        "0x3555",
        "0x1419",
        "0xfc00",
        "0x7fff",
        "0x8000",
        "0x8001",
        "0x7c00",
        "0x0000",
    ]
    assert output["exact"] == output["results"][0]["value"] == "nan"
    assert output["results"][0]["bits"] == "0x7fffffff"
    values = np.array([1.5, -2, 0.1], np.float32)
    for name, array in (
        ("numbers", values),
        ("own", values.astype(ml_dtypes.bfloat16)),
        ("raw", values.astype(ml_dtypes.bfloat16).view(np.uint16)),
    ):
        np.save(tmp_path / f"{name}.npy", array)
    for text in ("numbers.npy", "own.npy:bf16", "raw.npy:b16"):
        words = ["--dtype", "bf16", "--a", f"@{tmp_path}/{text}", "--b", "ones(3,f32)"]
        assert run_json(capsys, *words)["a"] == ["0x3fc0", "0xc000", "0x3dcd"]


def test_what_is_not_finite_is_shown_and_not_added_bit_by_bit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--a", "inf,1", "--b", "0,-inf", "--c", "nan", "--arch", "sm_90"]
    assert main(["numerics", *words]) == 0
    out = capsys.readouterr().out
    assert "exact value  nan\n" in out
    assert "where a[0]*b[0] is nan, a[1]*b[1] is -inf, C is nan\nD: 0x7fffffff = nan\n" in out


def test_many_dot_products_are_compared_with_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--count", "200", "--k", "8", "--acc", "f16", "--spread", "3"]
    output = run_json(capsys, *words)
    assert output["names"] == ["rounded once", "f32 fma chain", "f16 fma chain", "sm_75", "sm_90"]
    assert (output["count"], output["k"]) == (200, 8)
    differ = np.array(output["differ"])
    assert differ.shape == (5, 5)
    assert (differ == differ.T).all()
    assert 40 < differ[0, 2] < 160  # float16 sums are rounded all the time
    assert main(["numerics", *words]) == 0
    out = capsys.readouterr().out
    assert f"  {differ[0, 2] / 2:.2f}" in out
    assert "sm_75 sm_80 sm_86 sm_87 sm_89: add C and 8 products at once" in out
    assert out.count("largest exponent; unmeasured: sm_87\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--a", "1"], "--a and --b go together"),
        (["--a", "1", "--b", "1,2"], "a has 1 elements and b has 2"),
        (["--a", "x", "--b", "1"], "--a x: 'x' is not a number"),
        (["--a", "1,,2", "--b", "1,2,3"], "'' is not a number"),
        (["--a", "1/0", "--b", "1"], "'1/0' is not a number"),
        (["--a", "0x12345", "--b", "1"], "more than the 16 bits of f16"),
        (["--a", "@missing.npy", "--b", "1"], "cannot read missing.npy"),
        (["--a", "ones(2x2,f16)", "--b", "1"], "not an array of one dimension"),
        (["--a", "ones(2,b32)", "--b", "1,1"], "not those of f16"),
        (["--a", "1", "--b", "1", "--k", "3"], "--k is for numbers that are drawn"),
        (["--a", "1", "--b", "1", "--count", "3"], "--count is for numbers that are drawn"),
        (["--dtype", "e4m3", "--a", "1000", "--b", "1"], "e4m3 has no number near 1000"),
        (["--dtype", "f61"], ".f61 into .f32"),
        (["--dtype", "bf16", "--acc", "f16"], ".bf16 into .f16"),
        (["--dtype", "bf16", "--arch", "sm_75"], "sm_75 has no mma.sync of bf16"),
        (["--arch", "sm_90b"], "no target 'sm_90b'"),
        (["--k", "0"], "'0' is not an integer of 1 or more"),
        (["--k", "5000"], "no more than 4096"),
        (["--count", "many"], "'many' is not an integer"),
        (["--count", "9999999"], "more than"),
        (["--count", "3", "--c", "inf"], "finite"),
        (["--spread", "15"], "below the normal numbers of f16"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["numerics", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


class Gpu(EmulatorDevice):
    """A stand-in for an sm_90a GPU, which computes as another target does."""

    kind = "cuda"

    def __init__(self, really: str) -> None:
        super().__init__(TARGETS["sm_90a"])
        self.really = TARGETS[really]

    @property
    def name(self) -> str:
        return "a GPU"

    def load(self, *words: Any, **options: Any) -> Module:
        said, self.target = self.target, self.really
        try:
            module = super().load(*words, **options)
            for name in module.kernels:
                module.kernel(name)
            return module
        finally:
            self.target = said


@pytest.mark.parametrize(
    ("really", "status", "bits"), [("sm_90a", 0, "0x3f800001"), ("sm_80", 1, "0x3f800000")]
)
def test_a_gpu_is_asked_for_its_bits(
    really: str,
    status: int,
    bits: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("ptxlab.device.opening._open_cuda", lambda *_: Gpu(really))
    words = ["--device", "cuda", "--arch", "sm_80"]
    output = run_json(capsys, *BY_HAND, *words, status=status)
    expected = {"device": "a GPU", "arch": "sm_90a", "bits": [bits], "wrong": status}
    assert (output["measured"], output["passed"]) == (expected, not status)
    assert main(["numerics", *BY_HAND, *words]) == status
    verdict = f"{bits}  {'NOT as' if status else 'as'} predicted for sm_90a"
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("a GPU"))
    assert (bits in row, row.endswith(verdict.partition("  ")[2])) == (True, True)
    many = run_json(capsys, "--count", "20", *words, status=status)
    assert many["names"][-1] == "a GPU"
    assert len(many["measured"]["bits"]) == 20
    assert (many["measured"]["wrong"] > 0, many["passed"]) == (bool(status), not status)
    assert main(["numerics", "--count", "20", *words]) == status
    assert ("of 20 are NOT as predicted" in capsys.readouterr().out) == bool(status)


def test_without_a_gpu_cuda_is_an_error_and_auto_is_the_models(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_gpu(ordinal: int, target: object) -> None:
        raise DeviceUnavailable("there is no CUDA driver")

    monkeypatch.setattr("ptxlab.device.opening._open_cuda", no_gpu)
    assert main(["numerics", "--k", "1", "--device", "cuda"]) == 3
    assert "no CUDA driver" in capsys.readouterr().err
    assert run_json(capsys, "--k", "1", "--device", "auto")["measured"] is None
