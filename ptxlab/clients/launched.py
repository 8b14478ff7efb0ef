"""A launch that a program made, made again to be looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ptxlab.clients.borrowed import Borrowed, borrowing
from ptxlab.clients.faults import faults_at_source
from ptxlab.device.emulator import EmulatorKernel
from ptxlab.device.protocol import Dump, Dumped
from ptxlab.judging import Judged, judge
from ptxlab.launch_config import Dim3, LaunchConfig
from ptxlab.syntax.names import called

# Imported when they are asked for, which few programs do.
if TYPE_CHECKING:
    from ptxlab.machine.assembly import Assembly
    from ptxlab.observe import CheckReport, Profile, Recording, Timeline
    from ptxlab.observe.diff import DiffReport
    from ptxlab.prediction.model import Prediction

TRACED, RECORDED = 20_000, 5_000
"""How many steps are kept, unless told, of what ``trace`` and ``step`` follow."""


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """A launch of ``kernel`` with its parameter block and the ``memory`` of this process that it uses.

    It is launch ``number`` of its session, from 1 on. ``check``, ``profile``, ``trace``, ``step``, ``dump`` and
    ``diff`` make the same launch again, on what memory holds then, and put back what it wrote, so that the program
    does not notice. They raise the faults of the kernel. What they return, a notebook shows, and ``save`` writes.
    """

    kernel: EmulatorKernel
    config: LaunchConfig
    parameters: bytes
    memory: tuple[Borrowed, ...] = ()
    number: int = 0

    def __repr__(self) -> str:
        target = self.kernel.device.target.name
        return f"<launch of {called(self.kernel.name)} on {target}: {self.config!r}>"

    @property
    def ptx(self) -> str:
        """The PTX of the program, from which lines are counted."""
        return self.kernel.program.module.source.text

    def check(self) -> CheckReport:
        """Return what is wrong with it: races, missing waits, barriers, bounds, unwritten memory."""
        from ptxlab.observe.check import check

        with self._again():
            return check(self.kernel, self.config, self.parameters)

    def profile(self) -> Profile:
        """Return what every instruction did, by line of the PTX and of the source it comes from."""
        from ptxlab.observe.profile import count

        with self._again() as told, told:
            return count(self.kernel, self.config, self.parameters)

    def trace(self, cta: Dim3 = (0, 0, 0), *, steps: int = TRACED) -> Timeline:
        """Return what a CTA, or its cluster, does in order, the first ``steps`` of it: see ``ptxlab trace``."""
        from ptxlab.observe.trace import trace

        with self._again() as told:
            return trace(self.kernel, self.config, self.parameters, cta, steps, told)

    def step(
        self, cta: Dim3 = (0, 0, 0), *, warps: Sequence[int] | None = None, steps: int = RECORDED
    ) -> Recording:
        """Return what the registers of ``warps`` of a CTA, all unless told, and its shared memory hold step by step.

        See ``ptxlab step``.
        """
        from ptxlab.observe.step import step

        with self._again() as told:
            return step(self.kernel, self.config, self.parameters, cta, warps, steps, told)

    def predict(self, gpu: str, *, clock: int | None = None) -> Prediction:
        """Predict how long it would take on a GPU that is not here ("h100"), at a ``clock`` in MHz.

        What memory holds then decides where it goes. Raises Unsupported as ``ptxlab.predict`` does.
        """
        from ptxlab.clients.predicted import predicted

        with borrowing(self.kernel.device.memory, self.memory):  # nothing is written, nothing kept
            return predicted(self.kernel, self.config, self.parameters, self.memory, gpu, clock)

    def dump(
        self, at: str | int, registers: Sequence[str] = (), *, before: bool = False, nth: int = 1
    ) -> Dumped:
        """Return the registers of every thread at a line or an instruction, as ``ptxlab.Dump`` says."""
        wanted = Dump(at, tuple(registers), before, nth)
        with self._again() as told, told:
            dumped = self.kernel.launch_packed(self.config, self.parameters, wanted).dump
        assert dumped is not None
        return dumped

    def diff(self, arch: str) -> DiffReport:
        """Return where it parts from the same launch on an emulated GPU of another ``arch``.

        The same PTX runs on both, which has to be of the older one; see ``ptxlab diff``. Raises
        Unsupported for a program that the other cannot run.
        """
        from ptxlab.clients.difference import difference

        with self._again():
            return difference(self.kernel, self.config, self.parameters, self.memory, arch)

    def judge(
        self,
        reference: Any,
        *,
        names: Sequence[str] = (),
        gpus: Sequence[str] = (),
        seed: int = 0,
    ) -> Judged:
        """Say whether the kernel is right beside a ``reference``, safe, deterministic and honest: see ``ptxlab.evaluate``.

        It is launched as it was, with what its tensors hold now and with the same numbers in other orders. A reference
        in NumPy or PyTorch takes tensors by the names that the program has for them and numbers by those of the
        parameters, or all by ``names``, in the order of the parameters. Raises Unsupported for arguments that are
        neither tensors nor numbers.
        """
        from ptxlab.clients.judged import task

        with self._again():
            told = task(self.kernel, self.config, self.parameters, names)
        return judge(**told, reference=reference, gpus=gpus, seed=seed)

    def sass(self) -> Assembly:
        """Return the program beside the machine code that NVIDIA's assembler makes of it, or the client brought."""
        from ptxlab.clients.predicted import assembly

        return replace(assembly(self.kernel, self.kernel.device.target.name), launched=self.config)

    @contextmanager
    def _again(self) -> Iterator[AbstractContextManager[None]]:
        """Have its memory for a launch that leaves nothing, and what tells of a fault at the source."""
        device = self.kernel.device
        with borrowing(device.memory, self.memory), device.rehearsing():
            yield faults_at_source(self.kernel, self.config, self.parameters)
