"""Modules and libraries of PTX, their kernels and variables.

Source: CUDA Driver API, "Module Management", "Library Management" and "Execution Control".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path

from ptxlab.clients.driver.devices import PORTABLE_SHARED
from ptxlab.clients.driver.gpu import EmulatedGpu
from ptxlab.clients.driver.results import DriverResult, Refused
from ptxlab.clients.driver.table import answers, handles, store
from ptxlab.clients.driver.tiles import host_code
from ptxlab.device.emulator import EmulatorModule, MachineCodeModule
from ptxlab.device.protocol import Kernel, Module
from ptxlab.device.shapes import declared
from ptxlab.errors import PtxlabError
from ptxlab.isa.targets import target_named
from ptxlab.launch_config import CTA_THREADS, Dim3
from ptxlab.machine.binary import machine_code, newest_ptx
from ptxlab.machine.image import KernelImage
from ptxlab.syntax.functions import Parameter, parameters
from ptxlab.syntax.tree import Function
from ptxlab.toolchain import elf, fatbin, link_ptx
from ptxlab.toolchain.cubin import Used
from ptxlab.toolchain.machine_code import entries

_FATBIN_WRAPPER = b"\xb1\x43\x62\x46"

_TILES = b"\0.nv.tileir."
"""With what the names of sections begin that only CUDA Tile's compiler writes."""


@handles("module")
class Loaded:
    """A module that a program has loaded, which is a library too; ``functions`` are its kernels by name.

    One that is registered has its ``module`` opened when that is first needed. ``beside`` is what a client would have
    loaded, machine code as a rule, had it not kept its PTX.
    """

    def __init__(self, gpu: EmulatedGpu, opened: Callable[[], Module], beside: bytes = b"") -> None:
        self.gpu = gpu
        self._opened = opened
        self._beside = beside
        self.handle = gpu.handle(self)
        self.functions: dict[str, int] = {}

    @cached_property
    def module(self) -> Module:
        return self._opened()

    @cached_property
    def resources(self) -> Mapping[str, Used]:
        """What the machine code says of each kernel that is loaded or came with PTX, and else NVIDIA's assembler."""
        module, target = self.module, self.gpu.target
        if isinstance(module, MachineCodeModule):
            return module.used
        assert isinstance(module, EmulatorModule)
        with suppress(PtxlabError):  # where none of it is for this GPU
            cubins = machine_code(self._beside or module.brought, target, module.path)
            told = [entry.used for cubin in cubins for entry in entries(cubin.image, cubin.arch)]
            of_kernels: Mapping[str, Used] = {used.kernel: used for used in told}
            if of_kernels.keys() >= module.kernels.keys():
                return of_kernels
        return link_ptx(module.tree.source.text, arch=target.name, path=module.path).kernels

    def function(self, name: str) -> int:
        if name not in self.module.kernels:
            raise Refused(DriverResult.NOT_FOUND)
        if name not in self.functions:
            self.functions[name] = self.gpu.handle(DriverFunction(self, name))
        return self.functions[name]


