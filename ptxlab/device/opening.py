"""Opening a device by name: ``auto``, ``cuda``, ``cuda:1`` or ``emulator``."""

from __future__ import annotations

from collections.abc import Callable

from ptxlab.device.emulator import EmulatorDevice
from ptxlab.device.protocol import Device
from ptxlab.emulator import print_text
from ptxlab.errors import DeviceUnavailable, PtxlabError, did_you_mean
from ptxlab.isa.gpus import gpu_named
from ptxlab.isa.targets import DEFAULT_TARGET, TARGETS, Target
from ptxlab.workers import Progress

ENGINES = ("ptx", "sass")
"""What the emulator can run of a program: its PTX, or the machine code that ptxas makes of it."""


def open_device(
    spec: str = "auto",
    *,
    arch: str | None = None,
    progress: Progress | None = None,
    console: Callable[[str], None] = print_text,
    schedule: str = "late",
    engine: str = "ptx",
) -> Device:
    """Open a device.

    ``auto`` is the first GPU that can be used and has ``arch``, or else the emulator, whose
    ``note`` then says why. ``arch`` (``sm_90a``) is what the emulator is; a GPU must be it.
    ``progress`` is called on the emulator with CTAs done and their total, ``console`` with what
    programs print; what they print on a GPU, the driver writes to stdout. When asynchronous work lands
    on the emulator ``schedule`` says: ``late`` as it may, ``early`` or ``random:SEED``. With ``engine``
    ``sass`` the emulator runs the machine code that ptxas makes of a program, and not its PTX.

    Raises DeviceUnavailable when ``cuda`` is asked for and cannot be used, PtxlabError for an
    unknown name, or for ``sass`` on a GPU.
    """
    if engine not in ENGINES:
        raise PtxlabError(
            f"there is no engine {engine!r}", hint=f"engines are {', '.join(ENGINES)}"
        )
    if engine == "sass" and spec != "emulator":
        if spec != "auto":
            raise PtxlabError(
                f"engine sass is the emulator's, and device {spec!r} was asked for",
                hint="a GPU runs machine code as it is",
            )
        spec = "emulator"
    target = None if arch is None else _target(arch)
    name, _, number = spec.partition(":")

    def emulator(note: str = "") -> Device:
        played = target or TARGETS[DEFAULT_TARGET]
        return EmulatorDevice(
            played,
            progress=progress,
            console=console,
            note=note,
            schedule=schedule,
            engine=engine,
        )

    if spec == "emulator":
        return emulator()
    if name == "cuda" and (number.isdecimal() or spec == "cuda"):
        return _open_cuda(int(number or 0), target)
    if spec != "auto":
        raise PtxlabError(
            f"there is no device {spec!r}", hint="devices are auto, cuda, cuda:N and emulator"
        )
    try:
        return _open_cuda(0, target)
    except DeviceUnavailable as error:
        return emulator(error.message)


def _target(arch: str) -> Target:
    if arch not in TARGETS:
        gpu = gpu_named(arch)
        close = f"{gpu.name} is {gpu.target.name};" if gpu else did_you_mean(arch, TARGETS, most=3)
        known = f"targets are {', '.join(TARGETS)}"
        raise PtxlabError(
            f"there is no target {arch!r}", hint=f"{close} {known}" if close else known
        )
    return TARGETS[arch]


def _open_cuda(ordinal: int, target: Target | None) -> Device:
    from ptxlab.device.cuda import CudaDevice

    device = CudaDevice(ordinal)
    plain = f"sm_{device.target.capability}"
    if target is not None and target.name not in (device.target.name, plain):
        message = f"GPU {ordinal} ({device.name}) is {device.target.name}, not {target.name}"
        device.close()
        raise DeviceUnavailable(message, hint=f"--device emulator --arch {target.name} is one")
    return device
