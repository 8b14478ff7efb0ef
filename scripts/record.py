"""Write down what a GPU says, for the repository to keep.

python -m scripts.record check       which GPU; exit status 3 when there is none
python -m scripts.record receipts    tests/receipts/: what every matrix instruction does with numbered operands
python -m scripts.record arithmetic  tests/receipts/: dot products, to compare with the models
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

from ptxlab import open_device
from ptxlab.device.protocol import Device
from ptxlab.errors import PtxlabError
from ptxlab.fragments import receipts
from ptxlab.fragments.probes import tried
from ptxlab.fragments.sweep import sweep
from ptxlab.matrix.catalog import forms
from ptxlab.verbs.fragments import sweep as view
from scripts import arithmetic_receipts as arithmetic
from scripts.fragment_receipts import Recorder


def record_receipts(device: Device) -> bool:
    """Run the probe kernels of every instruction the GPU has, and say whether all layouts are as predicted."""
    recorder = Recorder()
    entries = [entry for entry in forms() if tried(entry)]
    outcomes = sweep(device, entries, everywhere=False, keep=recorder)
    print(view.text(outcomes, device.target.name), end="")
    for path in recorder.write(device, {"driver": driver()}):
        print(f"{path}, {path.stat().st_size:,} bytes")
    return not any(outcome.status == "failed" for outcome in outcomes)


def record_arithmetic(device: Device) -> bool:
    """Keep what the GPU makes of drawn dot products, and say whether all are as predicted."""
    taken = []
    for receipt in arithmetic.take(device):
        taken.append(receipt)
        wrong = f"{receipt.differing} of {len(receipt.words)} words differ"
        print(f"{receipt.dtype} -> {receipt.acc}, {receipt.case}: {wrong} from the model")
    print(arithmetic.write(taken, {"driver": driver()}, receipts.FOLDER))
    return not any(receipt.differing for receipt in taken)


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