@handles("function")
@dataclass(eq=False)
class DriverFunction:
    """A kernel of a module; ``chosen`` are the attributes that the program has set."""

    loaded: Loaded
    name: str
    chosen: dict[int, int] = field(default_factory=dict)

    @cached_property
    def name_in_c(self) -> ctypes.c_char_p:
        return ctypes.c_char_p(self.name.encode())

    @property
    def kernel(self) -> Kernel:
        """The kernel, prepared when it is first asked for."""
        return self.loaded.module.kernels[self.name]

    @cached_property
    def declaration(self) -> Function:
        tree = self.loaded.module.tree
        assert tree is not None
        return next(entry for entry in tree.entries if entry.name == self.name)

    @cached_property
    def threads_of_tiles(self) -> Dim3 | None:
        """The threads of a CTA of a kernel of CUDA Tile, which is launched as if they were one; None of others."""
        image = self.image
        if image is None or _TILES not in image.assembly.cubin.image:
            return None
        return declared(self.declaration, "reqntid")

    @property
    def image(self) -> KernelImage | None:
        """The kernel as a cubin has it, None for PTX."""
        module = self.loaded.module
        return module.image(self.name) if isinstance(module, MachineCodeModule) else None

    @cached_property
    def parameters(self) -> Sequence[Parameter]:
        """The parameters that a program gives."""
        laid_out = parameters(self.declaration)
        return laid_out[:-1] if self.image is not None and self.image.entry.made else laid_out

    def completed(self, given: bytes) -> bytes:
        """Return the block of parameters of those that a program gives, and what code of the host makes of them."""
        image = self.image
        made = None if image is None else image.entry.made
        if image is None or made is None:
            return given
        code = host_code(image.assembly.cubin.image)
        return code.complete(self.name, given, made.offset + made.size)

    @property
    def most_shared(self) -> int:
        """The most dynamic shared memory that a launch may ask for, in bytes."""
        return self.chosen.get(_MOST_DYNAMIC, PORTABLE_SHARED)


def load_image(gpu: EmulatedGpu, image: bytes, label: str, beside: bytes = b"") -> int:
    """Return the handle of the module that PTX is, which may have machine code ``beside`` it, or machine code."""
    module = open_image(gpu, image, label)
    return Loaded(gpu, lambda: module, beside).handle


def open_image(gpu: EmulatedGpu, image: bytes, label: str) -> Module:
    """Load PTX, or machine code: of a fatbin its PTX, as far as the GPU can run it."""
    brought = image if fatbin.starts_as_machine_code(image) else b""
    if brought:
        image = newest_ptx(brought, gpu.target)
        if not image:
            return _of_machine_code(gpu, brought, label)
    try:
        text = image.decode()
    except UnicodeDecodeError:
        raise Refused(
            DriverResult.INVALID_IMAGE, "a module is neither PTX nor machine code"
        ) from None
    if ".version" not in text:
        raise Refused(DriverResult.INVALID_IMAGE, "a module is neither PTX nor machine code")
    module = gpu.session.load(text, label)
    assert isinstance(module, EmulatorModule)
    if module.variables:  # those of each module are its own
        module = EmulatorModule(gpu.session.device, module.tree)
    module.brought = brought
    return module


def _of_machine_code(gpu: EmulatedGpu, image: bytes, label: str) -> Module:
    """Load the machine code for the GPU in a cubin or fatbin."""
    try:
        cubins = machine_code(image, gpu.target, "a module")
        return MachineCodeModule.of_cubins(gpu.session.device, cubins, label)
    except PtxlabError as error:
        raise Refused(
            DriverResult.NO_BINARY_FOR_GPU,
            f"{error}; or have the program compiled to PTX (NVRTC's compute_80 in place of sm_80, "
            "cuda.core's compile('ptx'), ptxlab.numba)",
        ) from None


def image_at(address: int) -> bytes:
    """Return the PTX at an address, which ends with a NUL, or machine code, which says how long it is."""
    if not address:
        raise Refused(DriverResult.INVALID_VALUE)

    def read(at: int, nbytes: int) -> bytes:
        return ctypes.string_at(address + at, nbytes)

    if read(0, 4) == _FATBIN_WRAPPER:
        address = int.from_bytes(read(8, 8), "little")
    for magic, length in ((elf.MAGIC, elf.length), (fatbin.FATBIN, fatbin.length)):
        if read(0, 4) == magic:
            return read(0, length(read))
    return ctypes.string_at(address)


