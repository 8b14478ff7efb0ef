"""What a program became is kept: the PTX that lines are of, and the machine code."""

from __future__ import annotations

import os
from pathlib import Path

from ptxlab.files import write_whole
from ptxlab.syntax.tree import PtxModule
from ptxlab.toolchain.cubin import Cubin


def keep(folder: str, file: str, module: PtxModule | None, cubin: Cubin | None, arch: str) -> None:
    """Write ``NAME.TARGET.ptx`` and ``.cubin`` into a folder, of a program whose file is called so, as far as it has both."""
    stem = os.path.join(folder, f"{Path(file).stem}.{arch}")
    written = {
        ".ptx": module.source.text.encode() if module else b"",
        ".cubin": cubin.image if cubin else b"",
    }
    for ending, content in written.items():
        if content:
            write_whole(stem + ending, content)
