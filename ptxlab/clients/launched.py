"""A launch that a program made, made again to be looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptxlab.clients.borrowed import Borrowed, borrowing
from ptxlab.device.emulator import EmulatorKernel
from ptxlab.device.protocol import Dump, Dumped
from ptxlab.launch_config import LaunchConfig

# Imported when they are asked for, which few programs do.
if TYPE_CHECKING:
    from ptxlab.machine.assembly import Assembly
    from ptxlab.observe import CheckReport, Profile
    from ptxlab.observe.diff import DiffReport


@dataclass(frozen=True, slots=True, eq=False)
class Launched:
    """A launch of ``kernel`` with its parameter block and the ``memory`` of this process that it uses.

    ``check``, ``profile``, ``dump`` and ``diff`` make the same launch again, on what memory holds then, and put back
    what it wrote, so that the program does not notice. They raise the faults of the kernel.
    """

    kernel: EmulatorKernel
    config: LaunchConfig
    parameters: bytes
    memory: tuple[Borrowed, ...] = ()

    def __repr__(self) -> str:
        target = self.kernel.device.target.name
        return f"<launch of {self.kernel.name} on {target}: {self.config!r}>"

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

        with self._again():
            return count(self.kernel, self.config, self.parameters)

    def dump(
        self, at: str | int, registers: Sequence[str] = (), *, before: bool = False, nth: int = 1
    ) -> Dumped:
        """Return the registers of every thread at a line or an instruction, as ``ptxlab.Dump`` says."""
        wanted = Dump(at, tuple(registers), before, nth)
        with self._again():
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

    def sass(self) -> Assembly:
        """Return the program beside the machine code that NVIDIA's assembler makes of it."""
        from ptxlab.machine.assembly import Assembly
        from ptxlab.toolchain import link_ptx

        module, arch = self.kernel.program.module, self.kernel.device.target.name
        return Assembly(module, link_ptx(self.ptx, arch=arch, path=module.source.path))

    @contextmanager
    def _again(self) -> Iterator[None]:
        memory = self.kernel.device.memory
        with borrowing(memory, self.memory), memory.kept():
            yield