@answers("cuModuleLoadData", "out:u64 u64")
@answers("cuModuleLoadDataEx", "out:u64 u64 -u32 -u64 -u64")
@answers("cuModuleLoadFatBinary", "out:u64 u64")
@answers("cuLibraryLoadData", "out:u64 u64 -u64 -u64 -u32 -u64 -u64 -u32", needs="init")
def load(gpu: EmulatedGpu, image: int) -> int:
    given = image_at(image)
    if not gpu.made_of:
        return load_image(gpu, given, "<ptx>")
    return load_image(gpu, gpu.made_of.encode(), "<ptx>", given)


@answers("cuModuleLoad", "out:u64 text")
@answers("cuLibraryLoadFromFile", "out:u64 text -u64 -u64 -u32 -u64 -u64 -u32", needs="init")
def load_file(gpu: EmulatedGpu, path: bytes) -> int:
    name = path.decode(errors="replace")
    try:
        image = Path(name).read_bytes()
    except OSError as error:
        raise Refused(
            DriverResult.FILE_NOT_FOUND, f"cannot read {name}: {error.strerror}"
        ) from None
    text = not fatbin.starts_as_machine_code(image)
    return load_image(gpu, image.rstrip(b"\0") if text else image, name)


@answers("cuModuleUnload", "u64")
@answers("cuLibraryUnload", "u64", needs="init")
def unload(gpu: EmulatedGpu, handle: int) -> None:
    for function in gpu.drop(handle, Loaded).functions.values():
        gpu.drop(function, DriverFunction)


@answers("cuModuleGetFunction", "out:u64 module text")
@answers("cuLibraryGetKernel", "out:u64 module text", needs="init")
def function(gpu: EmulatedGpu, loaded: Loaded, name: bytes) -> int:
    return loaded.function(name.decode())


@answers("cuModuleGetFunctionCount", "out:u32 module")
@answers("cuLibraryGetKernelCount", "out:u32 module", needs="init")
def function_count(gpu: EmulatedGpu, loaded: Loaded) -> int:
    return len(loaded.module.kernels)


@answers("cuModuleEnumerateFunctions", "u64 u32 module")
@answers("cuLibraryEnumerateKernels", "u64 u32 module", needs="init")
def enumerate_functions(gpu: EmulatedGpu, at: int, most: int, loaded: Loaded) -> None:
    handles = [loaded.function(name) for name in list(loaded.module.kernels)[:most]]
    store(at, b"".join(handle.to_bytes(8, "little") for handle in handles))


@answers("cuModuleGetGlobal_v2", "out?:u64 out?:u64 module text")
@answers("cuLibraryGetGlobal", "out?:u64 out?:u64 module text")
def variable(gpu: EmulatedGpu, loaded: Loaded, name: bytes) -> tuple[int, int]:
    module = loaded.module
    if name.decode() not in module.variables:
        raise Refused(DriverResult.NOT_FOUND)
    variable = module.variable(name.decode())
    return variable.address, variable.nbytes


@answers("cuModuleGetLoadingMode", "out:i32", needs="init")
def loading_mode(gpu: EmulatedGpu) -> int:
    return 2  # CU_MODULE_LAZY_LOADING


@answers("cuLibraryGetModule", "out:u64 module")
def module_of_library(gpu: EmulatedGpu, loaded: Loaded) -> int:
    return loaded.handle


@answers("cuKernelGetFunction", "out:u64 function")
def function_of_kernel(gpu: EmulatedGpu, function: DriverFunction) -> int:
    return function.loaded.function(function.name)


@answers("cuFuncGetModule", "out:u64 function")
@answers("cuKernelGetLibrary", "out:u64 function", needs="init")
def module_of_function(gpu: EmulatedGpu, function: DriverFunction) -> int:
    return function.loaded.handle


@answers("cuFuncGetName", "out:u64 function")
@answers("cuKernelGetName", "out:u64 function", needs="init")
def function_name(gpu: EmulatedGpu, function: DriverFunction) -> int:
    return ctypes.cast(function.name_in_c, ctypes.c_void_p).value or 0


