"""torch.utils.cpp_extension without nvcc and without a compiler of C++: ``load_inline`` and ``load``.

NVRTC compiles kernels and the functions that launch them alike. A function of the host then runs on an emulator of its
own as a kernel of a single thread, with the PyTorch of ``extension.h``: what it asks of tensors, and what it launches,
stands in memory that it shares with this process, which is told by a printf of one character.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ptxlab.clients import captures
from ptxlab.clients.borrowed import Borrowed, borrowing
from ptxlab.clients.imports import AfterImport
from ptxlab.clients.session import Session
from ptxlab.clients.strings import standing_in
from ptxlab.clients.triton.memory import borrowed
from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel
from ptxlab.emulator import print_text
from ptxlab.emulator.prepare.program import declared_functions, function_addresses
from ptxlab.errors import ToolchainError, Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.toolchain import LINE_INFO
from ptxlab.toolchain.host_headers import PRELUDE, without_host_headers
from ptxlab.toolchain.nvrtc import compile_cuda

_MODULE = "torch.utils.cpp_extension"
RING = "\x1b"
"""What a function of the host prints when it has written to the box."""

_SLOTS, _TEXT = 256, 4096
_NONE, _INTEGER, _REAL, _BOOLEAN, _TENSOR, _LIST, _OPTIONS, _TUPLE = range(8)
_TYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 11: torch.bool, 15: torch.bfloat16,
}  # fmt: skip
"""c10::ScalarType."""
_DEVICES = ("cpu", "cuda")
_UNTOLD = 255

_ATTRIBUTES = {
    1: "max_threads_per_block", 8: "shared_memory_per_block", 10: "warp_size", 12: "regs_per_multiprocessor",
    16: "multi_processor_count", 39: "max_threads_per_multi_processor", 75: "major", 76: "minor",
    81: "shared_memory_per_multiprocessor", 97: "shared_memory_per_block_optin",
}  # fmt: skip
"""cudaDeviceAttr, as torch.cuda.get_device_properties calls them."""

_LAUNCH = re.compile(r"<<<((?:(?!<<<).)*?)>>>\s*\(", re.DOTALL)
_CALLED = re.compile(r"[\w:]+\s*(?:<(?:[^<>;{}]|<[^<>;{}]*>)*>\s*)?$")
_FLAG = re.compile(r"-D.+|--?(?:use_fast_math|fmad=.*|ftz=.*|prec-(?:div|sqrt)=.*|std=.*)")
"""The flags of nvcc that NVRTC has too and that change what a kernel computes."""


class _Slot(ctypes.Structure):
    kind: int
    bits: int
    _fields_ = (("kind", ctypes.c_int64), ("bits", ctypes.c_int64))


class _Box(ctypes.Structure):
    """``MailBox`` of ``extension.h``."""

    slots: Any
    parameters: Any
    text: Any
    count: int
    length: int
    values: int
    _fields_ = (
        ("slots", _Slot * _SLOTS),
        ("parameters", ctypes.c_char * _TEXT),
        ("text", ctypes.c_char * _TEXT),
        ("count", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("values", ctypes.c_int64),
    )


class Extension:
    """The functions of C++ ``text``, whose launches run on ``session``."""

    def __init__(self, session: Session, name: str, text: str, flags: Sequence[str]) -> None:
        target = session.device.target
        ptx = compile_cuda(text, path=f"{name}.cu", arch=target.name, options=[
            "--device-as-default-execution-space", LINE_INFO, *filter(_FLAG.fullmatch, flags),
        ])  # fmt: skip
        self._session = session
        self._module = session.load(ptx, f"{name}.cu (PTX)")
        host = EmulatorDevice(target, console=self._heard)
        self._device = host
        kernel = host.load(ptx).kernel("ptxlab_call")
        assert isinstance(kernel, EmulatorKernel)
        self._kernel = kernel
        module = kernel.program.module
        addresses = function_addresses(declared_functions(module))
        self._kernels = {address: function for function, address in addresses.items()}
        self._box = _Box()
        self._tensors: list[torch.Tensor] = []
        self.names: list[str] = []
        self._run("")

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """Call a function. Raises RuntimeError for what it checks, and what a launch raises."""
        self._tensors.clear()
        self._write(arguments)
        self._run(name)
        return self._read()[0]

    def _run(self, name: str) -> None:
        box, text = self._box, name.encode()
        ctypes.memmove(ctypes.addressof(box) + _Box.text.offset, text, len(text))
        box.length = len(text)
        address = ctypes.addressof(box)
        with borrowing(
            self._device.memory,
            [Borrowed(address, ctypes.sizeof(box), "what a function of the host is given", box)],
        ):
            self._kernel.launch_packed(LaunchConfig.of(1, 1), address.to_bytes(8, "little"))

    def _heard(self, text: str) -> None:
        if text != RING:
            print_text(text)
            return
        box = self._box
        name = ctypes.string_at(ctypes.addressof(box) + _Box.text.offset, box.length).decode()
        if name.startswith("def "):
            self.names.append(name.removeprefix("def "))
        elif name.startswith("!"):
            raise RuntimeError(name[1:])
        elif name == "<<<":
            self._launch([slot.bits for slot in box.slots[: box.count]])
        elif name == "attribute":
            self._write([self._attribute(*self._read())])
        else:
            self._write([_asked(name, self._read())])

    def _launch(self, told: Sequence[int]) -> None:
        address, *shape, shared, size = told
        kernel = self._module.kernel(self._kernels[address])
        config = LaunchConfig.of(tuple(shape[:3]), tuple(shape[3:]), shared)
        parameters = ctypes.string_at(ctypes.addressof(self._box) + _Box.parameters.offset, size)
        memory = borrowed((f"tensor {at}", tensor) for at, tensor in enumerate(self._tensors))
        if captures.active() is None:
            self._session.launch(kernel, config, parameters, memory)
        else:
            captures.add(lambda: self._session.launch(kernel, config, parameters, memory))

    def _attribute(self, number: int) -> int:
        if number not in _ATTRIBUTES:
            raise Unsupported(f"cudaDeviceGetAttribute is asked for attribute {number}")
        return int(getattr(torch.cuda.get_device_properties(0), _ATTRIBUTES[number]))

    # ---- values ----

    def _read(self) -> list[Any]:
        slots = iter([(slot.kind, slot.bits) for slot in self._box.slots[: self._box.count]])
        return [self._value(*slot, slots) for slot in slots]

    def _value(self, kind: int, bits: int, slots: Iterator[tuple[int, int]]) -> Any:
        if kind in (_LIST, _TUPLE):
            members = [self._value(*next(slots), slots) for _ in range(bits)]
            return tuple(members) if kind == _TUPLE else members
        if kind == _TENSOR:
            return self._tensors[bits]
        if kind == _REAL:
            return ctypes.c_double.from_buffer(ctypes.c_int64(bits)).value
        if kind == _OPTIONS:
            given: dict[str, Any] = {"dtype": _TYPES.get(bits & 255)}
            if bits >> 8 != _UNTOLD:
                given["device"] = torch.device(_DEVICES[bits >> 8])
            return {key: value for key, value in given.items() if value is not None}
        return {_NONE: None, _BOOLEAN: bool(bits)}.get(kind, bits)

    def _write(self, values: Sequence[Any]) -> None:
        self._box.count, self._box.values = 0, len(values)
        for value in values:
            self._put(value)

    def _put(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._slot(_TENSOR, len(self._tensors))
            self._tensors.append(value)
        elif isinstance(value, list | tuple):
            self._slot(_LIST, len(value))
            for member in value:
                self._put(member)
        elif isinstance(value, dict):
            dtypes = {dtype: number for number, dtype in _TYPES.items()}
            self._slot(_OPTIONS, dtypes[value["dtype"]] | _DEVICES.index(value["device"]) << 8)
        elif isinstance(value, bool):
            self._slot(_BOOLEAN, value)
        elif isinstance(value, int):
            self._slot(_INTEGER, value)
        elif isinstance(value, float):
            self._slot(_REAL, ctypes.c_int64.from_buffer(ctypes.c_double(value)).value)
        elif value is None:
            self._slot(_NONE, 0)
        else:
            raise TypeError(f"incompatible function arguments: {type(value).__name__}")

    def _slot(self, kind: int, bits: int) -> None:
        box = self._box
        if box.count == _SLOTS:
            raise RuntimeError(f"a function of C++ is given more than {_SLOTS} values")
        box.slots[box.count] = _Slot(kind, bits)
        box.count += 1


def _asked(name: str, values: list[Any]) -> Any:
    """Return what a function of PyTorch, or a method of the first value, answers."""
    options: dict[str, Any] = {}
    for value in [each for each in values if isinstance(each, dict)]:
        options |= value
    values = [each for each in values if not isinstance(each, dict)]
    if name.startswith("torch."):
        return getattr(torch, name.removeprefix("torch."))(*values, **options)
    tensor, *given = values
    if name == "options":
        return {"dtype": tensor.dtype, "device": tensor.device.type}
    return getattr(tensor, name)(*given, **options)


# ---- torch.utils.cpp_extension ------------------------------------------------------------------


_session: Session | None = None


def install(session: Session) -> None:
    """Have torch.utils.cpp_extension, imported now or later, compile for a session."""
    global _session
    first, _session = _session is None, session
    known = sys.modules.get(_MODULE)
    if known is not None:
        _replace(known)
    elif first:
        sys.meta_path.insert(0, AfterImport({_MODULE: _replace}))


def _replace(module: Any) -> None:
    module.load_inline, module.load = load_inline, load


def load_inline(
    name: str, cpp_sources: Any, cuda_sources: Any = None, *_: Any, functions: Any = None, extra_cflags: Any = None,
    extra_cuda_cflags: Any = None, **__: Any,
) -> ModuleType:  # fmt: skip
    """Return a module of functions in C++ and CUDA C, which are given as texts."""
    path = sys._getframe(1).f_code.co_filename
    given = [*_listed(cpp_sources), *_listed(cuda_sources)]
    texts = [standing_in(path, text) or f'#line 1 "{name}.cu"\n{text}' for text in given]
    return _made(
        name, texts, [*_listed(extra_cflags), *_listed(extra_cuda_cflags)], _listed(functions)
    )


def load(
    name: str, sources: Any, *_: Any, extra_cflags: Any = None, extra_cuda_cflags: Any = None, **__: Any
) -> ModuleType:  # fmt: skip
    """Return a module of functions in C++ and CUDA C, which are in files."""
    texts = [
        f'#line 1 "{path}"\n{Path(path).read_text(encoding="utf-8")}' for path in _listed(sources)
    ]
    return _made(name, texts, [*_listed(extra_cflags), *_listed(extra_cuda_cflags)], [])


def _listed(given: Any) -> list[str]:
    if given is None:
        return []
    return [given] if isinstance(given, str) else list(given)


def _made(name: str, texts: list[str], flags: Sequence[str], functions: list[str]) -> ModuleType:
    assert _session is not None
    source = "\n".join(map(_translated, texts))
    half = re.search(
        r"\b(?:at|c10|torch)::(?:Half|BFloat16)\b|\bAT_DISPATCH_\w*(?:HALF|2)\b", source
    )
    bindings = "".join(f' m.def("{function}", {function});' for function in functions)
    if functions:
        source += f"\nPYBIND11_MODULE({name}, m) {{{bindings} }}\n"
    header = Path(__file__).with_name("extension.h").read_text(encoding="utf-8")
    text = "\n".join([
        PRELUDE, "#define PTXLAB_HALF" if half else "", header, source,
        'extern "C" __global__ void ptxlab_call(ptxlab::MailBox* box) {',
        "    ptxlab::box = box;",
        "    ptxlab::Binding binding{box->length == 0};",
        "    ptxlab_bindings(binding);",
        "}",
    ])  # fmt: skip
    extension = Extension(_session, name, text, flags)
    module = ModuleType(name)
    for function in extension.names:
        setattr(module, function, _bound(extension, function))
    return module


def _bound(extension: Extension, name: str) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        return extension.call(name, arguments)

    function.__name__ = function.__qualname__ = name
    return function


def _translated(text: str) -> str:
    """Return C++ without headers of the host, and with launches as calls of ``ptxlab::launch``."""
    text = without_host_headers(text)
    pieces, at = [], 0
    for match in _LAUNCH.finditer(text):
        called = _CALLED.search(text, at, match.start())
        if called is None:
            raise ToolchainError(f"what is launched by <<<{match[1]}>>> has no name")
        more = "" if re.match(r"\s*\)", text[match.end() :]) else ", "
        pieces += [
            text[at : called.start()],
            f"ptxlab::launch({match[1]})({called[0].strip()}{more}",
        ]
        at = match.end()
    return "".join(pieces) + text[at:]
