"""Machine code as the tools return it, and what ptxas said of it: each kernel's resources, remarks.

The lines are those of ``ptxas -v``; CUDA Compiler Driver documentation, "Options for Passing Specific
Phase Options", and NVIDIA's forum for the meaning of the numbered remarks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBERS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "shared": re.compile(r"(\d+) bytes smem"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "barriers": re.compile(r"used (\d+) barriers"),
}
_REMARK = re.compile(
    r"^ptxas (?P<level>info|warning) *: (?:\((?P<code>C\d+)\) )?(?P<text>.*)$", re.M
)
_LINE = re.compile(r"\bline (\d+)")


@dataclass(frozen=True, slots=True)
class Used:
    """What one kernel uses: registers and barriers by count, the rest in bytes.

    ``shared`` is static shared memory, ``stack`` is per thread.
    """

    kernel: str
    registers: int
    shared: int
    stack: int
    barriers: int


@dataclass(frozen=True, slots=True)
class Resources(Used):
    """What ptxas says one kernel uses, and how many bytes a thread stores and loads for spilled registers."""

    spill_stores: int
    spill_loads: int


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark of ptxas in its own words: ``code`` is ``C7510`` or "", ``line`` one of the PTX or None."""

    code: str
    text: str
    line: int | None


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code for one ``arch``: the ELF ``image`` and the ``log`` of its making."""

    arch: str
    image: bytes
    log: str

    @property
    def kernels(self) -> dict[str, Resources]:
        """The resources of every kernel, by name, read from the log."""
        return {resources.kernel: resources for resources in read_resources(self.log)}

    @property
    def remarks(self) -> list[Remark]:
        """What ptxas warned of, read from the log."""
        return read_remarks(self.log)


def read_resources(log: str) -> list[Resources]:
    """Read what the log says of each kernel: its function properties and its ``Used`` line."""
    resources = []
    for part in log.split("Compiling entry function ")[1:]:
        name = part.split("'")[1]
        own = part[part.index(f"Function properties for {name}\n") :]
        numbers = {key: _number(pattern, own) for key, pattern in _NUMBERS.items()}
        resources.append(Resources(name, **numbers))
    return resources


def read_remarks(log: str) -> list[Remark]:
    """Read the warnings, and what is numbered: wgmma serialised, setmaxnreg ignored, ..."""
    remarks = []
    for match in _REMARK.finditer(log):
        if match["code"] or match["level"] == "warning":
            line = _LINE.search(match["text"])
            remark = Remark(match["code"] or "", match["text"].strip(), line and int(line[1]))
            if remark not in remarks:
                remarks.append(remark)
    return remarks


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else 0
