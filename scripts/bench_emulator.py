"""Measure the emulator: seconds, memory, scaling, where the time goes, and peers side by side.

scripts/bench emulator [--repeats N] [--no-peers]

Every measurement is a process of its own, so that its peak memory is its own: Python, numpy, the
compiled kernel, both copies of the matrices and the emulated machine. Launches follow each other, and
what they compute is checked against float64 before a time counts. Seconds are the best of the repeats (the
median is in the JSON); the work of another process only ever adds to them. Peers are installed on first use into a
virtual environment inside .venv. Writes benchmarks/emulator.json and the table in docs/emulator.md that is
made from it. Exit status 1: a target is missed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "emulator.json"
PAGE = ROOT / "docs" / "emulator.md"
MARKS = ("<!-- speed, from benchmarks/emulator.json -->\n", "<!-- /speed -->\n")
PEERS = ROOT / ".venv" / "peers"
ARCH = "sm_90a"
MEMORY = 1 << 30
"""Bytes that a measurement may need at its peak."""
GROWTH = 2.2
"""How much longer twice the work may take."""
LASTING = 3.0
"""Seconds that a measurement takes at least: the first runs compile, and what else the machine does is much
beside a short one."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A GEMM of ``size`` cubed; ``target`` is how many seconds it may take on one core alone."""

    name: str
    algorithm: str
    dtype: str
    size: int
    target: float

    @property
    def multiply_adds(self) -> int:
        """Products of one run."""
        return self.size**3


WORKLOADS = (
    Workload("tensor_core bf16", "tensor_core", "bf16", 1024, 0.35),
    Workload("tensor_core f16", "tensor_core", "f16", 1024, 0.35),
    Workload("naive f32", "naive", "f32", 512, 0.15),
    Workload("block_tiled_vectorized f32", "block_tiled_vectorized", "f32", 1024, 0.5),
    Workload("few threads: tensor_core bf16", "tensor_core", "bf16", 64, 0.1),
    Workload("few threads: wgmma_pipelined bf16", "wgmma_pipelined", "bf16", 128, 0.1),
    # A thousand million instructions of threads a second, of 256 threads: shared memory and fma.
    Workload(
        "few threads: block_tiled_vectorized f32", "block_tiled_vectorized", "f32", 128, 0.0026
    ),
    Workload("few threads: naive f32", "naive", "f32", 32, 0.01),
)


@dataclass(frozen=True, slots=True)
class Peer:
    """What else multiplies, beside which workload it is put, and how many times faster that is to be.

    A ``target`` of 0 asks for nothing: it shows the distance to the machine.
    """

    package: str
    what: str
    size: int
    beside: Workload
    target: float


PEERS_TO_TIME = (
    Peer("numba", "Numba's CUDA simulator, naive f32", 64, WORKLOADS[2], 150.0),
    Peer("tinygrad", "tinygrad's PYTHON device, tensor cores f16", 64, WORKLOADS[1], 300.0),
    Peer("numpy", "NumPy's own product, f32", 2048, WORKLOADS[3], 0.0),
)


