"""The launches of a program that knows nothing of ptxlab: run on one emulator, counted, checked, kept.

    session = Session("sm_80", check=True)
    kernel = session.load(ptx, "add.ptx").kernel("add")
    session.launch(kernel, LaunchConfig.of(4, 128), parameters, [Borrowed(address, nbytes, "x", owner)])
    session.last.dump("mma.sync", "D"), session.usage, session.reports

A client turns what its framework asks for into these calls. Kernels use what ``session.device``
allocates or maps, and memory of this process that is borrowed for a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING

from ptxlab.clients.borrowed import Borrowed, borrowing
from ptxlab.clients.faults import faults_at_source
from ptxlab.clients.launched import Launched
from ptxlab.device.emulator import EmulatorDevice, EmulatorKernel
from ptxlab.device.opening import open_device
from ptxlab.device.protocol import Kernel, LaunchResult, Module
from ptxlab.emulator import print_text
from ptxlab.errors import LaunchError, Unsupported
from ptxlab.launch_config import LaunchConfig
from ptxlab.syntax.parser import parse
from ptxlab.workers import Progress

if TYPE_CHECKING:
    from ptxlab.observe import CheckReport


@dataclass(slots=True)
class Usage:
    """What all launches of a kernel took: ``seconds`` of emulation, ``instructions`` of threads.

    Its first launch was number ``first`` of the session. Of the lines ``unverified`` of its PTX nobody has measured
    the bits.
    """

    launches: int = 0
    seconds: float = 0.0
    instructions: int = 0
    unverified: list[int] = field(default_factory=list)
    first: int = 0


class Session:
    """An emulated GPU of ``arch`` (``sm_90a``), and what a program has launched on it.

    With ``check`` every launch is checked: ``reports`` has those that did not pass, one for each kernel
    and what was found. ``usage`` is by the name of the kernel, ``last`` the latest launch. ``look`` is called with each
    launch before it is made. ``progress`` and ``console`` are those of ``EmulatorDevice``; a progress that raises TimeoutError ends the launch.
    Raises PtxlabError for an ``arch`` that is no target.
    """

    def __init__(
        self,
        arch: str,
        *,
        check: bool = False,
        look: Callable[[Launched], None] | None = None,
        progress: Progress | None = None,
        console: Callable[[str], None] = print_text,
    ) -> None:
        device = open_device("emulator", arch=arch, progress=progress, console=console)
        assert isinstance(device, EmulatorDevice)
        self.device = device
        self.check = check
        self.usage: dict[str, Usage] = {}
        self.reports: list[CheckReport] = []
        self.last: Launched | None = None
        self.look = look
        self._modules: dict[str, Module] = {}
        self._numbers = count(1)
        self._lock = RLock()  # frameworks launch from threads of their own too

    def load(self, text: str, label: str) -> Module:
        """Return the module of a PTX text, which errors call ``label``: the same one for the same text.

        Its kernels are prepared when they are first asked for. Raises PtxSyntaxError, and Unsupported
        for a program of another target.
        """
        with self._lock:
            module = self._modules.get(text)
            if module is None:
                module = self._modules[text] = self.device.load(parse(text, label, skim=True))
            return module

    def launch(
        self,
        kernel: Kernel,
        config: LaunchConfig,
        parameters: bytes,
        memory: Sequence[Borrowed] = (),
    ) -> LaunchResult:
        """Run a kernel of this session to its end, with its parameter block as ``launch_packed`` takes it.

        ``memory`` is what of this process it may use, beside that of the device. Raises what
        ``launch_packed`` raises, of a fault with the line of the source that the PTX names.
        """
        assert isinstance(kernel, EmulatorKernel)
        with self._lock:
            number = next(self._numbers)
            self.last = launched = Launched(kernel, config, parameters, tuple(memory), number)
            if self.look is not None:
                self.look(launched)
            told = faults_at_source(kernel, config, parameters)
            with borrowing(self.device.memory, memory), told:
                result = self._run(launched)
            used = self.usage.setdefault(kernel.name, Usage(first=number))
            used.launches += 1
            used.seconds += result.seconds
            used.instructions += result.counters["thread_instructions"]
            used.unverified = sorted({*used.unverified, *result.unverified})
            return result

    def _run(self, launched: Launched) -> LaunchResult:
        kernel, config, parameters = launched.kernel, launched.config, launched.parameters
        if not self.check:
            return kernel.launch_packed(config, parameters)
        from ptxlab.observe.check import Checker  # here: most programs are not checked
        from ptxlab.observe.check_report import CHECKS

        checker, fault = Checker(CHECKS), None
        try:
            return kernel.watch(checker).launch_packed(config, parameters)
        except (LaunchError, Unsupported) as error:
            fault = error
            raise
        finally:
            self._keep(checker.report(kernel.name, fault))

    def _keep(self, report: CheckReport) -> None:
        """Keep a report that did not pass, if there is none like it."""
        if report.failed() and not any(_alike(report, other) for other in self.reports):
            self.reports.append(report)


def _alike(report: CheckReport, other: CheckReport) -> bool:
    """Say whether reports are of the same program and found the same, however often."""
    if report.source is not other.source or report.unchecked != other.unchecked:
        return False
    places = ([(f.rule, f.line, f.other_line) for f in each.findings] for each in (report, other))
    return next(places) == next(places)
