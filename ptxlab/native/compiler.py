"""LLVM's assembly language to machine code of this processor, in memory and kept on disk.

llvmlite has LLVM; it is imported when something is compiled, and nothing here needs it before that.
What is computed is what the text says: LLVM neither reorders nor contracts floating-point arithmetic
unless an instruction carries a flag that allows it.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

from ptxlab.cache import cached

PASSES = "O2"
"""How code is optimised, as a part of its name on disk. It is vectors already: LLVM is to look for no others."""

X86 = "x86_64", "AMD64"
"""What systems call processors of x86."""


@cache
def available() -> bool:
    return find_spec("llvmlite") is not None


def has(*extensions: str) -> bool:
    """Say whether code is compiled here, and for a processor with these extensions."""
    return available() and {f"+{extension}" for extension in extensions} <= {
        *_host().features.split(",")
    }


def has_halves() -> bool:
    """Say whether code for this processor converts numbers of float16 itself; LLVM would call functions that may be nowhere."""
    return available() and (platform.machine() not in X86 or has("f16c"))


def compile(text: str, name: str, kind: type[Any], *, masked: bool = True) -> Any:
    """Compile a module in LLVM's assembly language and return its function ``name``.

    ``kind`` is its type, one of ``ctypes.CFUNCTYPE``. On disk the code is found again by the text, the
    processor and the version of LLVM. Raise RuntimeError for text that LLVM does not take.

    Only what is ``masked`` may use AVX-512: of a choice between a word and a function of it, another and one in
    memory LLVM 20 makes a masked vpternlog whose table is for its operands in another order.
    """
    engine = _loaded(text, masked)
    function = kind(engine.get_function_address(name))
    function.engine = engine  # which frees the code with the last that refers to it
    return function


@cache
def _loaded(text: str, masked: bool) -> Any:
    """Return the execution engine that holds the machine code of a module."""
    import llvmlite

    host = _host() if masked else _host().without("avx512f")
    key = (llvmlite.__version__, host.cpu, host.features, PASSES, text)
    code = cached("native", key, lambda: _compiled(text, host))
    return load_object(code, host)


def load_object(code: bytes, host: _Host | None = None) -> Any:
    """Return the execution engine that holds what is in an object file for this processor."""
    import llvmlite.binding as llvm

    machine = (host or _host()).machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


@dataclass(frozen=True, slots=True)
class _Host:
    """This processor as LLVM names it, and what it can do."""

    cpu: str
    features: str

    def without(self, feature: str) -> _Host:
        has = f"+{feature}" in self.features.split(",")
        return replace(self, features=f"{self.features},-{feature}") if has else self

    def machine(self) -> Any:
        import llvmlite.binding as llvm

        target = llvm.Target.from_default_triple()
        return target.create_target_machine(cpu=self.cpu, features=self.features, opt=3, jit=True)


@cache
def _host() -> _Host:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return _Host(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def _compiled(text: str, host: _Host) -> bytes:
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.verify()
    machine = host.machine()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)  # type: ignore[no-any-return]
