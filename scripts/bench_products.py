"""Measure matrix products on the emulator: arrays and machine code side by side.

scripts/bench products [--repeats N]

A program executes one instruction again and again, its result the next one's C, with 4 warps and with 256.
Results must be the same bits. Microseconds are those of one step for all warps, the best of the repeats.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

import numpy as np

from ptxlab import open_device
from ptxlab.device.protocol import Kernel
from ptxlab.emulator.native.engine import VARIABLE
from ptxlab.matrix.catalog import multiplication
from ptxlab.matrix.multiplication import MatrixInstruction

TURNS, UNROLLED = 16, 8
FORMS = (
    ("m16n8k16.f32.bf16.bf16.f32", "sm_90a"),
    ("m16n8k16.f32.bf16.bf16.f32", "sm_80"),
    ("m16n8k16.f16.f16.f16.f16", "sm_80"),
    ("m16n8k8.f32.tf32.tf32.f32", "sm_90a"),
    ("m16n8k32.f32.e4m3.e4m3.f32", "sm_89"),
    ("m16n8k32.s32.s8.s8.s32", "sm_80"),
    ("m16n8k8.f64.f64.f64.f64", "sm_90a"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one step, and what D was."""

    seconds: float
    d: bytes


def program(form: MatrixInstruction, arch: str) -> str:
    """Return a kernel that executes the form over and over, and stores one register of D."""
    kinds = {"f32": "f32", "f64": "f64", "s32": "s32"}
    registers, names = [], {}
    for operand in "ABD":
        layout = form.operand(operand)
        kind = kinds.get(layout.dtype, "b32")
        names[operand] = [f"{operand.lower()}{i}" for i in range(layout.registers_per_lane)]
        registers.append(f".reg .{kind} {', '.join(names[operand])};")
    a, b, d = ("{" + ", ".join(names[operand]) + "}" for operand in "ABD")
    size = form.operand("D").register_bits // 8
    loads = "\n".join(
        f"ld.global.{kinds.get(form.operand(o).dtype, 'b32')} {name}, [rd + {8 * i}];"
        for o in "ABD"
        for i, name in enumerate(names[o])
    )
    return f"""
.version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
{" ".join(registers)}
.reg .b32 t<4>; .reg .b64 rd, rq; .reg .pred p;
mov.u32 t0, %tid.x; mov.u32 t1, %ctaid.x; mov.u32 t2, %ntid.x;
mad.lo.u32 t0, t1, t2, t0;
ld.param.u64 rd, [in]; ld.param.u64 rq, [out];
mad.wide.u32 rd, t0, 64, rd;
mad.wide.u32 rq, t0, {size}, rq;
{loads}
mov.u32 t3, 0;
AGAIN:
{f"{form.name} {d}, {a}, {b}, {d};" * UNROLLED}
add.u32 t3, t3, 1; setp.lt.u32 p, t3, {TURNS};
@p bra AGAIN;
st.global.b{8 * size} [rq], {names["D"][0]};
}}
"""


def measure(kernel: Kernel, form: MatrixInstruction, warps: int, repeats: int) -> Measured:
    """Run the program a few times."""
    threads, device = 32 * warps, kernel.device
    # Numbers near one, whatever their format.
    octets = np.random.default_rng(1).integers(0, 256, (threads, 64), np.uint8) & 0x87 | 0x38
    size = form.operand("D").register_bits // 8
    with device.upload(octets) as source, device.zeros((threads, size), "u8") as out:
        results = [kernel.launch(threads // 128, 128, [source, out]) for _ in range(repeats)]
        seconds = min(result.seconds for result in results) / (TURNS * UNROLLED)
        return Measured(seconds, out.numpy().tobytes())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser("scripts/bench products", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each (default 5)")
    options = parser.parse_args()
    print(f"{'':<40} {'warps':>5} {'arrays':>10} {'native':>10} {'':>7} {'native':>10}")
    for name, arch in FORMS:
        form = multiplication(name)
        kernel = open_device("emulator", arch=arch).load(program(form, arch)).kernel("k")
        for warps in (4, 256):
            timings = {}
            for engine in ("array", "native"):
                os.environ[VARIABLE] = engine
                timings[engine] = measure(kernel, form, warps, options.repeats)
            arrays, native = timings["array"], timings["native"]
            if arrays.d != native.d:
                raise SystemExit(f"{name} on {arch} differs")
            print(
                f"{name + ' ' + arch:<40} {warps:>5} {1e6 * arrays.seconds:>7.0f} us "
                f"{1e6 * native.seconds:>7.1f} us {arrays.seconds / native.seconds:>5.0f} x "
                f"{warps / native.seconds / 1e6:>6.2f} M/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