def main() -> int:
    """Print the tables row by row as they are measured, and keep the numbers."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        "scripts/bench emulator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeats", type=int, default=5, help="least runs of each (default 5)")
    parser.add_argument(
        "--no-peers", action="store_true", help="leave out other emulators, write nothing"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(in_child(**json.loads(options.child))))
        return 0
    data: dict[str, Any] = {
        "schema": "ptxlab.benchmark.emulator/2",
        "arch": ARCH,
        "repeats": options.repeats,
        "machine": machine(),
    }
    print(", ".join(f"{name} {value}" for name, value in data["machine"].items()))
    data["workloads"] = measure(options.repeats)
    data["families"] = where_time_goes()
    data["peers"] = [] if options.no_peers else compare(data["workloads"])
    if not options.no_peers:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), data), encoding="utf-8")
        print(f"\nwritten: {RESULT.relative_to(ROOT)}, {PAGE.relative_to(ROOT)}")
    rows = data["workloads"] + data["peers"]
    return 0 if all(row["passed"] for row in rows) else 1


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    import numpy

    from ptxlab import __version__

    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "ptxlab": __version__,
        "load": round(os.getloadavg()[0], 2),
    }


def cpu() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def with_table(readme: str, data: dict[str, Any]) -> str:
    """Return the text of the page with the table of ``data`` between its marks."""
    rows = [
        f"| {row['name']}, {row['size']}^3 | {shown(row['best'])} | {on_one_core(row)} "
        f"| {row['peak'] >> 20} MiB | {row['multiply_adds_per_second'] / 1e6:.0f} M/s |"
        for row in data["workloads"]
    ]
    rows += [
        f"| {row['name']} ({row['package']} {row['version']}) | | | "
        f"| {rate(row['multiply_adds'] / min(row['seconds']))}, {beside(row['ratio'])} |"
        for row in data["peers"]
    ]
    machine = data["machine"]
    title = f"{machine['cpu']}, Python {machine['python']}, numpy {machine['numpy']}"
    cores = f"time on {machine['cores']} cores"
    table = [
        f"| {title} | {cores} | on one | memory | multiply-adds |",
        "|---|---|---|---|---|",
        *rows,
    ]
    before, _, rest = readme.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    return "".join([before, MARKS[0], *(f"{line}\n" for line in table), MARKS[1], after])


def on_one_core(row: dict[str, Any]) -> str:
    """Write the time on one core, and how many times that of all cores it is."""
    best = row["best_on_one_core"]
    return f"{shown(best)}, x {best / row['best']:.2f}"


def rate(a_second: float) -> str:
    """Write so many multiply-adds a second."""
    millions = a_second / 1e6
    return f"{millions:.2f} M/s" if millions < 100 else f"{millions:.0f} M/s"


def beside(ratio: float) -> str:
    """Say how fast a peer is where ptxlab is ``ratio`` times as fast."""
    return f"1/{ratio:.0f} of it" if ratio > 1 else f"{1 / ratio:.0f} times it"


def print_row(cells: Sequence[str], widths: Sequence[int]) -> None:
    """Print one row: the first column to the left, the others to the right."""
    first, *rest = zip(cells, widths, strict=True)
    print(f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in rest), flush=True)


def shown(seconds: float) -> str:
    """Write a time as people say it."""
    if seconds >= 1 / 2:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.{1 if seconds < 0.01 else 0}f} ms"


def verdict(passed: bool) -> str:
    """Say whether a target is met."""
    return "ok" if passed else "MISSED"


# ---- the emulator itself ------------------------------------------------------------------------


def measure(repeats: int) -> list[dict[str, Any]]:
    """Time every workload, and twice the columns of it."""
    widths = (47, 8, 8, 8, 8, 8, 9, 9, 9, 7)
    print()
    heads = ("", "best", "1 core", "arrays", "median", "target", "peak", "Mmadd/s", "twice", "")
    print_row(heads, widths)
    rows = []
    for workload in WORKLOADS:
        once = child(workload, repeats)
        twice = child(workload, repeats, columns=2)
        arrays = min(child(workload, repeats, engine="array")["seconds"])
        alone = min(child(workload, repeats, cores=1)["seconds"])
        seconds = once["seconds"]
        best = min(seconds)
        growth = min(twice["seconds"]) / best
        passed = alone <= workload.target and once["peak"] <= MEMORY and growth <= GROWTH
        row = {
            **asdict(workload),
            "launches": len(seconds),
            "peak": once["peak"],
            "thread_instructions": once["thread_instructions"],
            "best": best,
            "best_on_one_core": alone,
            "best_as_arrays": arrays,
            "median": statistics.median(seconds),
            "multiply_adds_per_second": workload.multiply_adds / best,
            "growth": growth,
            "passed": passed,
        }
        rows.append(row)
        cells = (
            f"{workload.name} {workload.size}^3",
            shown(best),
            shown(alone),
            shown(arrays),
            shown(row["median"]),
            shown(workload.target),
            f"{once['peak'] / 2**20:.0f} MiB",
            f"{row['multiply_adds_per_second'] / 1e6:.0f}",
            f"x {growth:.2f}",
            verdict(passed),
        )
        print_row(cells, widths)
    print(f"memory up to {MEMORY >> 20} MiB, twice the work up to x {GROWTH}")
    return rows


def child(
    workload: Workload,
    repeats: int,
    *,
    columns: int = 1,
    split: bool = False,
    engine: str = "auto",
    cores: int | None = None,
) -> Any:
    """Run ``in_child`` in a new process, on an engine and cores of the emulator; return what it prints.

    These are all cores unless it is said how many. NumPy, which checks each result, has one thread: others
    would go on looking for work for a tenth of a second, on the cores that the next run is to have.
    """
    request = {"workload": asdict(workload), "columns": columns, "repeats": repeats, "split": split}
    command = [sys.executable, __file__, "--child", json.dumps(request)]
    environment = os.environ | {
        "PTXLAB_ENGINE": engine,
        "PTXLAB_WORKERS": str(cores or os.cpu_count()),
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT, env=environment)
    return json.loads(done.stdout)


def in_child(workload: dict[str, Any], columns: int, repeats: int, split: bool) -> dict[str, Any]:
    """Launch a workload ``repeats`` times and for LASTING seconds, with ``columns`` times the columns of B.

    The launches follow each other; the first result and the last must be the same, and right.
    """
    import resource

    from ptxlab import open_device
    from ptxlab.gemm import ALGORITHMS, Problem
    from ptxlab.gemm.problem import uploaded
    from ptxlab.gemm.run import Computed, judge, prepare
    from ptxlab.gemm.verification import Verification

    spent: dict[str, list[float]] = {}
    if split:
        time_steps(spent)
    size = workload["size"]
    problem = Problem(size, columns * size, size, workload["dtype"])
    device = open_device("emulator", arch=ARCH)
    rung = ALGORITHMS[workload["algorithm"]]
    tile, inputs = rung.tile_for(problem, device.target), problem.inputs()
    with uploaded(device, problem, inputs) as operands:
        kernel, config, args = prepare(device, operands, rung, tile)
        first = kernel.run(config, args)
        seconds, (d, strays) = [first.seconds], operands.result()
        while len(seconds) < repeats or not (split or sum(seconds) >= LASTING):
            seconds.append(kernel.run(config, args).seconds)
        same = d.tobytes() == operands.result()[0].tobytes()
    computed = Computed(d, strays, first, device.kind, ARCH, tile.macros)
    if not (same and judge(device, Verification(problem, inputs), rung, computed).passed):
        raise SystemExit(f"{workload['name']} is wrong")
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "seconds": seconds,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
        "thread_instructions": first.counters["thread_instructions"],
        "spent": spent,
    }


# ---- where the time goes ------------------------------------------------------------------------


def timed(step: Any, note: list[float]) -> Any:
    """Return a step that notes how often and how long it runs."""

    def run(frame: Any, threads: Any) -> None:
        began = perf_counter()
        step(frame, threads)
        note[0] += perf_counter() - began
        note[1] += 1

    return run


def time_steps(spent: dict[str, list[float]]) -> None:
    """Have every step that is made from now on note its [seconds, runs] under its family in ``spent``.

    A family is an opcode, with the state space where it has one. Times include the noting.
    """
    from ptxlab.emulator.run import executable

    steps_of = executable._steps

    def noting(instruction: Any, temporary: Any) -> Any:
        made, text = steps_of(instruction, temporary), instruction.site.instruction
        spaces = [name for name in text.modifiers if name in ("global", "shared", "local")]
        note = spent.setdefault(".".join([text.opcode, *spaces[:1]]), [0.0, 0])
        return replace(made, steps=[timed(step, note) for step in made.steps])

    executable._steps = noting


def where_time_goes() -> list[dict[str, Any]]:
    """Split the time of each workload by opcode family; the rest is scheduling."""
    rows = []
    for workload in WORKLOADS:
        measured = child(workload, 1, split=True, engine="array")
        [seconds] = measured["seconds"]
        families = sorted(measured["spent"].items(), key=lambda item: -item[1][0])
        inside = sum(note[0] for _, note in families)
        shares = [(name, note[0] / seconds, int(note[1])) for name, note in families]
        shares.append(("scheduling", 1 - inside / seconds, 0))
        rows.append(
            {
                "name": workload.name,
                "shares": [
                    {"family": name, "share": share, "runs": runs} for name, share, runs in shares
                ],
            }
        )
        shown = sorted(shares, key=lambda share: -share[1])[:6]
        text = ", ".join(f"{name} {100 * share:.1f} %" for name, share, _ in shown)
        print(f"{'' if len(rows) > 1 else chr(10)}{workload.name:<40} {text}", flush=True)
    return rows


# ---- other emulators ----------------------------------------------------------------------------


def compare(workloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Time the peers, each beside the workload that does the same."""
    speeds = {row["name"]: row["multiply_adds_per_second"] for row in workloads}
    widths = (68, 9, 10, 9, 7)
    print()
    print_row(("", "Mmadd/s", "ptxlab is", "target", ""), widths)
    rows = []
    for peer, measured in measured_peers():
        if isinstance(measured, str):
            print(f"{peer.what}: left out, {measured}", flush=True)
            continue
        speed = measured["multiply_adds"] / min(measured["seconds"])
        ratio = speeds[peer.beside.name] / speed
        passed = ratio >= peer.target
        rows.append(
            {
                "name": peer.what,
                "package": peer.package,
                "beside": peer.beside.name,
                **measured,
                "ratio": ratio,
                "target": peer.target,
                "passed": passed,
            }
        )
        cells = (
            f"{peer.what} {peer.size}^3 ({peer.package} {measured['version']})",
            f"{speed / 1e6:.2f}",
            f"x {ratio:.3g}",
            f"x {peer.target:.0f}" if peer.target else "",
            verdict(passed),
        )
        print_row(cells, widths)
    return rows


def measured_peers() -> Iterator[tuple[Peer, Any]]:
    """Yield each peer with what was measured, or the reason why it was not."""
    if os.environ.get("PTXLAB_NO_INSTALL") == "1":
        yield from ((peer, "PTXLAB_NO_INSTALL is set") for peer in PEERS_TO_TIME)
        return
    python = PEERS / "bin" / "python"
    if not python.exists():
        venv.create(PEERS, with_pip=True)
    for peer in PEERS_TO_TIME:
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        reason = failure([*install, "numpy", peer.package])
        if reason:
            yield peer, reason
            continue
        script = str(ROOT / "scripts" / "bench_peers.py")
        command = [str(python), script, peer.package, str(peer.size)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        yield peer, json.loads(done.stdout) if done.returncode == 0 else last_line(done.stderr)


def failure(command: Sequence[str]) -> str:
    """Run a command and return the last line of what it complains about, "" when it succeeds."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else last_line(done.stderr)


def last_line(text: str) -> str:
    """Return the last line of an error message."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"


if __name__ == "__main__":
    sys.exit(main())
