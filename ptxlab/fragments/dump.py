"""Running the program with its registers dumped around the ``mma``."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike

from ptxlab.device.loading import load_ptx
from ptxlab.device.protocol import Device, Kernel
from ptxlab.fragments.fill import Array, Inputs
from ptxlab.fragments.predict import bits
from ptxlab.fragments.program import find_mma, registers
from ptxlab.fragments.report import Run
from ptxlab.isa import LANES, MatrixInstruction
from ptxlab.syntax.printer import to_text
from ptxlab.syntax.rewrite import Probe, dump_registers

PROBED = "ABCD"
"""The order of the operands in the dump: what goes in first, then what comes out."""


@dataclass(frozen=True, slots=True, eq=False)
class Instrumented:
    """A kernel that runs one ``instruction`` and also writes its operands' registers to a buffer."""

    device: Device
    instruction: MatrixInstruction
    kernel: Kernel

    @classmethod
    def load(
        cls, device: Device, instruction: MatrixInstruction, source: str | PathLike[str]
    ) -> Instrumented:
        """Insert the dumps into the program at ``source`` (a file, or PTX text) and load it."""
        module = load_ptx(source, device.target)
        function, statement = find_mma(module, instruction)
        names = registers(module, statement, instruction)
        probes = [
            Probe(statement.position, names[operand], after=operand == "D") for operand in PROBED
        ]
        text = to_text(dump_registers(module, function.name, probes))
        return cls(device, instruction, device.load(text).kernel(function.name))

    def run(self, inputs: Inputs) -> Run:
        """Launch one warp on ``inputs`` and return its registers and the D it stored."""
        layouts = {operand: self.instruction.operand(operand) for operand in PROBED}
        slots = sum(layout.registers_per_lane for layout in layouts.values())
        a, b, d = (self.device.upload(matrix) for matrix in (inputs.a, inputs.b, inputs.c))
        dump = self.device.zeros((LANES, slots), "u64")
        try:
            self.kernel.launch(1, LANES, [a, b, d, self.instruction.k, dump])
            words, result = dump.numpy(), bits(d.numpy())
        finally:
            for buffer in (a, b, d, dump):
                buffer.close()
        held: dict[str, Array] = {}
        first = 0
        for operand, layout in layouts.items():
            columns = words[:, first : first + layout.registers_per_lane]
            held[operand] = columns.astype(f"u{layout.register_bits // 8}")
            first += layout.registers_per_lane
        return Run(inputs, held, result)
