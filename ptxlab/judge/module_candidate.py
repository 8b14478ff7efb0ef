"""A module of PyTorch that launches kernels, in its own process: ``ModelNew`` made, called, watched.

What it says of what was launched comes from the process that the module runs in; whether its answer is right is decided
in another one, which alone knows the answer.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import numpy as np

from ptxlab.clients.borrowed import borrowing
from ptxlab.clients.driver import install
from ptxlab.clients.driver.library import loaded
from ptxlab.device.emulator import EmulatorKernel
from ptxlab.errors import LaunchError, PtxlabError, Unsupported
from ptxlab.isa.targets import DEFAULT_TARGET
from ptxlab.judge.candidate import plain_error, plain_report
from ptxlab.judge.last_writer import LastWriter
from ptxlab.judge.module_launches import LaunchRecord, predicted
from ptxlab.judge.speed import plain
from ptxlab.prediction.chip import find

MODEL = "ModelNew"
"""What a candidate calls its module, as KernelBench has it."""

_GUARDED = (
    "torch",
    "torch.nn.functional",
    "torch.cuda",
    "torch.linalg",
    "torch.testing",
    "time",
    "numpy",
    "numpy.testing",
)
"""Modules in which nobody has to change anything."""

_TENSOR = "torch.Tensor."
"""What the names of its attributes begin with, of which new ones hide those of its base."""

_MOVING = (
    "empty", "zeros", "ones", "full", "new_", "copy", "clone", "contiguous", "_to_copy", "fill", "zero_", "view", "reshape",
    "permute", "transpose", "t.", "expand", "squeeze", "slice", "select", "detach", "alias", "as_strided", "lift", "resize",
    "set_", "_local_scalar_dense", "is_", "arange", "split", "chunk", "unbind", "narrow", "cat", "stack", "flatten", "unfold",
    "pin_memory", "record_stream", "diagonal", "repeat", "constant_pad", "numel", "size", "stride", "sym_", "_unsafe_view", "_reshape",
    "item", "rand", "normal_", "uniform_",
)  # fmt: skip
"""How operations of PyTorch are called that compute nothing: they make, move and look at tensors."""


_LOOKING = (
    "empty", "new_empty", "view", "reshape", "permute", "transpose", "t.", "expand", "squeeze", "unsqueeze", "slice", "select",
    "detach", "alias", "as_strided", "is_", "split", "chunk", "unbind", "narrow", "flatten", "unfold", "diagonal", "numel",
    "size", "stride", "sym_", "_unsafe_view", "_reshape_alias", "_local_scalar_dense", "item", "record_stream",
)  # fmt: skip
"""How those of them are called that write nothing to memory that is looked at."""

_UPLOADING = ("_to_copy", "copy_", "lift_fresh")
"""How operations are called that bring numbers to the GPU."""


class ModuleCandidate:
    """``ModelNew`` of a file in Python, whose ``source`` is run as such."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        import torch

        from ptxlab.triton import use_emulator

        self._torch = torch
        torch.set_num_threads(1)
        self._job = job
        self._session = LaunchRecord(job["arch"])
        self._session.device.most_instructions = job["limits"]["instructions"]
        self._remarks: list[str] = []
        use_emulator(session=self._session)
        # Where PyTorch has loaded a GPU's own, what calls the driver finds that.
        with suppress(PtxlabError):
            install(job["arch"], session=self._session)
            loaded().gpu.say = self._remarks.append  # type: ignore[method-assign, assignment]
        self._model: Any = None
        self._held: list[Any] = []

    def load(self, seed: int, initial: Any, state: Mapping[str, Any]) -> dict[str, Any]:
        """Run the file, make its module, and give it the parameters of the reference's where they fit."""
        torch = self._torch
        torch.manual_seed(seed)
        torch.zeros(1).cuda()  # what PyTorch and ptxlab themselves replace with the first of each
        self._before = dict(_attributes())
        self._module = types.ModuleType("candidate")
        self._module.__file__ = self._job["file"]
        sys.modules["candidate"] = self._module
        code = compile(self._job["text"], self._job["file"], "exec", dont_inherit=True)
        with self._explained():
            exec(code, self._module.__dict__)
            if not hasattr(self._module, MODEL):
                raise PtxlabError(f"the file has no class {MODEL}")
            self.make(seed, initial, state)
        return {"called": MODEL, "contained": self._job["contained"], "torch": torch.__version__}

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Have an error be the fault of the launch that is behind it, or say what the driver has refused last."""
        self._session.fault = None
        try:
            yield
        except PtxlabError:
            raise
        except Exception as error:
            if self._session.fault is not None:
                raise self._session.fault from None
            if self._remarks:
                error.add_note(self._remarks[-1])
            raise

    def make(self, seed: int, initial: Any, state: Mapping[str, Any]) -> None:
        """Make the module anew, for inputs of other sizes perhaps."""
        torch = self._torch
        torch.manual_seed(seed)
        model = getattr(self._module, MODEL)(*initial)
        if isinstance(model, torch.nn.Module):
            own = model.state_dict()
            given = {name: torch.from_numpy(value) for name, value in state.items()}
            if own.keys() == given.keys() and all(own[n].shape == given[n].shape for n in own):
                model.load_state_dict(given)
            model = model.cuda().eval()
        self._model = model

    def call(
        self,
        inputs: Sequence[Any],
        checked: bool = False,
        schedule: str = "late",
        again: bool = False,
    ) -> dict[str, Any]:
        """Call the module, and tell its answer, what it launched and had PyTorch compute, and what a check found.

        ``again`` is with the same tensors, which hold other numbers.
        """
        torch, session = self._torch, self._session
        tensors = self._tensors(inputs, again)
        kept = [each.clone() if isinstance(each, torch.Tensor) else each for each in tensors]
        session.launches.clear()
        session.written.clear()
        session.left.clear()
        session.reports.clear()
        session.check, session.device.schedule = checked, schedule
        operations, threads, fault, answer = (
            _operations(torch),
            threading.active_count(),
            None,
            None,
        )
        try:
            with self._explained(), torch.no_grad(), operations:
                answer = self._model(*tensors)
        except (LaunchError, Unsupported) as error:
            fault = plain_error(error)
        told = self._told(answer, operations) if fault is None else {"outputs": [], "kinds": []}
        changed = [
            at for at, (new, old) in enumerate(zip(tensors, kept, strict=True))
            if isinstance(new, torch.Tensor) and not torch.equal(_bits(torch, new), _bits(torch, old))
        ]  # fmt: skip
        return {
            **told,
            "fault": fault,
            "launches": len(session.launches),
            "kernels": sorted({kernel.name for kernel, *_ in session.launches}),
            "operations": operations.counts,
            "uploaded": operations.uploaded,
            "changed_inputs": changed,
            "threads": threading.active_count() - threads,
            "patched": sorted(self._patched()),
            "reports": [plain_report(report) for report in session.reports],
        }

    def written_by(self, inputs: Sequence[Any], number: int, index: int) -> dict[str, Any]:
        """Call the module again, and tell which thread of a launch wrote an element of its answer last."""
        session = self._session
        session.launches.clear()
        session.check, session.holds = False, True
        try:
            with self._torch.no_grad():
                answer = self._model(*self._tensors(inputs, again=False))
            tensor = (answer if isinstance(answer, list | tuple) else [answer])[number]
            at = np.unravel_index(index, tuple(tensor.shape))
            address = tensor[tuple(map(int, at))].data_ptr()
            for kernel, config, parameters, memory in reversed(session.launches):
                assert isinstance(kernel, EmulatorKernel)
                writer = LastWriter(address, tensor.element_size())
                with suppress(LaunchError, Unsupported), borrowing(session.device.memory, memory):
                    kernel.watch(writer).launch_packed(config, parameters)
                if writer.site is not None:
                    return writer.told(kernel)
            return {}
        finally:
            session.holds = False
            session.launches.clear()

    def _tensors(self, inputs: Sequence[Any], again: bool) -> list[Any]:
        torch = self._torch
        if again and len(inputs) == len(self._held):
            for held, value in zip(self._held, inputs, strict=True):
                if isinstance(held, torch.Tensor):
                    held.copy_(torch.from_numpy(value))
            return self._held
        self._held = [
            torch.from_numpy(each).cuda() if isinstance(each, np.ndarray) else each
            for each in inputs
        ]
        return self._held

    def _told(self, answer: Any, operations: Any) -> dict[str, Any]:
        """Return the answer as arrays, of what type it was, whether launches wrote its memory, and whether nobody seen did."""
        torch = self._torch
        answers = list(answer) if isinstance(answer, list | tuple) else [answer]
        outputs: list[Any] = []
        kinds: list[str] = []
        written: list[bool] = []
        unseen: list[bool] = []
        for each in answers:
            kinds.append(f"{type(each).__module__}.{type(each).__qualname__}")
            if type(each) is not torch.Tensor and type(each) is not torch.nn.Parameter:
                outputs.append(None)
                written.append(False)
                continue
            storage = each.untyped_storage()
            address = storage.data_ptr()
            written.append(
                not each.numel() or any(a <= address < b for a, b in self._session.written)
            )
            unseen.append(
                bool(each.numel()) and not operations.writes and not self._as_left(storage)
            )
            host = each.detach().cpu().contiguous()
            outputs.append(
                host.float().numpy() if host.dtype == torch.bfloat16 else host.numpy().copy()
            )
        return {"outputs": outputs, "kinds": kinds, "written": written, "unseen": any(unseen)}

    def _as_left(self, storage: Any) -> bool:
        """Say whether memory that launches could reach is as the last of them has left it."""
        for address, left in self._session.left.items():
            first = storage.data_ptr() - address
            if 0 <= first < left.size:
                now = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
                return bool(left[first : first + storage.nbytes()].tobytes() == bytes(now))
        return False

    def _patched(self) -> Iterator[str]:
        """Yield what is another than before, unless PyTorch itself has replaced it."""
        if sys.gettrace() or sys.getprofile():
            yield "sys.settrace"
        now, own = dict(_attributes()), os.path.dirname(self._torch.__file__)
        of_tensors = {name for name in now if name.startswith(_TENSOR)}
        for name in self._before.keys() | of_tensors:
            value = now.get(name)
            code = getattr(value, "__code__", None)
            if value is not self._before.get(name) and not (
                code and code.co_filename.startswith(own)
            ):
                yield name

    def predict(self, gpu: str, inputs: Sequence[Any]) -> dict[str, Any]:
        """Predict the launches of a call, of whose inputs of floats shape and type are told; nothing is run.

        Of inputs that are integers, and of the module's own, the numbers are known.
        """
        torch, session = self._torch, self._session
        chip = find(gpu)
        tensors = [
            torch.empty(each["shaped"][0], dtype=getattr(torch, each["shaped"][1]), device="cuda")
            if isinstance(each, dict) else torch.from_numpy(each).cuda() if isinstance(each, np.ndarray) else each
            for each in inputs
        ]  # fmt: skip
        session.launches.clear()
        session.check, session.runs = False, False
        operations = _operations(torch)
        try:
            with self._explained(), torch.no_grad(), operations:
                self._model(*tensors)
        finally:
            session.runs = True
        if not session.launches:
            raise Unsupported("it launches no kernel")
        own = self._model.buffers() if isinstance(self._model, torch.nn.Module) else ()
        integers = [
            each for each in (*tensors, *own)
            if isinstance(each, torch.Tensor) and not each.is_floating_point() and each.is_contiguous()
        ]  # fmt: skip
        known = {each.data_ptr(): each.cpu().numpy() for each in integers}
        return plain([predicted(chip, known, *launch) for launch in session.launches])


def _bits(torch: Any, tensor: Any) -> Any:
    return (
        tensor.contiguous().view(torch.uint8)
        if tensor.dim()
        else tensor.reshape(1).view(torch.uint8)
    )


def _attributes() -> Iterator[tuple[str, Any]]:
    """Yield the functions and classes of modules that a candidate has no reason to replace."""
    for name in _GUARDED:
        for key, value in vars(import_module(name)).items():
            if callable(value) and not key.startswith("_"):
                yield f"{name}.{key}", value
    tensor = sys.modules["torch"].Tensor
    yield from ((f"{_TENSOR}{key}", value) for key, value in vars(tensor).items())
    for name, module in list(sys.modules.items()):
        if name.startswith(("ptxlab.judge", "ptxlab.clients", "triton.runtime.jit")) and module:
            yield from (
                (f"{name}.{key}", value) for key, value in vars(module).items() if callable(value)
            )


def _operations(torch: Any) -> Any:
    """Return a mode that counts, by name, the elements that operations of PyTorch compute."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.counts: dict[str, int] = {}
            self.uploaded = 0
            self.writes = False

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            name = str(function).removeprefix("aten.")
            self.writes |= not name.startswith(_LOOKING)
            if (
                name.startswith(_UPLOADING)
                and _of(result, "cuda")
                and (_of(args[-1], "cpu") or name[0] == "l")
            ):
                self.uploaded += result.numel()
            if not name.startswith(_MOVING):
                count = result.numel() if isinstance(result, torch.Tensor) else 1
                self.counts[name] = self.counts.get(name, 0) + count
            return result

    return Operations()


def _of(value: Any, device: str) -> bool:
    return getattr(getattr(value, "device", None), "type", None) == device


def preload() -> None:
    """Import what every module wants before any is there: PyTorch, Triton, the driver, and what they put off until a first call."""
    import torch
    import torch.utils.cpp_extension
    from triton.runtime.cache import triton_key

    from ptxlab.triton import use_emulator

    torch.set_num_threads(1)
    use_emulator(session=LaunchRecord(DEFAULT_TARGET))
    with _operations(torch):
        torch.empty(1)
    for name in _GUARDED:
        import_module(name)
    triton_key()
