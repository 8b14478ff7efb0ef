from __future__ import annotations

import csv
import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxlab
from ptxlab import PtxlabError, Unsupported
from ptxlab.isa.gpus import spelled
from ptxlab.main import main
from ptxlab.prediction.arguments import MapOf
from ptxlab.prediction.chip import find, names
from ptxlab.prediction.model import BOUNDS
from ptxlab.toolchain import assemble_cuda
from ptxlab.verbs.predict.verb import chips
from tests.together import in_one_test, thorough

SOURCE = """\
// Run: ptxlab run scale.cu --grid 4 --block 128 --arg "x=randn(512,f32)" --arg n=512
extern "C" __global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2 * x[i];
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one folder for all tests: machine code names it, and where it is the same is disassembled once."""
    return tmp_path_factory.mktemp("predict")


@pytest.fixture
def scale(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    (folder / "scale.cu").write_text(SOURCE)
    return "scale.cu"


def test_it_says_how_long_and_why(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", scale, "--gpu", "rtx4090"]) == 0
    text = capsys.readouterr().out
    assert "scale on RTX 4090 (sm_89) at 2,520 MHz" in text
    assert "if (i < n) x[i] = 2 * x[i];" in text, "the line that waits"
    assert "long scoreboard" in text
    assert re.search(
        r"rate +\S+ TFLOP/s \(0% of 82.6\), DRAM \S+ GB/s \(\d+% of 1,008\), L1 hits 0%, L2 hits 100%",
        text,
    )
    assert max(map(len, text.splitlines())) <= 160


def test_json_has_what_the_contract_says(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", scale, "--gpu", "a100", "--clock", "1000", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["schema"] == "ptxlab.predict/2"
    assert output["uneven"] is None
    assert (output["gpu"], output["arch"], output["clock_mhz"]) == ("A100 SXM", "sm_80", 1000)
    assert output["low"] < output["seconds"] < output["high"]
    assert math.isclose(output["tflops"], 512 / output["seconds"] / 1e12), "a product a thread"
    assert output["bound"] in ("pipe", "latency", *BOUNDS)
    assert math.isclose(sum(output["stalls"].values()), 1, rel_tol=1e-6)
    by_line = sum(line["share"] for line in output["lines"])
    assert math.isclose(by_line, 1, rel_tol=1e-6), "every wait belongs to a line"
    assert output["occupancy"]["ctas"] == 16
    assert output["not_modelled"]


def test_of_machine_code_alone_every_wait_belongs_to_an_instruction(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, cubin = assemble_cuda(SOURCE, path=scale, arch="sm_86")
    Path("scale.cubin").write_bytes(cubin.image)
    launch = ["--gpu", "rtx3090", "--grid", "4", "--block", "128"]
    given = ["--arg", "x=randn(512,f32)", "--arg", "n=512"]
    assert main(["predict", "scale.cubin", *launch, *given, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    assert math.isclose(sum(line["share"] for line in lines), 1, rel_tol=1e-6)
    assert [line["line"] for line in sorted(lines, key=lambda line: line["line"])] == [
        *range(0, 16 * len(lines), 16)
    ]
    assert main(["predict", "scale.cubin", *launch, *given]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"share +mostly +instruction", shown)
    assert re.search(r"\d+% +long scoreboard +0x00\w0 +FADD R\d+, R\d+, R\d+", shown)


def test_it_says_what_of_a_launch_it_has_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loop of 1,000 turns, of three instructions or more, in 1,000 CTAs of two warps that do alike."""
    file = tmp_path / "turns.cu"
    file.write_text(
        'extern "C" __global__ void turns(volatile float* x) {\n'
        "#pragma unroll 1\n"
        "    for (int i = 0; i < 1000; i++) x[threadIdx.x] += 1;\n}\n"
    )
    command = ["predict", str(file), "--gpu", "a100", "--grid", "1000", "--block", "64", "--arg", "x=zeros(64,f32)"]  # fmt: skip
    assert main([*command, "--json"]) == 0
    sampled = json.loads(capsys.readouterr().out)["sampled"]
    assert (sampled["ctas"], sampled["followed"]) == (1000, 128)
    assert 1 <= sampled["run"] <= 32
    assert 2 * 3000 * sampled["run"] < sampled["issued"] < 2 * 10000 * sampled["run"]
    assert 0 < sampled["ran"] < sampled["issued"] / 20
    assert main(command) == 0
    told = f"of 1,000 CTAs 128 were followed and {sampled['run']} run clock by clock, "
    assert told in capsys.readouterr().out


def test_several_gpus_stand_side_by_side(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", scale, "--gpu", "a100", "--gpu", "rtx4090"]) == 0
    text = capsys.readouterr().out
    assert [line.split("  ")[0] for line in text.splitlines()[2:4]] == ["A100 SXM", "RTX 4090"]
    assert re.search(
        r"A100 SXM  RTX 4090  of the time used\n(\d+% +\d+% +\w+\n)*\d+% +\d+% +lsu\n", text
    )
    assert "A100 SXM  RTX 4090  line" in text
    assert "scale.cu:4  if (i < n)" in text, "a line is named with its file"
    assert main(["predict", scale, "--gpu", "a100", "--gpu", "rtx4090", "--json"]) == 0
    both = json.loads(capsys.readouterr().out)["predictions"]
    assert main(["predict", scale, "--gpu", "a100", "--gpu", "rtx4090", "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["gpu"] for row in rows] == ["A100 SXM", "RTX 4090"]
    assert [float(row["used.dram"]) for row in rows] == [each["used"]["dram"] for each in both]
    assert main(["predict", scale, "--arch", "sm_89", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == both[1], "--arch alone is its first GPU"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--arch", "sm_80", "--gpu", "h100"], "H100 SXM is sm_90a, and --arch says sm_80"),
        (["--arch", "sm_110a"], "no GPU of sm_110a is known"),
    ],
)
def test_a_target_that_is_not_the_gpus_is_refused(
    given: list[str], told: str, scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", scale, *given]) == 2
    assert told in capsys.readouterr().err


def test_all_gpus_are_those_that_are_known() -> None:
    assert [spelled(chip.gpu.name) for chip in chips(["all"], [])] == list(names())
    assert {chip.gpu.capability for chip in chips(["all"], ["sm_89"])} == {89}


def test_an_unknown_gpu_lists_those_there_are(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", scale, "--gpu", "rtx9999"]) == 2
    told = capsys.readouterr().err
    assert "rtx9999" in told
    assert all(name in told for name in names())


@pytest.mark.parametrize(
    ("target", "able"),
    [
        ("sm_90a", "GPUs that run it: h200, h100, h100pcie, gh200"),
        ("sm_103a", "no GPU here runs it"),
    ],
)
def test_a_program_for_another_target_is_told_who_runs_it(target: str, able: str) -> None:
    program = f".version 8.8\n.target {target}\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
    with pytest.raises(Unsupported, match=f"{target} does not run on sm_80") as told:
        ptxlab.predict(program, "a100", 1, 32)
    assert told.value.hint == able


def test_every_gpu_of_a_chip_is_found() -> None:
    known = {"t4", "a100", "rtx3090", "rtxa6000", "rtx4090", "h100", "h200", "b200", "rtx5090"}
    assert known <= set(names())
    with pytest.raises(Unsupported, match="nobody says what its L2 cache delivers"):
        find("agxorin")
    assert find("RTX 3090").gpu.name == "RTX 3090"


@pytest.mark.parametrize(("name", "why"), [("GB300", "latencies"), ("thor", "caches and memory")])
def test_a_gpu_that_nobody_measured_is_refused_by_name(name: str, why: str) -> None:
    with pytest.raises(Unsupported, match=f"the time of {name} is not predicted: .*{why}"):
        find(name)


def test_a_gpu_of_ones_own_is_told_in_a_file(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.toml").write_text(
        'like = "rtx4090"\nname = "Mine"\nsms = 2\nclock = 1000\nbandwidth = 100\n[latency]\nl2 = 600\n'
    )
    assert main(["predict", scale, "--gpu", "mine.toml", "--gpu", "rtx4090", "--json"]) == 0
    mine, like = json.loads(capsys.readouterr().out)["predictions"]
    assert (mine["gpu"], mine["arch"], mine["clock_mhz"]) == ("Mine", "sm_89", 1000)
    assert mine["cycles"] > like["cycles"] + 200, "its L2 cache is further away"
    assert (find("mine.toml").gpu.bandwidth, find("rtx4090").gpu.bandwidth) == (100, 1008)


def test_a_file_may_say_what_limit_of_power_a_card_has(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('like = "rtx5090"\npower = 400\n')
    assert find(str(file)).gpu == find("rtx5090").limited(400).gpu


def test_a_gpu_of_ones_own_may_have_one_of_something(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text('like = "t4"\nsms = 1\nl2_mib = 1\n[memory]\nwavefront = 1\n')
    small = find(str(file))
    assert (small.gpu.sms, small.gpu.l2_mib, small.memory.wavefront) == (1, 1, 1)


def test_an_l2_cache_is_cold_if_an_option_says_so_or_a_file(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cold.toml").write_text('like = "a100"\nname = "Cold"\ncold = true\n')
    assert main(["predict", scale, "--gpu", "a100,cold.toml", "--json"]) == 0
    warm, cold = json.loads(capsys.readouterr().out)["predictions"]
    assert (warm["cold"], cold["cold"]) == (False, True)
    assert main(["predict", scale, "--gpu", "a100", "--cold", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cold"] is True
    assert told["cycles"] == cold["cycles"] > warm["cycles"]
    assert main(["predict", scale, "--gpu", "a100", "--cold"]) == 0
    assert "at 1,410 MHz, L2 cold\n" in capsys.readouterr().out


@in_one_test(
    ("told", "why"),
    [
        ("sms = 3", "does not say which GPU it is like"),
        ('like = "mine.toml"', "does not say which GPU it is like"),
        ('like = "a100', "tells of no GPU"),
        ('like = "agxorin"', "is not predicted"),
        ('like = "a100"\nsm = 3', "'sm' is told of no GPU"),
        ('like = "a100"\nsms = "many"', "sms is 'many'"),
        ('like = "a100"\nsms = 2.5', "sms is 2.5"),
        ('like = "a100"\nclock = true', "clock is True"),
        ('like = "a100"\ncold = 1', "cold is 1"),
        ('like = "a100"\nsms = 0', "sms is 0"),
        ('like = "rtx5090"\npower = 0', "power is 0"),
        ('like = "rtx4090"\npower = 300', "what a limit of power leaves RTX 4090"),
        ('like = "a100"\nl2_mib = -4', "l2_mib is -4"),
        ('like = "a100"\nname = true', "name is True"),
        ('like = "a100"\nbandwidth = nan', "bandwidth is nan"),
        ('like = "a100"\nlatency = 3', "3 is no table"),
        ('like = "a100"\n[latency]\nl3 = 3', "'l3' is told of no GPU"),
    ],
)
def test_a_file_that_tells_of_no_gpu_is_refused(told: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(told)
    with pytest.raises(PtxlabError, match=why):
        find(str(file))


STRUCT = """\
struct Arguments { const float* x; int n; float* y; };
extern "C" __global__ void scale(Arguments a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n) a.y[i] = 2 * a.x[i];
}
extern "C" __global__ void scale_apart(const float* x, int n, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""


def test_pointers_may_be_members_of_a_struct(tmp_path: Path) -> None:
    file = tmp_path / "struct.cu"
    file.write_text(STRUCT)
    x, y, n = np.zeros(1 << 20, np.float32), np.zeros(1 << 20, np.float32), np.int32(1 << 20)
    launch = (file, "a100", 4096, 256)
    together = ptxlab.predict(*launch, [(x, n, y)], kernel="scale")
    apart = ptxlab.predict(*launch, [x, n, y], kernel="scale_apart")
    assert together.seconds == pytest.approx(apart.seconds, rel=1e-3)
    assert together.used["dram"] == pytest.approx(apart.used["dram"], rel=1e-3)
    source = together.lines[0].source
    assert source is not None
    assert (source.path, source.line) == (str(file), 4), "as on the command line"


def test_a_tensor_map_and_a_cluster_are_given_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    """As on the command line, where the file's header has the arguments."""
    words = ["predict", "ptx/tma_load_swizzle.ptx", "--gpu", "h100", "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    a, tile, raw = (np.zeros(shape, np.uint16) for shape in ((40, 128), (16, 64), (16, 64)))
    args = [a, MapOf(a, {"box": (16, 64), "swizzle": "128B"}), tile, raw, 32, 30]
    prediction = ptxlab.predict(words[1], "h100", 1, 128, args, cluster=1)
    assert round(prediction.cycles) == told["cycles"]


def test_every_constant_of_a_chip_has_its_source() -> None:
    for file in files("ptxlab.prediction").joinpath("chips").iterdir():
        lines = file.read_text(encoding="utf-8").splitlines()
        constants = [
            line for line in lines if re.match(r"\w+ *=", line) and "capability" not in line
        ]
        assert len(constants) > 15
        assert [line for line in constants if "#" not in line] == []


HEAD = """\
.version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u64 x)
{{
  .reg .b64 p, q; .reg .b32 r; .reg .f32 f; .reg .pred u;
  ld.param.u64 p, [x]; ld.global.f32 f, [p];
"""

HALVED = """\
extern "C" __global__ void halved(const float *in, int *out) {
    float x = in[threadIdx.x];
    int turns = 0;
    while (x > 1) {
        x = x * 0.5f + 0.001f;
        turns++;
    }
    out[threadIdx.x] = turns;
}
"""
"""Which goes on for as long as its data says."""

PRODUCT = (
    ".reg .f32 g<4>; mov.b32 r, f; "
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {g0, g1, g2, g3}, {r, r}, {r}, {f, f, f, f};"
)
"""Nothing is computed of products of tensor cores."""

REFUSED = {
    "a branch on data": (
        f"{PRODUCT} setp.gt.f32 u, g0, 0f00000000; @u bra done; bar.sync 0; st.global.f32 [p], f;",
        "depends on data that is not computed",
    ),
    "a barrier that counts": (
        "setp.ne.f32 u, f, 0f00000000; barrier.cta.red.popc.u32 r, 0, u; cvt.rn.f32.u32 f, r; st.global.f32 [p], f;",
        "is not in the model of time",
    ),
    "an instruction that nobody timed": (
        "cvt.rzi.s32.f32 r, f; match.any.sync.b32 r, r, -1; st.global.u32 [p], r;",
        "no timing is known of 'MATCH",
    ),
    "an address from data": (
        f"{PRODUCT} cvt.rzi.u64.f32 q, g0; add.u64 q, q, p; ld.global.f32 f, [q]; st.global.f32 [p], f;",
        "has an address that depends on data that is not computed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_data_decides_is_refused(name: str) -> None:
    body, why = REFUSED[name]
    source = HEAD.format(arch="sm_80") + body + "\ndone: ret;\n}\n"
    with pytest.raises(Unsupported, match=why) as caught:
        ptxlab.predict(source, "a100", 1, 32, [np.zeros(64, np.float32)])
    location = caught.value.location
    assert location is not None
    assert (location.text, location.line) == (body, HEAD.count("\n") + 1)


def test_a_branch_is_told_and_not_what_it_follows() -> None:
    body = (
        f"{PRODUCT} setp.gt.f32 u, g0, 0f00000000;\n@u bra done;\nbar.sync 0; st.global.f32 [p], f;"
    )
    source = HEAD.format(arch="sm_80") + body + "\ndone: ret;\n}\n"
    with pytest.raises(Unsupported, match="depends on data") as caught:
        ptxlab.predict(source, "a100", 1, 32, [np.zeros(64, np.float32)])
    assert caught.value.location is not None
    assert caught.value.location.text == "@u bra done;"


def test_what_is_refused_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "halved.cu"
    told = HALVED.replace("x * 0.5f + 0.001f", "atomicAdd((float *)in, -1.0f)")
    file.write_text(told)
    words = ["--block", "32", "--arg", "in=arange(32,f32)", "--arg", "out=zeros(32,s32)"]
    assert main(["predict", str(file), "--gpu", "t4", *words]) == 4
    assert (
        f"{file}:{HALVED[: HALVED.index('while')].count(chr(10)) + 1}:1: "
        in capsys.readouterr().err
    )


def test_numbers_that_decide_are_computed(tmp_path: Path) -> None:
    file = tmp_path / "halved.cu"
    file.write_text(HALVED)
    out = np.zeros(32, np.int32)
    none, ten, twenty = (
        ptxlab.predict(file, "a100", 1, 32, [np.full(32, 2.0**n, np.float32), out]).cycles
        for n in (0, 10, 20)
    )
    assert ten - none > 100
    assert twenty - ten == pytest.approx(ten - none, rel=0.2)


DIVIDED = """\
extern "C" __global__ void divided(const REAL *in, REAL *out) {
    REAL sum = 0;
    for (int k = 0; k < 4; k++) sum += in[threadIdx.x + 32 * k];
    out[threadIdx.x] = sqrt(sum) / (1 + in[threadIdx.x]);
}
"""


@pytest.mark.parametrize("gpu", ["a100", "h100", "rtx5090"])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_a_division_takes_its_short_way(gpu: str, real: type[Any], tmp_path: Path) -> None:
    file = tmp_path / "divided.cu"
    file.write_text(DIVIDED.replace("REAL", "float" if real is np.float32 else "double"))
    prediction = ptxlab.predict(file, gpu, 1, 32, [np.ones(160, real), np.zeros(32, real)])
    assert "divisions and roots of numbers at the edges of the format" in prediction.not_modelled


COUNTED = """\
__constant__ int turns[2] = {0, 1};
__constant__ int times = 1;
__device__ int places[32];
__device__ unsigned finished;
extern "C" __global__ void counted(const float *in, float *out) {
    float sum = 0;
    for (int k = 0; k < turns[1] * times; k++) sum += in[places[threadIdx.x] + k];
    out[threadIdx.x] = sum;
    if (threadIdx.x == 0) atomicInc(&finished, 5);
}
"""


@pytest.mark.parametrize("gpu", ["a100", *thorough(("h100", "rtx5090"))])
def test_variables_decide(gpu: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "counted.cu"
    file.write_text(COUNTED)
    words = ["--block", "32", "--arg", "in=ones(4096,f32)", "--arg", "out=zeros(32,f32)", "--json"]

    def cycles(*more: str) -> float:
        assert main(["predict", str(file), "--gpu", gpu, *words, *more]) == 0
        return float(json.loads(capsys.readouterr().out)["cycles"])

    np.save(tmp_path / "many.npy", np.array([0, 50], np.int32))
    np.save(tmp_path / "far.npy", np.full(32, 5000, np.int32))
    many = ("--set", f"turns=@{tmp_path}/many.npy")
    assert cycles(*many) > 2 * cycles()
    assert cycles(*many, "--set", "times=20") > 5 * cycles(*many)
    assert (
        main(["predict", str(file), "--gpu", gpu, *words, "--set", f"places=@{tmp_path}/far.npy"])
        == 4
    )
    assert "which is in no buffer" in capsys.readouterr().err


def test_an_index_from_memory_is_followed() -> None:
    body = "ld.global.u32 r, [p]; mad.wide.u32 q, r, 4, p; ld.global.f32 f, [q]; st.global.f32 [p], f; done: ret;\n}\n"
    source = HEAD.format(arch="sm_80") + body
    inside = np.full(64, 63, np.uint32)
    assert ptxlab.predict(source, "a100", 1, 32, [inside]).cycles > 2 * find("a100").latency["l2"]
    with pytest.raises(Unsupported, match="which is in no buffer"):
        ptxlab.predict(source, "a100", 1, 32, [np.full(64, 10**6, np.uint32)])


def test_a_gpu_is_no_device_for_it(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", scale, "--device", "cuda"]) == 2
    assert "GPUs that are not here" in capsys.readouterr().err


def test_what_it_would_take_otherwise_is_predicted(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "predict",
        scale,
        "--gpu",
        "a100",
        "--what-if",
        "dram=inf,launch=0",
        "--what-if",
        "tensor=inf",
    ]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert re.search(
        r"what if +time +faster +bound by\ndram=inf,launch=0 +[\d.]+ [un]s +\d+\.\d\dx", text
    )
    assert "hardly anything: tensor=inf" in text
    assert main([*command, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    first, last = output["what_if"]
    assert (first["change"], last["change"]) == ("dram=inf,launch=0", "tensor=inf")
    assert first["seconds"] < last["seconds"] == output["seconds"]
    assert main(["predict", scale, "--what-if", "dram=0"]) == 2
    assert "'dram=0' changes nothing that is predicted" in capsys.readouterr().err


def test_two_programs_are_compared_on_each_gpu(
    scale: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = SOURCE.replace(
        "x[i] = 2 * x[i]", "for (int n = 0; n < 64; n++) ((volatile float*)x)[i] += 1"
    )
    Path("slow.cu").write_text(slow.replace("scale", "slow"))
    gpus = ["--gpu", "a100", "--gpu", "rtx4090"]
    assert main(["predict", scale, "--compare", "slow.cu", *gpus, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    seconds = {(each["file"], each["gpu"]): each["seconds"] for each in output["predictions"]}
    assert len(seconds) == 4
    assert main(["predict", scale, "--compare", "slow.cu", *gpus]) == 0
    rows = capsys.readouterr().out.splitlines()
    for gpu in ("A100 SXM", "RTX 4090"):
        faster = seconds["slow.cu", gpu] / seconds[scale, gpu]
        assert faster > 2
        (row,) = (row for row in rows if row.startswith(gpu) and " scale.cu " in row)
        assert f"{faster:.2f}x" in row
