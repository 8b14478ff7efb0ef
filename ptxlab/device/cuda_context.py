"""A GPU as the driver has it: its context, a stream of ptxlab's own, and what an error in it means.

Source: CUDA Driver API, "Data types used by CUDA driver", CUresult.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ptxlab.device.cuda_driver import Driver, DriverError, gpu_count
from ptxlab.device.protocol import Device, LaunchResult
from ptxlab.errors import DeviceUnavailable, LaunchError
from ptxlab.isa.targets import TARGETS, Target

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING

_CHECK = "ptxlab check FILE runs it on the emulator and names the line"

# CUresult: what happened, what to do
_WORDS: dict[int, tuple[str, str | None]] = {
    1: ("the driver refuses these values", "look at grid, block, shared and cluster sizes"),
    2: ("the GPU has not that much memory left", "close buffers, or use a smaller problem"),
    200: ("it is no machine code this driver knows", "update the driver"),
    209: ("it is machine code for another GPU", "build it for this one: ptxlab loads .ptx and .cu"),
    500: ("it has nothing of this name that can be seen from outside", "declare it .visible"),
    701: ("its block needs more registers or memory than one SM has", "launch a smaller block"),
    702: ("it ran longer than the driver allows on a GPU with a display", None),
    710: ("an assertion in it failed", None),
    714: ("its call stack overflowed or was damaged", _CHECK),
    715: ("it met an illegal instruction", _CHECK),
    716: ("it read or wrote a misaligned address", _CHECK),
    717: ("it used an address of the wrong state space", _CHECK),
    718: ("it jumped outside its code", _CHECK),
    719: ("it stopped: a trap, or a fault in shared or local memory", _CHECK),
    700: ("it read or wrote outside every allocation", _CHECK),
}

_STICKY = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721})
"""Errors after which the context is lost: until the process ends, each call repeats them."""


def _explained(code: int, text: str) -> tuple[str, str | None]:
    """Return the message and hint for an error ``code`` whose own words are ``text``."""
    if code not in _WORDS:
        return text, None
    words, hint = _WORDS[code]
    return f"{words}: {text}", hint


def target_of(capability: int) -> Target:
    """Return the target of a GPU's compute capability (90): with its own features where it has any.

    Architecture-specific targets (``sm_90a``) begin with capability 9.0. Raises DeviceUnavailable for a GPU
    that is older than all of them.
    """
    suffix = "a" if capability >= 90 else ""
    known = TARGETS.get(f"sm_{capability}{suffix}")
    if known is not None:
        return known
    # A GPU outside the table runs the same; only its emulation is not described by it.
    older = [target for target in TARGETS.values() if target.capability <= capability]
    if not older:
        raise DeviceUnavailable(
            f"the GPU's compute capability {capability // 10}.{capability % 10} is too old",
            hint="ptxlab runs on compute capability 7.5 and newer, or with --device emulator",
        )
    nearest = max(older, key=lambda target: target.capability)
    return replace(nearest, name=f"sm_{capability}{suffix}", capability=capability, suffix=suffix)


class CudaContext(Device):
    """The primary context of a GPU and one stream.

    After a fault in a kernel the context is ``lost`` for this process, which says when, and so does
    each later operation.
    """

    def __init__(self, ordinal: int = 0) -> None:
        count = gpu_count()
        if not 0 <= ordinal < count:
            shown = "no GPU" if count == 0 else "1 GPU" if count == 1 else f"{count} GPUs"
            raise DeviceUnavailable(
                f"there is no GPU {ordinal}: the driver shows {shown}",
                hint="CUDA_VISIBLE_DEVICES hides GPUs; --device emulator needs none",
            )
        self.driver = Driver()
        self.ordinal = ordinal
        self.lost = ""
        self._name = ""
        try:
            self._open()
        except DriverError as error:
            raise DeviceUnavailable(
                f"GPU {ordinal} does not open: {error}",
                hint="nvidia-smi says whether another process holds it",
            ) from None

    def _open(self) -> None:
        call = self.driver.call
        self._device = call("cuDeviceGet", self.ordinal)
        self._name = call("cuDeviceGetName", 256, self._device).split(b"\0")[0].decode()
        major, minor = map(self.attribute, ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR"))
        self.target = target_of(10 * major + minor)
        self._context = call("cuDevicePrimaryCtxRetain", self._device)
        call("cuCtxSetCurrent", self._context)
        self.stream = call("cuStreamCreate", _NON_BLOCKING)
        self._began, self._ended = call("cuEventCreate", 0), call("cuEventCreate", 0)

    def attribute(self, name: str) -> int:
        """Return what the driver says of the GPU: ``CLOCK_RATE``."""
        attribute = getattr(self.driver.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", attribute, self._device))

    def call(self, doing: str, function: str, *args: Any) -> Any:
        """Call the driver in this GPU's context; a failure becomes a LaunchError."""
        if self.lost:
            raise LaunchError(
                f"cannot {doing}: the GPU's context was lost when {self.lost}",
                hint="no later work in this process can use the GPU; start a new one",
            )
        try:
            self.driver.call("cuCtxSetCurrent", self._context)
            return self.driver.call(function, *args)
        except DriverError as error:
            if error.code in _STICKY:
                self.lost = f"it was to {doing}: {error}"
            message, hint = _explained(error.code, str(error))
            raise LaunchError(f"cannot {doing}: {message}", hint=hint) from None

    def timed(self, doing: str, work: Callable[[], None]) -> LaunchResult:
        """Have ``work`` put work on this GPU's stream, wait for its end, and time it by events."""
        self.call(doing, "cuEventRecord", self._began, self.stream)
        work()
        self.call(doing, "cuEventRecord", self._ended, self.stream)
        self.call(doing, "cuStreamSynchronize", self.stream)
        milliseconds = self.call(doing, "cuEventElapsedTime", self._began, self._ended)
        return LaunchResult(float(milliseconds) / 1e3)

    @property
    def _called(self) -> str:
        return f"{self.kind}:{self.ordinal} {self._name}"

    def close(self) -> None:
        if not self.is_open:
            return
        for function, handle in (
            ("cuEventDestroy", self._began),
            ("cuEventDestroy", self._ended),
            ("cuStreamDestroy", self.stream),
            ("cuDevicePrimaryCtxRelease", self._device),
        ):
            self.release(function, handle)
        super().close()

    def release(self, function: str, handle: Any) -> None:
        """Give something back. In a closed or lost context it is gone already."""
        if self.is_open and not self.lost:
            try:
                self.driver.call("cuCtxSetCurrent", self._context)
                self.driver.call(function, handle)
            except DriverError as error:
                if error.code in _STICKY:
                    self.lost = f"{function} was called: {error}"