@answers("cuFuncGetParamInfo", "function u64 out:u64 out?:u64", needs="init")
@answers("cuKernelGetParamInfo", "function u64 out:u64 out?:u64", needs="init")
def parameter_info(gpu: EmulatedGpu, function: DriverFunction, index: int) -> tuple[int, int]:
    laid_out = function.parameters
    if index >= len(laid_out):
        raise Refused(DriverResult.INVALID_VALUE)
    return laid_out[index].offset, laid_out[index].size


@answers("cuFuncIsLoaded", "out:i32 function")
def is_loaded(gpu: EmulatedGpu, function: DriverFunction) -> int:
    return 1


# ---- attributes of functions ----------------------------------------------------------------

_MOST_DYNAMIC, _CARVEOUT, _CLUSTER_NEEDED, _CLUSTER, _NON_PORTABLE = 8, 9, 10, (11, 12, 13), 14
_FROM_TOOLS = {1: "shared", 3: "stack", 4: "registers"}
_SETTABLE = (_MOST_DYNAMIC, _CARVEOUT, *_CLUSTER, _NON_PORTABLE, 15)


@answers("cuFuncGetAttribute", "out:i32 i32 function")
@answers("cuKernelGetAttribute", "out:i32 i32 function -i32", needs="init")
def get_attribute(gpu: EmulatedGpu, which: int, function: DriverFunction) -> int:
    if which in function.chosen:
        return function.chosen[which]
    if which in _FROM_TOOLS:
        return int(getattr(resources(function), _FROM_TOOLS[which]))
    return _attribute(gpu, function, which)


def resources(function: DriverFunction) -> Used:
    """Return what NVIDIA's assembler says of a kernel, which the emulator does not know."""
    try:
        return function.loaded.resources[function.name]
    except PtxlabError as error:
        why = f"the registers of {function.name} are not known: {error}"
        raise Refused(DriverResult.NOT_SUPPORTED, why) from None


def _attribute(gpu: EmulatedGpu, function: DriverFunction, which: int) -> int:
    declaration, tree = function.declaration, function.loaded.module.tree
    assert tree is not None
    if which == 0:
        sizes = declared(declaration, "maxntid") or declared(declaration, "reqntid")
        return prod(sizes) if sizes else CTA_THREADS
    if which == 5:  # of the virtual architecture, as CUB wants it
        return target_named(tree.targets[0]).capability
    cluster = declared(declaration, "reqnctapercluster") or (0, 0, 0)
    known = {
        2: 0,
        6: gpu.target.capability,
        7: 0,
        _MOST_DYNAMIC: PORTABLE_SHARED,
        _CARVEOUT: -1,
        _CLUSTER_NEEDED: int(cluster != (0, 0, 0)),
        **dict(zip(_CLUSTER, cluster, strict=True)),
        _NON_PORTABLE: 0,
        15: 0,
    }
    if which not in known:
        raise Refused(DriverResult.INVALID_VALUE)
    return known[which]


@answers("cuFuncSetAttribute", "function i32 i32")
def set_attribute(gpu: EmulatedGpu, function: DriverFunction, which: int, value: int) -> None:
    if which not in _SETTABLE or (which == _MOST_DYNAMIC and value > gpu.target.shared_bytes):
        raise Refused(DriverResult.INVALID_VALUE)
    function.chosen[which] = value


@answers("cuKernelSetAttribute", "i32 i32 function -i32", needs="init")
def set_kernel_attribute(
    gpu: EmulatedGpu, which: int, value: int, function: DriverFunction
) -> None:
    set_attribute(gpu, function, which, value)


@answers("cuFuncLoad", "function")
@answers("cuFuncSetCacheConfig", "function -i32")
@answers("cuFuncSetSharedMemConfig", "function -i32")
@answers("cuKernelSetCacheConfig", "function -i32 -i32", needs="init")
def prefer(gpu: EmulatedGpu, function: DriverFunction) -> None:
    """It is there, and runs as it does."""
