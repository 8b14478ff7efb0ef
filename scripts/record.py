"""Write down what a GPU says, for the repository to keep.

python scripts/record.py check       which GPU; exit status 3 when there is none
python scripts/record.py receipts    tests/receipts/: the register dumps of every instruction
python scripts/record.py arithmetic  tests/receipts/: dot products, to compare with the models
python scripts/record.py gemm        benchmarks/: seconds and TFLOP/s of every GEMM algorithm
"""

from __future__ import annotations

import datetime
import json
import statistics
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from ptxlab import __version__, open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.fragments import receipts, verifiable, verify
from ptxlab.gemm import ALGORITHMS, Problem, run
from ptxlab.numerics import receipts as arithmetic
from ptxlab.view.gemm import as_json

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SIZE = 4096
REPEATS = 5


def record_receipts(device: Device) -> bool:
    """Dump every instruction ptxlab has a program for and the GPU runs, and say whether all layouts are as predicted."""
    good = True
    for instruction in verifiable():
        if not instruction.runs_on(device.target):
            print(f"{instruction.name}: not on {device.target.name}")
            continue
        report = verify(device, instruction)
        path = receipts.write(report, {"driver": driver()})
        good &= report.passed
        print(f"{instruction.name}: {'as predicted' if report.passed else 'DIFFERS'}, {path}")
    return good


def record_arithmetic(device: Device) -> bool:
    """Keep what the GPU makes of drawn dot products, and say whether all are as predicted."""
    taken = []
    for receipt in arithmetic.take(device):
        taken.append(receipt)
        wrong = f"{receipt.differing} of {len(receipt.words)} words differ"
        print(f"{receipt.dtype} -> {receipt.acc}, {receipt.case}: {wrong} from the model")
    print(arithmetic.write(taken, {"driver": driver()}, receipts.FOLDER))
    return not any(receipt.differing for receipt in taken)


def record_gemm(device: Device) -> bool:
    """Time every algorithm for every type it takes, and say whether all results were right."""
    results = []
    for algorithm in ALGORITHMS.values():
        for dtype, acc in algorithm.types:
            results.append(time_gemm(device, algorithm.name, Problem(SIZE, SIZE, SIZE, dtype, acc)))
            latest = results[-1]
            verdict = "right" if latest["passed"] else "WRONG"
            print(f"{algorithm.name} {dtype} -> {acc}: {latest['tflops']:.2f} TFLOP/s, {verdict}")
    BENCHMARKS.mkdir(exist_ok=True)
    path = BENCHMARKS / f"gemm_{'_'.join(device.name.lower().split())}.json"
    data = {
        "schema": "ptxlab.benchmark.gemm/1",
        "gpu": device.name,
        "arch": device.target.name,
        "driver": driver(),
        "ptxlab": __version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "method": f"median of {REPEATS} launches by events, after one to warm up; clocks as found",
        "results": results,
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(path)
    return all(result["passed"] for result in results)


def time_gemm(device: Device, algorithm: str, problem: Problem) -> dict[str, Any]:
    """Return the ``ptxlab.gemm/1`` object with the median time, and ``samples`` in seconds."""
    _, *timed = (run(device, problem, algorithm) for _ in range(REPEATS + 1))
    samples = [result.seconds for result in timed]
    seconds = statistics.median(samples)
    wrong = [result for result in timed if not result.passed]
    data = as_json(wrong[0] if wrong else timed[0])
    return {
        **data,
        "seconds": seconds,
        "tflops": problem.flops / seconds / 1e12,
        "samples": samples,
    }


def driver() -> str:
    """Return the version of the NVIDIA driver, or why it is not known."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown ({error})"


def main() -> int:
    """Do what the command line asks."""
    tasks = {
        "check": lambda device: True,
        "receipts": record_receipts,
        "arithmetic": record_arithmetic,
        "gemm": record_gemm,
    }
    if len(sys.argv) != 2 or sys.argv[1] not in tasks:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with closing(open_device("cuda")) as device:
            if sys.argv[1] == "check":
                print(f"{device.name}, {device.target.name}, driver {driver()}")
            return 0 if tasks[sys.argv[1]](device) else 1
    except PtxlabError as error:
        print(error, file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
