"""What ``ptxlab doctor`` looks at and tries.

What needs a package that may be absent is imported where it is tried.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import ptxlab
from ptxlab import cache, installation
from ptxlab.errors import DeviceUnavailable, LaunchError
from ptxlab.toolchain import compile_cuda, disassemble, inventory, link_ptx, nvcc
from ptxlab.toolchain.inventory import Tool
from ptxlab.toolchain.wheels import wheel_version
from ptxlab.verbs.doctor.text import Report

if TYPE_CHECKING:
    from ptxlab.device.protocol import Device

TARGET = "sm_80"
SOURCE = 'extern "C" __global__ void add(unsigned* x) { x[threadIdx.x] += threadIdx.x; }'
PTX = """\
.version 7.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 x)
{
    .reg .b32 i, value;
    .reg .b64 p;
    ld.param.u64 p, [x];
    mov.u32 i, %tid.x;
    mad.wide.u32 p, i, 4, p;
    ld.global.u32 value, [p];
    add.u32 value, value, i;
    st.global.u32 [p], value;
    ret;
}
"""
"""The kernel that is tried, from CUDA C and by hand."""

COSTS = {
    "cuda-python": "neither a GPU nor NVIDIA's compilers can be called",
    "nvidia-cuda-nvrtc": "no CUDA C: no .cu files, and gemm only as it comes compiled",
    "nvidia-nvjitlink": "no machine code: no sass, gemm --explain, fragments --all, and no GPU",
    "nvidia-cuda-nvdisasm": "no SASS in sass, explain, step and gemm --explain",
}
"""What cannot be done without a package."""

CLIENTS = ("triton", "torch", "numba-cuda", "tinygrad")
"""Packages whose kernels run on the emulator, which ptxlab itself does not ask for: docs/clients.md."""

EXTRAS = {
    "bench": "only for the baselines of ptxlab bench",
    "cluster": "only to share out work over machines: --workers tcp://HOST:PORT",
    "native": "only for speed: the emulator's blocks as machine code",
}
"""What the optional packages are for, by extra."""


def examine() -> Report:
    driver, gpus = gpus_found()
    with cache.bypassed():
        tools, newest_ptx, tried_tools = inventory.tools(), inventory.newest_ptx(), toolchain()
    asked_for = packages()
    return {
        "version": ptxlab.__version__,
        "home": str(Path(ptxlab.__file__).parent),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "packages": asked_for,
        "clients": {name: version for name in CLIENTS if (version := wheel_version(name))},
        "tools": tools,
        "newest_ptx": newest_ptx,
        "driver": driver,
        "gpus": gpus,
        "cache": str(cache.directory()),
        "cache_bytes": cache.size(),
        "emulator": tried("the emulator", emulate),
        "toolchain": tried_tools,
        "advice": advice(asked_for, tools),
    }


def packages() -> list[Report]:
    """Return the packages ptxlab asks for, the optional ones too, with their versions.

    ``needed`` is what it asks for on this platform, and ``costs`` what cannot be done without it.
    """
    here = installation.has_nvidia_wheels()
    rows = []
    for extra in ("", *EXTRAS):
        for name, requirement in installation.requirements(extra):
            cannot_be_had = name in COSTS and not here
            rows.append(
                {
                    "name": name,
                    "version": wheel_version(name),
                    "needed": not extra and not cannot_be_had,
                    "costs": EXTRAS.get(extra) or COSTS.get(name, ""),
                    "advice": "" if cannot_be_had else installation.adding(requirement),
                    "requirement": requirement,
                }
            )
    return rows


def advice(packages: Sequence[Report], tools: Sequence[Tool]) -> list[str]:
    """Return the commands that install what is missing: what is needed, and what each extra wants."""
    missing = [package for package in packages if not package["version"] and package["advice"]]
    known = {package["name"] for package in packages}
    needed = [package["requirement"] for package in missing if package["needed"]]
    absent = [tool for tool in tools if tool.problem and tool.package not in known]
    needed += [tool.package for tool in absent if not tool.only_for]
    lines = [installation.adding(*needed)] if needed else []
    for costs in EXTRAS.values():
        optional = [package["requirement"] for package in missing if package["costs"] == costs]
        lines += [f"{installation.adding(*optional)}    ({costs})"] if optional else []
    if installation.has_nvidia_wheels():
        lines += [
            f"{installation.adding(tool.package, nvcc.HEADERS)}    (only for {tool.only_for})"
            for tool in absent
            if tool.only_for
        ]
    return lines


def gpus_found() -> tuple[Report, list[Report]]:
    """Return the driver, with the release of CUDA as 13000, and the GPUs, each after a trial."""
    try:
        from ptxlab.device.cuda import CudaDevice
        from ptxlab.device.cuda_driver import driver_version, gpu_count

        version = driver_version()
        newest_ptx = inventory.newest_ptx_of_driver(version)
        count = gpu_count()
    except (DeviceUnavailable, ImportError) as error:
        problem = str(error).removeprefix("no GPU can be used: ")
        return {"version": 0, "newest_ptx": "", "problem": problem}, []
    gpus = []
    for ordinal in range(count):
        gpu = {"ordinal": ordinal, "name": "", "arch": "", "problem": ""}
        try:
            device = CudaDevice(ordinal)
            gpu |= {"name": device.name, "arch": device.target.name}
            gpu["problem"] = tried(device.name, lambda: run(device))["problem"]  # noqa: B023, at once
        except DeviceUnavailable as error:
            gpu["problem"] = str(error)
        gpus.append(gpu)
    return {"version": version, "newest_ptx": newest_ptx, "problem": ""}, gpus


def toolchain() -> list[Report]:
    return [
        tried("CUDA C to PTX", lambda: compile_cuda(SOURCE, path="doctor.cu", arch=TARGET)),
        tried("PTX to machine code", lambda: link_ptx(PTX, arch=TARGET)),
        tried("machine code to SASS", lambda: disassemble(link_ptx(PTX, arch=TARGET))),
    ]


def emulate() -> None:
    from ptxlab.device.emulator import EmulatorDevice
    from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS

    run(EmulatorDevice(TARGETS[DEFAULT_TARGET]))


def run(device: Device) -> None:
    import numpy as np

    with closing(device):
        x = device.upload(np.full(32, 7, np.uint32))
        device.load(PTX).kernel("add").launch(1, 32, [x])
        if x.numpy().tolist() != list(range(7, 39)):
            raise LaunchError("a kernel ran and gave a wrong result")


def tried(name: str, what: Callable[[], object]) -> Report:
    """Return what was tried, and what went wrong, "" for nothing."""
    problem = ""
    try:
        what()
    except Exception as error:  # a doctor is there for what nobody foresaw
        problem = str(error) or type(error).__name__
    return {"name": name, "problem": problem}
